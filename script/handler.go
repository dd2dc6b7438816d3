package script

import (
	"encoding/binary"
	"time"

	"go.starlark.net/starlark"

	"github.com/gokprobe/gokprobe/kprobes"
)

// followed is a call between its entry and its return.
type followed struct {
	data *starlark.Dict
	args []uint64 // those in registers
	// params are the function's, by name, if the probe's ret handler is to know them.
	params map[string]starlark.Value
	saved  []uint64 // of the probe's args
	at     *kprobes.KretprobeInstance
	of     *member
}

// ready tells whether a handler is to run at all.
func (pt *part) ready() bool { return pt.p.wanted() && !pt.p.s.over && !pt.m.left }

// context makes ctx for one handler.
func (pt *part) context(at *site, h hit, m moment) *hitContext {
	return &hitContext{script: pt.p.s, site: at, at: m, hit: h, tid: h.TID(), time: time.Now()}
}

// handler calls a function of the scenario with a hit.
func (c *hitContext) handler(fn starlark.Callable) (starlark.Value, error) {
	pt := c.site.part
	defer func() { c.hit = nil }()
	v, err := c.script.call(pt.m, pt.p.what(momentNames[c.at]), c.script.o.Steps, fn, c)
	if err != nil {
		pt.p.fails(pt.m, err)
	}
	return v, err
}

// runPre is the PreHandler at a place.
func (pt *part) runPre(at *site, h hit) int {
	defer pt.p.s.turn.take(pt.m)()
	if !pt.ready() {
		return 0
	}
	c := pt.context(at, h, atPre)
	if keep, err := c.fetch(nil); err != nil || !keep {
		if err != nil {
			pt.p.fails(pt.m, err)
		}
		return 0
	}
	pt.handled++
	_, _ = c.handler(pt.p.pre) // told already
	if c.returned {
		return 1
	}
	return 0
}

// runPost is the PostHandler at a place.
func (pt *part) runPost(at *site, h hit) {
	defer pt.p.s.turn.take(pt.m)()
	if pt.ready() {
		_, _ = pt.context(at, h, atPost).handler(pt.p.post)
	}
}

// runEntry is the EntryHandler at a place: it notes what the return wants to know.
func (pt *part) runEntry(at *site, ri *kprobes.KretprobeInstance, h hit) int {
	defer pt.p.s.turn.take(pt.m)()
	if !pt.ready() {
		return 1
	}
	c := pt.context(at, h, atEntry)
	c.call = &followed{at: ri, of: pt.m}
	c.note()
	if pt.p.entry != nil {
		v, err := c.handler(pt.p.entry)
		if err != nil || c.returned || v == starlark.False {
			return 1
		}
	}
	pt.p.s.remember(ri, c.call)
	return 0
}

// note keeps facts that are known at the entry only.
func (c *hitContext) note() {
	if c.site.part.p.ret == nil {
		return
	}
	for _, name := range c.site.abi().Args {
		v, _ := c.hit.Get(name)
		c.call.args = append(c.call.args, v)
	}
	if params, err := c.params(); err == nil && c.script.source.useArgs() {
		c.call.params = map[string]starlark.Value{}
		for _, p := range params {
			c.call.params[p.Name], _ = typed(p, c.hit)
		}
	}
	c.call.saved = c.save()
}

// remember keeps a call until it returns. Instances are used again: what they followed
// before has ended, but for forked children, whose copies may still return.
func (s *Script) remember(ri *kprobes.KretprobeInstance, call *followed) {
	last := binary.NativeEndian.Uint64(ri.Data)
	if before := s.calls[last]; before != nil && before.at == ri {
		s.retired = append(s.retired, last)
	}
	if len(s.retired) > keptCalls {
		delete(s.calls, s.retired[0])
		s.retired = s.retired[1:]
	}
	s.lastCall++
	s.calls[s.lastCall] = call
	binary.NativeEndian.PutUint64(ri.Data, s.lastCall)
}

// keptCalls is how many calls that have ended are known to children that were forked in them.
const keptCalls = 4096

// runReturn is the Handler at a place.
func (pt *part) runReturn(at *site, ri *kprobes.KretprobeInstance, h hit) {
	defer pt.p.s.turn.take(pt.m)()
	call := pt.p.s.calls[binary.NativeEndian.Uint64(ri.Data)]
	if !pt.ready() || pt.p.ret == nil || call == nil {
		return
	}
	c := pt.context(at, h, atReturn)
	c.call, c.took = call, ri.Took()
	if keep, err := c.fetch(call.saved); err != nil || !keep {
		if err != nil {
			pt.p.fails(pt.m, err)
		}
		return
	}
	pt.handled++
	_, _ = c.handler(pt.p.ret)
}
