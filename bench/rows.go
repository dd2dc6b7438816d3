package bench

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// row is one line of the table: a measurement, the floor that it is compared with in
// the same rounds, and the goal of their ratio.
type row struct {
	name    string
	what    string
	measure measure

	floor     measure
	floorName string
	goal      float64 // 0 for none
	atLeast   bool    // the ratio is to be goal at least, else at most

	doc documented
}

// documented is a figure of the kernel's document (Documentation/trace/kprobes.rst, Probe
// Overhead): of its Xeon E5410, x86-64, and for jprobes and two probes at once of the
// Opteron 246 in its older editions.
type documented struct {
	usec float64 // 0 if the document has none
	over string  // the row that the figure is compared with
	of   float64 // and that row's figure on the same machine
}

// About how many calls a round has: so many that it takes some tenths of a second at most.
const (
	stopCalls   = 10_000
	kernelCalls = 50_000
	upcallCalls = 100_000
	targetCalls = 10_000_000
	crowdCalls  = targetCalls / crowdSize
	crowdSize   = 8
	recordCalls = portions * 20_000
	singleCalls = 500
)

func stopped(noBoost bool, places ...string) measure {
	return measure{Kind: probed, Function: "foo", Threads: 1, Calls: stopCalls, Places: places, NoBoost: noBoost}
}

func upcall(l load, places ...string) measure {
	m := measure{Kind: probed, Function: "foo", Threads: 1, Calls: upcallCalls, Places: places, Optimize: true, Load: l}
	if l != free {
		m.Calls = stopCalls
	}
	return m
}

func inTarget(fn, place string) measure {
	return measure{Kind: probed, Function: fn, Threads: 1, Calls: targetCalls, OwnTime: true, Places: []string{place}, Optimize: true}
}

// recording fills the ring, which is of 4 MiB, once before it measures, and no portion fills
// more than a part of it.
func recording() measure { return recorded("record") }

func recorded(place string) measure {
	m := inTarget("foo", place)
	m.Calls, m.Warm = recordCalls, 6
	return m
}

func (m measure) crowded() measure { m.Threads, m.Calls = crowdSize, crowdCalls; return m }

func (m measure) under(l load) measure { m.Load = l; return m }

func hand(fn string) measure {
	return measure{Kind: byHand, Function: fn, Threads: 1, Calls: targetCalls, OwnTime: true}
}

func loop(w work) measure {
	return measure{Kind: ptraceLoop, Threads: 1, Calls: stopCalls, Work: w}
}

func kernels(fn string, ret bool) measure {
	return measure{Kind: kernelProbe, Function: fn, Threads: 1, Calls: kernelCalls, OwnTime: true, Return: ret}
}

// table is all rows.
func table() []row {
	jump := row{name: "jump", what: "a hand-written detour that does nothing", measure: hand("foo_jump"),
		floor: hand("foo"), floorName: "no probe"}
	return slices.Concat([]row{jump}, breakpointRows(), optimizedRows(), decidedRows(), kernelRows(), batchRows())
}

func breakpointRows() []row {
	r := func(name, what string, m measure, w work, doc documented) row {
		return row{name: name, what: what, measure: m, floor: loop(w), floorName: w.String(), goal: 1.25, doc: doc}
	}
	call := work{2, 1, true}
	return []row{
		r("k", "kprobe, stepped", stopped(true, "kprobe"), work{1, 2, false}, documented{usec: 0.99}),
		r("b", "kprobe, boosted", stopped(false, "kprobe"), work{1, 1, false}, documented{0.43, "k", 0.99}),
		r("r", "kretprobe, stepped", stopped(true, "kretprobe"), work{2, 2, true}, documented{1.24, "k", 0.99}),
		r("rb", "kretprobe, boosted", stopped(false, "kretprobe"), call, documented{0.68, "b", 0.43}),
		r("j", "jprobe", stopped(false, "jprobe"), work{1, 1, false}, documented{0.76, "b", 0.49}),
		r("kr", "kprobe and kretprobe", stopped(false, "kprobe", "kretprobe"), call, documented{0.82, "b", 0.49}),
		r("jr", "jprobe and kretprobe", stopped(false, "jprobe", "kretprobe"), call, documented{1.07, "b", 0.49}),
	}
}

