package debugfs

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/gokprobe/gokprobe/debugfs/dynevent"
	"github.com/gokprobe/gokprobe/debugfs/format"
	"github.com/gokprobe/gokprobe/debugfs/trigger"
	"github.com/gokprobe/gokprobe/expr/caret"
	"github.com/gokprobe/gokprobe/expr/fetch"
	"github.com/gokprobe/gokprobe/expr/filter"
)

// event has a directory in tracing/events: it is one probe, or several that record the
// same arguments. Tree.mu guards the fields that change, except quiet, filter and
// triggers, which hits read.
type event struct {
	tree        *Tree
	family      dynevent.Family
	kind        dynevent.Kind
	group, name string
	id          int
	args        []fetch.Arg
	synthetic   *trigger.Synthetic // nil: the event has probes
	fields      []fetch.Field      // of a hit's values: see common

	queried []fetch.Field // fields, and what filters and triggers know besides

	probes []*probe
	on     bool        // they are
	live   atomic.Bool // what on is, for hits of an event without probes
	soft   bool        // triggers want them to be
	stacks bool        // triggers, or options/stacktrace, want to know the stack

	quiet    atomic.Bool // hits do nothing but run triggers (EVENT_FILE_FL_SOFT_DISABLED)
	filter   atomic.Pointer[filter.Filter]
	triggers *trigger.Set

	refused *caret.Error // why the last filter was, if there is none
}

// common are the fields that all events have, in front of the address and the arguments.
var common = []fetch.Field{
	{Name: "common_type", Type: fetch.Type{Name: "u16", Size: 2}},
	{Name: "common_flags", Type: fetch.Type{Name: "u8", Size: 1}},
	{Name: "common_preempt_count", Type: fetch.Type{Name: "u8", Size: 1}},
	{Name: "common_pid", Type: fetch.Type{Name: "s32", Kind: fetch.Signed, Size: 4}},
}

var processorType = fetch.Type{Name: "s32", Kind: fetch.Signed, Size: 4}

// generic are fields that events do not record and that can be asked for (trace_define_generic_fields).
var generic = []fetch.Field{
	{Name: "CPU", Type: processorType},
	{Name: "cpu", Type: processorType},
	{Name: "common_cpu", Type: processorType},
	{Name: "COMM", Type: fetch.Type{Name: "string", Kind: fetch.String}},
	{Name: "comm", Type: fetch.Type{Name: "string", Kind: fetch.String}},
}

func newEvent(t *Tree, d *dynevent.Definition) *event {
	ev := &event{tree: t, family: d.Family, kind: d.Kind, group: d.Group, name: d.Event, args: d.Args}
	ev.fields = append(ev.fields, common...)
	for _, name := range ev.addresses() {
		ev.fields = append(ev.fields, fetch.Field{Name: name, Type: fetch.Type{Name: "x64", Kind: fetch.Hex, Size: 8}})
	}
	ev.fields = append(ev.fields, fetch.Fields(d.Args)...)
	ev.join()
	return ev
}

// join makes what an event with a name and fields has besides.
func (ev *event) join() {
	t := ev.tree
	t.lastID++
	ev.id = t.lastID
	ev.stacks = t.stacks.Load()
	ev.queried = append(slices.Clone(ev.fields), generic...)
	ev.triggers = t.triggers.Add(trigger.Event{System: ev.group, Name: ev.name, Fields: ev.queried})
}

// addresses are the names of the fields that say where.
func (ev *event) addresses() []string {
	if ev.kind == dynevent.Return {
		return []string{"__probe_func", "__probe_ret_ip"}
	}
	return []string{"__probe_ip"}
}

// firstArg is the index of the first argument among the fields.
func (ev *event) firstArg() int { return len(ev.fields) - len(ev.args) }

// path is the event's name in the files.
func (ev *event) path() string { return ev.group + ":" + ev.name }

// appendBody appends what stands behind an entry's time: the event's name, where, and the
// arguments (kernel/trace/trace_kprobe.c, print_kprobe_event).
func (ev *event) appendBody(b []byte, e *entry) []byte {
	b = append(b, ev.name...)
	if ev.synthetic != nil {
		return ev.synthetic.Append(append(b, ':'), e.values)
	}
	at := e.values[:len(e.values)-len(ev.args)]
	switch {
	case ev.family == dynevent.Uprobe && ev.kind == dynevent.Return:
		b = fmt.Appendf(b, ": (%#x <- %#x)", at[1].U, at[0].U)
	case ev.family == dynevent.Uprobe:
		b = fmt.Appendf(b, ": (%#x)", at[0].U)
	case ev.kind == dynevent.Return:
		name, _, _ := strings.Cut(at[0].S, "+0x")
		b = fmt.Appendf(b, ": (%s <- %s)", at[1].S, name)
	default:
		b = fmt.Appendf(b, ": (%s)", at[0].S)
	}
	for i, a := range ev.args {
		b = a.AppendTo(append(b, ' '), e.values[len(at)+i])
	}
	return b
}

func (ev *event) idText() string { return fmt.Sprintf("%d\n", ev.id) }

func (ev *event) format() string { return format.Text(ev.name, ev.id, ev.fields) }

// event is the event of a name, nil if there is none.
func (t *Tree) event(group, name string) *event {
	for _, ev := range t.events {
		if ev.group == group && ev.name == name {
			return ev
		}
	}
	return nil
}
