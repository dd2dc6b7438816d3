package event

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gokprobe/gokprobe/internal/escape"
	"github.com/gokprobe/gokprobe/trace"
)

// TextOptions chooses how NewText's printer writes. The zero value is plain text
// in local time.
type TextOptions struct {
	Color    bool           // ANSI escape sequences
	Location *time.Location // time zone of the first column; nil is time.Local
	// Message is what the line of a hit says in place of the names and values. nil: these are printed.
	Message func(*Hit) string
}

// Text prints records for people: a line for a hit, and below it an indented
// line for each frame of its stack.
type Text struct {
	lineWriter
	opts       TextOptions
	probeWidth int // of the column, in characters; it grows with the names
}

var _ Printer = (*Text)(nil)

// NewText returns a printer of text on w. The columns are the time of day, the
// thread's name and ID, the probe, and the values of the hit.
func NewText(w io.Writer, opts TextOptions) *Text {
	if opts.Location == nil {
		opts.Location = time.Local
	}
	return &Text{lineWriter: lineWriter{w: w}, opts: opts}
}

const (
	threadWidth   = 15 + 1 + 7 // the longest comm, a dash, the largest thread id
	maxProbeWidth = 40         // demangled names can be longer than a screen
	maxCellWidth  = 60         // of a summary's column

	styleTime   = "\x1b[2m"
	styleThread = "\x1b[36m"
	styleProbe  = "\x1b[1m"
	styleRet    = "\x1b[33m"
	styleInject = "\x1b[31m"
	styleReset  = "\x1b[0m"
)

// Hit writes h as one line, followed by its stack.
func (p *Text) Hit(h *Hit) error {
	return p.put(true, func(b []byte) []byte { return p.appendHit(b, h) })
}

func (p *Text) appendHit(b []byte, h *Hit) []byte {
	b = p.style(b, styleTime)
	b = h.Time.In(p.opts.Location).AppendFormat(b, "15:04:05.000000000")
	b = p.style(b, styleReset)

	b = p.style(append(b, "  "...), styleThread)
	at := len(b)
	b = append(appendName(b, h.Comm), '-')
	b = strconv.AppendInt(b, int64(h.TID), 10)
	b = pad(b, at, threadWidth)
	b = p.style(b, styleReset)

	b = p.style(append(b, "  "...), styleProbe)
	at = len(b)
	b = appendSafe(b, h.Probe)
	p.probeWidth = min(max(p.probeWidth, utf8.RuneCount(b[at:])), maxProbeWidth)
	b = pad(b, at, p.probeWidth)
	b = p.style(b, styleReset)

	if p.opts.Message != nil {
		return append(trimSpace(escape.Append(append(b, ' '), p.opts.Message(h))), '\n')
	}
	b = appendPlace(b, h)
	for i := range h.Args {
		b = appendSafe(append(b, ' '), h.Args[i].Name)
		b = h.Args[i].Append(append(b, '='))
	}
	b = appendVariables(b, " locals{", h.Locals)
	b = appendVariables(b, " globals{", h.Globals)
	b = p.appendReturn(b, h)
	b = p.appendInjected(b, h.Injected)
	b = append(trimSpace(b), '\n')
	for i := range h.Stack {
		b = appendFrameText(b, i, &h.Stack[i])
	}
	return b
}

// appendPlace names the place of a hit where the probe's name does not: for a
// line, an address, a pattern.
func appendPlace(b []byte, h *Hit) []byte {
	name := strings.TrimSuffix(h.Probe, trace.ReturnSuffix)
	if module, rest, ok := strings.Cut(name, ":"); ok && module == h.Module {
		name = rest
	}
	if h.Symbol == "" || h.Symbol == name || h.Symbol == name+"+0x0" {
		return b
	}
	if h.Kind == "kretprobe" && strings.HasPrefix(h.Symbol, name+"+0x") {
		return b // behind the check of the stack with which a Go function begins
	}
	return append(appendName(append(b, " ("...), h.Symbol), ')')
}

