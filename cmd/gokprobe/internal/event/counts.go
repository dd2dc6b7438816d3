package event

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gokprobe/gokprobe/internal/escape"
)

// CountOptions are the options of PrintCounts.
type CountOptions struct {
	All     bool // every probe, also one that was not hit
	Columns int  // where lines are cut; 0 for nowhere
}

// fewCounts is how many rows are printed without CountOptions.All.
const fewCounts = 20

// PrintCounts writes a table of the probes that were hit, the most frequent first, in one Write. A last line says how many probes are not in it. Of several
// processes there is a table, too.
func PrintCounts(w io.Writer, s *Summary, o CountOptions) error {
	var b []byte
	rows, more, unhit := chooseCounts(s.Probes, o.All)
	if len(rows) > 0 {
		b = appendCounts(b, rows)
	}
	b = append(b, restOfCounts(more, unhit)...)
	if more+unhit > 0 {
		b = appendUnoptimized(b, s)
	}
	if len(s.Processes) > 0 {
		most := mostProcesses
		if o.All {
			most = len(s.Processes)
		}
		b = appendProcesses(append(b, '\n'), s, most)
	}
	b = cutLines(appendLostText(b, s), o.Columns)
	n, err := w.Write(b)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	if err != nil {
		return fmt.Errorf("counts not written: %w", err)
	}
	return nil
}

// chooseCounts sorts the probes and takes those to print. more were hit too, unhit were not. A probe that has only missed hits was hit.
func chooseCounts(probes []ProbeSummary, all bool) (rows []ProbeSummary, more, unhit int) {
	rows = slices.Clone(probes)
	slices.SortStableFunc(rows, func(a, b ProbeSummary) int {
		return cmp.Or(cmp.Compare(b.Hits, a.Hits), cmp.Compare(b.NMissed, a.NMissed), cmp.Compare(a.Probe, b.Probe), cmp.Compare(a.Addr, b.Addr))
	})
	if all {
		return rows, 0, 0
	}
	hit := slices.IndexFunc(rows, func(p ProbeSummary) bool { return p.Hits == 0 && p.NMissed == 0 })
	if hit < 0 {
		hit = len(rows)
	}
	n := min(hit, fewCounts)
	return rows[:n], hit - n, len(rows) - hit
}

// appendCounts writes rows with their numbers lined up at the right.
func appendCounts(b []byte, rows []ProbeSummary) []byte {
	hits, missed := len("HITS"), len("MISSED")
	for i := range rows {
		hits = max(hits, len(strconv.FormatUint(rows[i].Hits, 10)))
		missed = max(missed, len(strconv.FormatUint(rows[i].NMissed, 10)))
	}
	table := [][]string{{fmt.Sprintf("%*s", hits, "HITS"), fmt.Sprintf("%*s", missed, "MISSED"), "PROBE", "MECHANISM"}}
	for i := range rows {
		p := &rows[i]
		table = append(table, []string{fmt.Sprintf("%*d", hits, p.Hits), fmt.Sprintf("%*d", missed, p.NMissed), countedName(p), mechanismText(p)})
	}
	return appendTable(b, table)
}

// countedName is a probe's name, followed by its place if the name does not say it.
func countedName(p *ProbeSummary) string {
	h := Hit{Probe: p.Probe, Kind: p.Kind, Symbol: p.Symbol}
	h.Module, _, _ = strings.Cut(p.Probe, ":")
	return string(appendPlace(appendSafe(nil, p.Probe), &h))
}

// restOfCounts is a line about the probes that are not printed; empty if all are.
func restOfCounts(more, unhit int) string {
	var told []string
	if more > 0 {
		told = append(told, were(more, "more probe")+" hit")
	}
	if unhit > 0 {
		told = append(told, were(unhit, "probe")+" not hit")
	}
	if len(told) == 0 {
		return ""
	}
	return strings.Join(told, ", ") + "; -all-rows prints all\n"
}

// appendUnoptimized is lines that say how many probes are not optimized, and why: those that cost most may not be among the rows.
func appendUnoptimized(b []byte, s *Summary) []byte {
	n := uint64(0)
	for _, why := range s.Unoptimized {
		n += why.N
	}
	for i, why := range s.Unoptimized {
		if i == fewReasons && len(s.Unoptimized) > fewReasons+1 {
			return fmt.Appendf(b, "%d more are not optimized, for %d other reasons\n", n, len(s.Unoptimized)-i)
		}
		n -= why.N
		b = fmt.Appendf(b, "%d of %s: not optimized, a hit stops the thread: ", why.N, escape.Count(len(s.Probes), "probe"))
		b = append(appendSafe(b, why.Reason), '\n')
	}
	return b
}

// fewReasons is how many reasons are printed.
const fewReasons = 5

func were(n int, noun string) string {
	if n == 1 {
		return "1 " + noun + " was"
	}
	return fmt.Sprintf("%d %ss were", n, noun)
}

// cutLines cuts each line behind its first columns characters, so that a terminal shows it as one.
func cutLines(b []byte, columns int) []byte {
	if columns <= 0 {
		return b
	}
	var out []byte
	for line := range bytes.Lines(b) {
		line = bytes.TrimSuffix(line, []byte("\n"))
		if utf8.RuneCount(line) > columns {
			line = append([]byte(string([]rune(string(line))[:columns-1])), "…"...)
		}
		out = append(append(out, line...), '\n')
	}
	return out
}
