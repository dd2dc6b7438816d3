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
}

// ready tells whether a handler is to run at all.
func (p *probe) ready() bool { return p.enabled && !p.broken && !p.s.over }

// context makes ctx for one handler.
func (p *probe) context(at *site, h hit, m moment) *hitContext {
	return &hitContext{script: p.s, site: at, at: m, hit: h, tid: h.TID(), time: time.Now()}
}

// handler calls a function of the scenario with a hit.
func (c *hitContext) handler(fn starlark.Callable) (starlark.Value, error) {
	p := c.site.probe
	defer func() { c.hit = nil }()
	v, err := p.s.call(p.what(momentNames[c.at]), p.s.o.Steps, fn, c)
	if err != nil {
		p.fails(err)
	}
	return v, err
}

// runPre is the PreHandler at a place.
func (p *probe) runPre(at *site, h hit) int {
	if !p.ready() {
		return 0
	}
	c := p.context(at, h, atPre)
	if keep, err := c.fetch(nil); err != nil || !keep {
		if err != nil {
			p.fails(err)
		}
		return 0
	}
	p.handled++
	_, _ = c.handler(p.pre) // told already
	if c.returned {
		return 1
	}
	return 0
}

// runPost is the PostHandler at a place.
func (p *probe) runPost(at *site, h hit) {
	if p.ready() {
		_, _ = p.context(at, h, atPost).handler(p.post)
	}
}

// runEntry is the EntryHandler at a place: it notes what the return wants to know.
func (p *probe) runEntry(at *site, ri *kprobes.KretprobeInstance, h hit) int {
	if !p.ready() {
		return 1
	}
	c := p.context(at, h, atEntry)
	c.call = &followed{at: ri}
	c.note()
	if p.entry != nil {
		v, err := c.handler(p.entry)
		if err != nil || c.returned || v == starlark.False {
			return 1
		}
	}
	p.s.remember(ri, c.call)
	return 0
}

// note keeps facts that are known at the entry only.
func (c *hitContext) note() {
	if c.site.probe.ret == nil {
		return
	}
	for _, name := range c.site.abi(c.script).Args {
		v, _ := c.hit.Get(name)
		c.call.args = append(c.call.args, v)
	}
	if params, err := c.params(); err == nil && c.script.source.useArgs() {
		c.call.params = map[string]starlark.Value{}
		for _, p := range params {
			c.call.params[p.Name], _ = typed(p, c.hit)
		}
	}
	if v := c.site.probe.values; v != nil {
		c.call.saved = v.save(c)
	}
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
func (p *probe) runReturn(at *site, ri *kprobes.KretprobeInstance, h hit) {
	call := p.s.calls[binary.NativeEndian.Uint64(ri.Data)]
	if !p.ready() || p.ret == nil || call == nil {
		return
	}
	c := p.context(at, h, atReturn)
	c.call, c.took = call, ri.Took()
	if keep, err := c.fetch(call.saved); err != nil || !keep {
		if err != nil {
			p.fails(err)
		}
		return
	}
	p.handled++
	_, _ = c.handler(p.ret)
}
