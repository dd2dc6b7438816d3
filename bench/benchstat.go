package bench

import (
	"fmt"
	"io"
)

// Benchstat prints the rounds as go test -bench would, for benchstat and its kin
// (golang.org/design/14313-benchmark-format): a line for each row and round, with its
// floor and the ratio of the two. Machines differ, so between them only ratios can be
// compared. What benchstat is not to tell files apart by, such as the load, is a
// comment.
func (r *Report) Benchstat(w io.Writer) error {
	if _, err := fmt.Fprintf(w, "# %s\ngoos: linux\ngoarch: amd64\npkg: github.com/gokprobe/gokprobe/bench\ncpu: %s\n",
		r.Machine, r.Machine.CPU); err != nil {
		return err
	}
	for _, res := range r.Rows {
		if res.Each == nil {
			continue
		}
		for i, ns := range res.Each.Rounds {
			line := fmt.Sprintf("BenchmarkHit/row=%s-%d 1 %.4g ns/op", res.Row, r.Machine.Processors, ns)
			if res.FloorEach != nil && i < len(res.FloorEach.Rounds) {
				floor := res.FloorEach.Rounds[i]
				line += fmt.Sprintf(" %.4g floor-ns/op %.4g ratio", floor, ns/floor)
			}
			if _, err := fmt.Fprintln(w, line); err != nil {
				return err
			}
		}
	}
	return nil
}