func (p *Text) appendReturn(b []byte, h *Hit) []byte {
	if len(h.Results) > 0 || h.Ret != nil && h.Results == nil {
		b = p.style(append(b, ' '), styleRet)
		b = append(b, "ret="...)
		if h.Results == nil {
			b = strconv.AppendInt(b, *h.Ret, 10)
		} else {
			b = appendResults(b, h.Results)
		}
		b = p.style(b, styleReset)
	}
	if h.Duration != nil {
		b = appendDuration(append(append(b, " duration="...), h.DurationMark()...), *h.Duration)
	}
	return b
}

// appendInjected appends the actions on an injected call.
func (p *Text) appendInjected(b []byte, in *Injected) []byte {
	if in == nil {
		return b
	}
	b = p.style(append(b, ' '), styleInject)
	b = append(b, "=> "...)
	if in.DryRun {
		b = append(b, "would "...)
	}
	b = appendSafe(b, strings.Join(in.Actions, ", "))
	return p.style(b, styleReset)
}

// appendResults writes several results in parentheses, with their names if the source
// has some.
func appendResults(b []byte, results []Arg) []byte {
	if len(results) == 1 {
		return results[0].Append(b)
	}
	b = append(b, '(')
	for i := range results {
		if i > 0 {
			b = append(b, ", "...)
		}
		if name := results[i].Name; !strings.HasPrefix(name, "~") { // Go's ~r0, ~r1 …
			b = append(appendSafe(b, name), '=')
		}
		b = results[i].Append(b)
	}
	return append(b, ')')
}

// appendFrameText writes a frame as a debugger does: "#1  0x… in foo+0x12 (prog) at file.c:42".
func appendFrameText(b []byte, n int, f *Frame) []byte {
	at := len(b)
	b = strconv.AppendInt(append(b, "    #"...), int64(n), 10)
	b = pad(b, at, len("    #99"))
	b = appendHex(append(b, ' '), uint64(f.Addr))
	if f.Symbol != "" {
		b = appendName(append(b, " in "...), f.Symbol)
	}
	if f.Module != "" {
		b = append(appendName(append(b, " ("...), f.Module), ')')
	}
	if f.File != "" {
		b = appendName(append(b, " at "...), f.File)
		b = strconv.AppendInt(append(b, ':'), int64(f.Line), 10)
	}
	return append(b, '\n')
}

// appendDuration writes d in the largest unit that it fills, with three decimals.
func appendDuration(b []byte, d time.Duration) []byte {
	unit, name := time.Second, "s"
	switch abs := d.Abs(); {
	case abs < time.Microsecond:
		return append(strconv.AppendInt(b, int64(d), 10), "ns"...)
	case abs < time.Millisecond:
		unit, name = time.Microsecond, "µs"
	case abs < time.Second:
		unit, name = time.Millisecond, "ms"
	}
	return append(strconv.AppendFloat(b, float64(d)/float64(unit), 'f', 3, 64), name...)
}

// pad fills up what b holds from at on to width characters.
func pad(b []byte, at, width int) []byte {
	for n := utf8.RuneCount(b[at:]); n < width; n++ {
		b = append(b, ' ')
	}
	return b
}

func trimSpace(b []byte) []byte {
	for len(b) > 0 && b[len(b)-1] == ' ' {
		b = b[:len(b)-1]
	}
	return b
}

func (p *Text) style(b []byte, seq string) []byte {
	if !p.opts.Color {
		return b
	}
	return append(b, seq...)
}

// Summary writes s as a table with a line for each probe.
func (p *Text) Summary(s *Summary) error {
	return p.put(false, func(b []byte) []byte { return appendSummaryText(b, s) })
}

