package bench

import (
	"strings"
	"testing"
)

func TestRoundsArePrintedForBenchstat(t *testing.T) {
	r := Report{
		Machine: Machine{CPU: "A CPU", Processors: 2, Kernel: "6.1", Go: "go1.26", Load: 0.25},
		Rows: []Result{
			{Row: "o-count", Each: figures(series{10, 12.5}), FloorEach: figures(series{5})},
			{Row: "u", Note: "not permitted", FloorEach: figures(series{5})},
			{Row: "b", Each: figures(series{1e6}), FloorNote: "not here"},
		},
	}
	var b strings.Builder
	if err := r.Benchstat(&b); err != nil {
		t.Fatal(err)
	}
	want := `# A CPU, processors: 2, Linux 6.1, go1.26, load 0.2
goos: linux
goarch: amd64
pkg: github.com/gokprobe/gokprobe/bench
cpu: A CPU
BenchmarkHit/row=o-count-2 1 10 ns/op 5 floor-ns/op 2 ratio
BenchmarkHit/row=o-count-2 1 12.5 ns/op
BenchmarkHit/row=b-2 1 1e+06 ns/op
`
	if b.String() != want {
		t.Errorf("%s", b.String())
	}
}
