package dynevent

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gokprobe/gokprobe/expr/arg"
	"github.com/gokprobe/gokprobe/expr/fetch"
)

// Kind is what a line asks for.
type Kind uint8

// The kinds.
const (
	Probe  Kind = iota // p: an event when an instruction is about to run
	Return             // r, %return: an event when a function returns
	Delete             // -: and, in dynamic_events, !
)

// Family is which of the files an event is of.
type Family uint8

// The families.
const (
	Kprobe Family = iota // at a symbol or address
	Uprobe               // at an offset of a file
	Either               // of a Delete in dynamic_events
)

// System is who complains of commands of the family, in error_log.
func (f Family) System() string {
	if f == Uprobe {
		return "trace_uprobe"
	}
	return "trace_kprobe"
}

// Group is the family's default group.
func (f Family) Group() string {
	if f == Uprobe {
		return "uprobes"
	}
	return "kprobes"
}

// Definition is one line.
type Definition struct {
	Family     Family
	Kind       Kind
	MaxActive  int  // of a Return: calls in flight that are followed; 0: not told, the default
	HasMax     bool // MaxActive was in the line
	Group      string
	Event      string
	GroupGiven bool // by the line; a Delete without is about every group
	EventGiven bool // by the line; a Delete without is about every event

	Module string // of a Kprobe, empty if the line names none
	Symbol string // of a Kprobe; empty: Addr
	Offset uint64 // bytes behind Symbol
	Addr   uint64 // of a Kprobe without a Symbol

	Path       string // of a Uprobe
	FileOffset uint64 // of a Uprobe: bytes
	Ref        uint64 // of a Uprobe: the file offset of a 16-bit semaphore
	HasRef     bool

	Args []fetch.Arg

	Exact bool     // of a Delete: Rest must match
	Rest  []string // of a Delete: the place and the arguments, as they are listed

	words       []string // the command
	argWords    []int    // the words of the Args
	groupColumn int
	eventColumn int
}

// Command is the line as error_log prints it: its words, one blank between them.
func (d *Definition) Command() string { return strings.Join(d.words, " ") }

// Name is Group/Event.
func (d *Definition) Name() string { return d.Group + "/" + d.Event }

// Place is the probed place as it is listed: [MOD:]SYM[+OFFS] or 0xADDR, the offset decimal;
// PATH:0xOFFSET[(0xREF)].
func (d *Definition) Place() string {
	switch {
	case d.Family == Uprobe && d.HasRef:
		return fmt.Sprintf("%s:0x%016x(%#x)", d.Path, d.FileOffset, d.Ref)
	case d.Family == Uprobe:
		return fmt.Sprintf("%s:0x%016x", d.Path, d.FileOffset)
	case d.Symbol == "":
		return fmt.Sprintf("%#x", d.Addr)
	case d.Offset != 0:
		return fmt.Sprintf("%s+%d", d.Spec(), d.Offset)
	}
	return d.Spec()
}

// Spec is [MOD:]SYM.
func (d *Definition) Spec() string {
	if d.Module == "" {
		return d.Symbol
	}
	return d.Module + ":" + d.Symbol
}

// String is the line by which d is listed, and which defines it. Of a Delete it is the command.
func (d *Definition) String() string {
	if d.Kind == Delete {
		return d.Command()
	}
	var b strings.Builder
	b.WriteByte("pr"[d.Kind])
	if d.Kind == Return && d.MaxActive > 0 {
		fmt.Fprint(&b, d.MaxActive)
	}
	fmt.Fprintf(&b, ":%s %s", d.Name(), d.Place())
	for _, a := range d.Args {
		fmt.Fprintf(&b, " %s=%s", a.Name, a.Text)
	}
	return b.String()
}

// Deletes tells whether d, a Delete, is about o, an event's definition.
func (d *Definition) Deletes(o *Definition) bool {
	if d.Family != Either && d.Family != o.Family ||
		d.GroupGiven && d.Group != o.Group || d.EventGiven && d.Event != o.Event {
		return false
	}
	listed := strings.Fields(o.String())[1:]
	return len(d.Rest) <= len(listed) && slices.Equal(d.Rest, listed[:len(d.Rest)])
}

// Joins tells why d can't become one more probe of the event that the siblings are probes of, all by the same name
// (EVENT_EXIST, DIFF_PROBE_TYPE, DIFF_ARG_TYPE or SAME_PROBE; all match EEXIST), or nil.
func (d *Definition) Joins(siblings []*Definition) error {
	if len(siblings) == 0 {
		return nil
	}
	first := siblings[0]
	switch {
	case d.Family != first.Family:
		return d.Error("EVENT_EXIST", PartCommand)
	case d.Kind != first.Kind:
		return d.Error("DIFF_PROBE_TYPE", PartCommand)
	}
	if n, same := d.sameArgs(first); !same {
		return d.Error("DIFF_ARG_TYPE", PartArg+Part(n))
	}
	if slices.ContainsFunc(siblings, d.same) {
		return d.Error("SAME_PROBE", PartCommand)
	}
	return nil
}

// sameArgs compares names and types, and tells which argument is the first that differs.
func (d *Definition) sameArgs(o *Definition) (n int, same bool) {
	if len(d.Args) != len(o.Args) {
		return min(len(d.Args), len(o.Args)), false
	}
	for i, a := range d.Args {
		if a.Name != o.Args[i].Name || stored(a.Type) != stored(o.Args[i].Type) {
			return i, false
		}
	}
	return 0, true
}

// stored is what a type's values are in a record: bit fields are numbers of their container's size.
func stored(t fetch.Type) fetch.Type {
	if !t.IsBits() {
		return t
	}
	s, _ := arg.TypeOf(fmt.Sprintf("u%d", 8*t.Size))
	s.Count = t.Count
	return s
}

// same tells whether d, of the same kind as o, records the same at the same place.
func (d *Definition) same(o *Definition) bool {
	return d.Place() == o.Place() && slices.EqualFunc(d.Args, o.Args, func(a, b fetch.Arg) bool { return a.Text == b.Text })
}