func appendSummaryText(b []byte, s *Summary) []byte {
	b = appendFaultsText(b, s.Faults)
	if s.Processes != nil {
		return appendLostText(appendProcessesText(b, s), s)
	}
	rows := [][]string{{"PROBE", "KIND", "ADDRESS", "SYMBOL", "HITS", "MISSED", "MECHANISM"}}
	for i := range s.Probes {
		p := &s.Probes[i]
		rows = append(rows, []string{
			string(appendSafe(nil, p.Probe)), string(appendSafe(nil, p.Kind)), string(appendHex(nil, uint64(p.Addr))), string(appendSafe(nil, p.Symbol)),
			strconv.FormatUint(p.Hits, 10), strconv.FormatUint(p.NMissed, 10), mechanismText(p),
		})
	}
	return appendLostText(appendTable(b, rows), s)
}

// appendLostText tells of what is missing, and why.
func appendLostText(b []byte, s *Summary) []byte {
	for i := range s.Probes {
		if p := &s.Probes[i]; len(p.Misses) > 0 {
			b = append(appendSafe(b, p.Probe), " missed "...)
			b = append(strconv.AppendUint(b, p.NMissed, 10), ": "...)
			b = append(appendLosses(b, p.Misses), '\n')
		}
	}
	for i := range s.Probes {
		if p := &s.Probes[i]; p.Active > 0 {
			b = append(appendSafe(append(b, "calls that have not returned: "...), p.Probe), " ("...)
			b = append(strconv.AppendUint(b, p.Active, 10), ")\n"...)
		}
	}
	if len(s.Skipped) > 0 {
		b = append(appendLosses(append(b, "places that are not probed: "...), s.Skipped), '\n')
	}
	if len(s.Losses) > 0 {
		b = append(appendLosses(append(b, "records lost: "...), s.Losses), '\n')
	}
	if s.Lost > 0 {
		b = append(append(b, escape.Count(s.Lost, "record")...), " could not be written\n"...)
	}
	return b
}

// appendLosses lists reasons with their numbers.
func appendLosses(b []byte, all []Loss) []byte {
	for i, l := range all {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(appendSafe(b, l.Reason), " ("...)
		b = append(strconv.AppendUint(b, l.N, 10), ')')
	}
	return b
}

// mostProcesses is how many processes a summary lists.
const mostProcesses = 20

// appendProcessesText appends the summary of several processes. The first table has the sums
// of each probe, without an address, which differs by process. The second has a line for
// each process, the one with the most hits first.
func appendProcessesText(b []byte, s *Summary) []byte {
	rows := [][]string{{"PROBE", "KIND", "HITS", "MISSED"}}
	for i := range s.Probes {
		p := &s.Probes[i]
		rows = append(rows, append([]string{string(appendSafe(nil, p.Probe)), string(appendSafe(nil, p.Kind))}, numbers(p.Hits, p.NMissed)...))
	}
	return appendProcesses(append(appendTable(b, rows), '\n'), s, mostProcesses)
}

// appendProcesses writes a table of the processes with the most hits, and how many others there are.
func appendProcesses(b []byte, s *Summary, most int) []byte {
	all := slices.SortedStableFunc(slices.Values(s.Processes), func(a, b ProcessSummary) int {
		return cmp.Or(cmp.Compare(b.injected(), a.injected()), cmp.Compare(b.Hits, a.Hits))
	})
	columns := []string{"HITS", "MISSED"}
	if s.Faults != nil {
		columns = []string{"CALLS", "ELIGIBLE", "INJECTED", "REFUSED", "MISSED"}
	}
	rows := [][]string{append([]string{"PROCESS", "NAME"}, columns...)}
	for i := range all[:min(len(all), most)] {
		p := &all[i]
		rows = append(rows, append([]string{strconv.Itoa(p.PID), string(appendName(nil, p.Comm))}, p.counts(s.Faults != nil)...))
	}
	b = appendTable(b, rows)
	rest := all[min(len(all), most):]
	if len(rest) == 0 {
		return b
	}
	var hits, injected uint64
	for i := range rest {
		hits, injected = hits+rest[i].Hits, injected+rest[i].injected()
	}
	told := escape.Count(hits, "hit")
	if s.Faults != nil {
		told = fmt.Sprintf("%s, %d injected", escape.Count(hits, "call"), injected)
	}
	return fmt.Appendf(b, "%s: %s (-format json has them all)\n", escape.Count(len(rest), "more process"), told)
}

