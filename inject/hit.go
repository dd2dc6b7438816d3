package inject

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gokprobe/gokprobe/expr/fetch"
	"github.com/gokprobe/gokprobe/expr/values"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/trace"
)

// Wish lists the values of a call that the rule needs. Its Check finds mistakes before there is a process.
func (r Rule) Wish() values.Wish {
	w := values.Wish{Args: r.Args, Filter: r.If, Params: true, Operands: true, Return: r.After, Syscall: r.Syscall != ""}
	if r.After {
		w.More = values.ReturnFields[:1] // no duration
	}
	if r.Size != "" {
		w.Hidden = []string{hidden(len(w.Args), Operand(r.Size))}
	}
	return w
}

// hidden is an operand as argument number n.
func hidden(n int, o Operand) string { return fmt.Sprintf("__%d=%s", n, o) }

// want binds the rule's actions to the place, and compiles the fetching of all values that the rule needs there.
func (p *place) want() error {
	r := &p.fault.rule
	w := r.Wish()
	if p.shown, p.size = len(r.Args), -1; r.Size != "" {
		p.size = p.shown
	}
	hide := func(o Operand) int {
		at := len(w.Args) + len(w.Hidden)
		w.Hidden = append(w.Hidden, hidden(at, o))
		return at
	}
	for _, a := range r.Do {
		e, err := a.bind(binding{p, hide})
		if err != nil {
			return fmt.Errorf("%s: %w", a, err)
		}
		p.effects = append(p.effects, e)
	}
	if len(w.Args)+len(w.Hidden) == 0 && w.Filter == "" {
		return nil
	}
	var err error
	p.values, err = w.At(p.fault.in.session.Symbols(), values.Place{Addr: p.Addr, Waits: p.Waits})
	var wrong *values.Error
	if errors.As(err, &wrong) {
		wrong.Text = withoutName(wrong.Text)
	}
	return err
}

// withoutName is an argument as the user wrote it.
func withoutName(text string) string {
	if _, bare, ok := strings.Cut(text, "="); ok && strings.HasPrefix(text, "__") {
		return bare
	}
	return text
}

// hit is the PreHandler of a place.
func (p *place) hit(_ *kprobes.Kprobe, regs *kprobes.Regs) int {
	c := &Call{Regs: regs, place: p}
	p.decided(c)
	if c.ended {
		return 1
	}
	return 0
}

// follow makes the Kretprobe of a place.
func (p *place) follow() {
	p.rp = &kprobes.Kretprobe{MaxActive: p.fault.rule.MaxActive}
	if p.rp.MaxActive == 0 {
		p.rp.MaxActive = trace.ManyActive
	}
	p.kp = &p.rp.KP
	if !p.Waits {
		p.results, _ = p.fault.in.session.Symbols().Results(p.Addr) // else the result is a word
	}
	if p.values != nil {
		trace.Keep(p.rp, p.values.Layout)
	}
	p.rp.Handler = func(ri *kprobes.KretprobeInstance, regs *kprobes.Regs) int {
		p.decided(&Call{Regs: regs, place: p, saved: fetch.Kept(ri.Data)})
		return 0
	}
}

// decided decides a call, and injects it if it is chosen.
func (p *place) decided(c *Call) {
	var ok bool
	if c.verdict, ok = p.chosen(c); !ok {
		return
	}
	if p.act(c) {
		p.tell(c)
	}
	p.fault.spent()
}

// act calls the rule's handler and takes its actions, and counts them. It reports whether there is anything to tell in an event.
func (p *place) act(c *Call) bool {
	f := p.fault
	f.mu.Lock()
	c.N = f.injected + 1
	f.mu.Unlock()
	if h := f.rule.Handler; h != nil && !h(c) {
		return false
	}
	done := make([]bool, len(p.effects))
	failed := false
	for i, e := range p.effects {
		what, err := e.would, error(nil)
		if !f.rule.DryRun {
			what, err = e.do(c)
		}
		if err != nil {
			f.warnOnce("%s was not done: %v", f.rule.Do[i], err)
			failed = true
			break
		}
		done[i] = true
		c.what = append(c.what, what)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, ok := range done {
		if ok {
			f.did[i]++
		}
	}
	if failed {
		f.refused++
		return len(c.what) > 0
	}
	f.injected++
	c.N = f.injected // the handler or an action may have made calls of the target, which were counted meanwhile
	return true
}

// tell makes the event of an injected call.
func (p *place) tell(c *Call) {
	f := p.fault
	if f.in.options.Injected == nil {
		return
	}
	addr := c.at()
	e := Event{
		Fault: f, N: c.N, Time: time.Now(), PID: c.PID(), TID: c.TID(), Comm: c.Comm(),
		Place: c.calledName(), Addr: addr, What: c.what, Log: c.verdict.Log, Stack: c.stack(),
	}
	if loc, ok := f.in.session.Symbols().Lookup(addr); ok {
		e.Symbol, e.Module = loc.String(), loc.Symbol.ModuleName()
	}
	if p.shown > 0 && c.fetch() == nil {
		e.Args, e.Values = p.values.Args[:p.shown], c.Values[:p.shown]
	}
	f.in.options.Injected(e)
}