func optimizedRows() []row {
	b := stopped(false, "kprobe")
	count, o := inTarget("foo", "count"), upcall(free, "kprobe")
	return []row{
		{name: "o-upcall", what: "optimized, Go handler, a free second processor", measure: o,
			floor: b, floorName: "b", goal: 0.1, doc: documented{0.06, "b", 0.43}},
		{name: "o-busy", what: "the same, second processor busy", measure: upcall(busy, "kprobe"),
			floor: b.under(busy), floorName: "b, busy too", goal: 1.5},
		{name: "o-one", what: "the same, only one processor", measure: upcall(oneProcessor, "kprobe"),
			floor: b.under(oneProcessor), floorName: "b, only one too", goal: 1.5},
		{name: "o-count", what: "optimized, count in the target", measure: count,
			floor: hand("foo_count"), floorName: "hand-written lock inc", goal: 1.2},
		{name: "o-count8", what: "the same, 8 threads at once", measure: count.crowded(),
			floor: count, floorName: "o-count", goal: 2},
		{name: "o-record", what: "optimized, record of time, thread, 2 arguments", measure: recording(),
			floor: hand("foo_record"), floorName: "hand-written record", goal: 1.5},
		{name: "o-values", what: "optimized, record of time, thread, a local variable, a member behind two pointers", measure: recorded("values"),
			floor: recording(), floorName: "o-record", goal: 2},
		{name: "o-decide", what: "optimized, a decision by chance in the target, calls that pass", measure: inTarget("foo", "decide"),
			floor: count, floorName: "o-count", goal: 3},
		{name: "ro-upcall", what: "optimized kretprobe, Go handler", measure: upcall(free, "kretprobe"),
			floor: o, floorName: "o-upcall", goal: 5, doc: documented{0.30, "o-upcall", 0.06}},
		{name: "ro-count", what: "optimized kretprobe, count in the target", measure: inTarget("foo", "count of returns"),
			floor: count, floorName: "o-count", goal: 5, doc: documented{0.30, "o-count", 0.06}},
		{name: "ro-hist", what: "the same, histogram of durations", measure: inTarget("foo", "durations"), floor: count, floorName: "o-count"},
		{name: "ro-record", what: "optimized kretprobe, record of time, thread, result, duration", measure: recorded("record of returns"),
			floor: recording(), floorName: "o-record"},
	}
}

// decidedRows are calls that a rule of package inject lets pass. Where the target decides they
// cost what o-decide does.
func decidedRows() []row {
	call := stopped(false, "rule of calls by stops")
	call.Function = "foo_call"
	return []row{
		{name: "decide-int3", what: "a call that the tracer lets pass, at a breakpoint", measure: stopped(false, "rule"),
			floor: stopped(false, "kprobe"), floorName: "b"},
		{name: "decide-jump", what: "the same, optimized", measure: upcall(free, "rule"),
			floor: upcall(free, "kprobe"), floorName: "o-upcall"},
		{name: "decide-sites", what: "a system call that the target lets pass", measure: inTarget("foo_call", "rule of calls by sites"),
			floor: hand("foo_call"), floorName: "no probe"},
		{name: "decide-ptrace", what: "a system call that the tracer lets pass, by ptrace", measure: call,
			floor: hand("foo_call"), floorName: "no probe"},
	}
}

func kernelRows() []row {
	entries := []struct{ name, fn, what string }{
		{"", "foo", "the same function, stepped"},
		{"-push", "foo_push", "on push, emulated"},
		{"-nop", "foo_nop", "on a 5-byte nop, optimized since Linux 6.18"},
	}
	var rows []row
	for _, e := range entries {
		rows = append(rows, row{name: "u" + e.name, what: "kernel's uprobe, " + e.what, measure: kernels(e.fn, false),
			floor: inTarget(e.fn, "count"), floorName: "o-count there", goal: 15, atLeast: true})
	}
	for _, e := range entries {
		rows = append(rows, row{name: "ur" + e.name, what: "kernel's uretprobe, " + e.what, measure: kernels(e.fn, true),
			floor: inTarget(e.fn, "count of returns"), floorName: "ro-count there"})
	}
	return rows
}

func batchRows() []row {
	r := func(name, what string, m measure) row {
		m.Kind, m.Threads, m.Calls = registering, 1, singleCalls
		batch := m
		batch.Batch, batch.Calls = true, manyFunctions
		return row{name: name, what: "probes " + what + " one by one, each", measure: m,
			floor: batch, floorName: fmt.Sprintf("%d in one call, each", manyFunctions), goal: 20, atLeast: true}
	}
	return []row{
		r("batch-name", "registered by name", measure{ByName: true}),
		r("batch-addr", "registered by address", measure{}),
		r("batch-undo", "unregistered", measure{Undo: true}),
	}
}

// RowInfo names a row of the table.
type RowInfo struct{ Name, What string }

// Rows lists the table's rows in its order.
func Rows() []RowInfo {
	var infos []RowInfo
	for _, r := range table() {
		infos = append(infos, RowInfo{r.name, r.what})
	}
	return infos
}

// ErrUnknownRow tells that no row has the name.
var ErrUnknownRow = errors.New("unknown row")

// choose finds the rows that names mean, in the table's order: a row's name, or the letter
// before the first dash for all that have it. No names mean all rows.
func choose(names []string) ([]row, error) {
	all := table()
	if len(names) == 0 {
		return all, nil
	}
	wanted := make([]bool, len(all))
	for _, name := range names {
		found := false
		for i, r := range all {
			letter, _, _ := strings.Cut(r.name, "-")
			if name == r.name || name == letter {
				wanted[i], found = true, true
			}
		}
		if !found {
			return nil, fmt.Errorf("%w %q", ErrUnknownRow, name)
		}
	}
	var rows []row
	for i, r := range all {
		if wanted[i] {
			rows = append(rows, r)
		}
	}
	return rows, nil
}