// counts is the numbers of a process's row.
func (p *ProcessSummary) counts(faults bool) []string {
	if !faults {
		return numbers(p.Hits, p.NMissed)
	}
	var all FaultSummary
	for i := range p.Faults {
		f := &p.Faults[i]
		all.Calls, all.Eligible, all.Injected = all.Calls+f.Calls, all.Eligible+f.Eligible, all.Injected+f.Injected
		all.Refused, all.Missed = all.Refused+f.Refused, all.Missed+f.Missed
	}
	return all.counts()
}

// injected is how many calls of a process were made to fail.
func (p *ProcessSummary) injected() (n uint64) {
	for i := range p.Faults {
		n += p.Faults[i].Injected
	}
	return n
}

func (f *FaultSummary) counts() []string {
	return numbers(f.Calls, f.Eligible, f.Injected, f.Refused, f.Missed)
}

func numbers(all ...uint64) []string {
	cells := make([]string, len(all))
	for i, n := range all {
		cells[i] = strconv.FormatUint(n, 10)
	}
	return cells
}

// mechanismText is a probe's mechanism, and in brackets why it is no jump.
func mechanismText(p *ProbeSummary) string {
	b := appendSafe(nil, p.Mechanism)
	if p.Reason != "" {
		b = append(appendSafe(append(b, " (not optimized: "...), p.Reason), ')')
	}
	if p.Decides != "" {
		b = append(appendSafe(append(b, ", the "...), p.Decides), " decides"...)
	}
	return string(b)
}

// appendFaultsText writes a table with a line for each fault.
func appendFaultsText(b []byte, faults []FaultSummary) []byte {
	if len(faults) == 0 {
		return b
	}
	rows := [][]string{{"FAULT", "CALLS", "ELIGIBLE", "INJECTED", "REFUSED", "MISSED", "WHAT"}}
	for i := range faults {
		f := &faults[i]
		var what []string
		for _, a := range f.Actions {
			what = append(what, string(appendSafe(nil, a.Action))+": "+strconv.FormatUint(a.N, 10))
		}
		if f.DryRun {
			what = append(what, "dry run, nothing was done")
		}
		rows = append(rows, slices.Concat([]string{string(appendSafe(nil, f.Fault))}, f.counts(), []string{strings.Join(what, ", ")}))
	}
	return appendTable(b, rows)
}

// appendTable lines up the columns of rows, which have equally many cells. A cell that is
// too wide moves the rest of its own row only.
func appendTable(b []byte, rows [][]string) []byte {
	widths := make([]int, len(rows[0])-1) // the last column ends at the line's end
	for _, row := range rows {
		for i := range widths {
			widths[i] = max(widths[i], min(utf8.RuneCountInString(row[i]), maxCellWidth))
		}
	}
	for _, row := range rows {
		for i, width := range widths {
			at := len(b)
			b = append(pad(append(b, row[i]...), at, width), "  "...)
		}
		b = append(append(b, row[len(widths)]...), '\n')
	}
	return b
}

// appendVariables adds variables in brackets, nothing for nil.
func appendVariables(b []byte, open string, all []Arg) []byte {
	if all == nil {
		return b
	}
	b = append(b, open...)
	for i := range all {
		if i > 0 {
			b = append(b, ' ')
		}
		b = all[i].Append(append(appendSafe(b, all[i].Name), '='))
	}
	return append(b, '}')
}
