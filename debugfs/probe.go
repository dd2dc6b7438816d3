package debugfs

import (
	"context"
	"errors"
	"slices"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/debugfs/dynevent"
	"github.com/gokprobe/gokprobe/expr/fetch"
	"github.com/gokprobe/gokprobe/expr/values"
	"github.com/gokprobe/gokprobe/internal/escape"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/symbols"
	"github.com/gokprobe/gokprobe/trace"
)

// probe is a place where hits of an event happen. A kprobe is registered as long as it is
// defined, an uprobe while its event is on (G53). Tree.mu guards it.
type probe struct {
	event  *event
	def    *dynevent.Definition
	number int // in the order of definition

	kp      *kprobes.Kprobe      // nil while it is not registered
	rp      *kprobes.Kretprobe   // whose entry kp is, of a return probe
	fetches *trace.Fetching      // its values
	symbols map[string]arch.Addr // where the layout has found what @SYM means
	counts                       // of registrations that have ended
	told    uint64               // of the records that were lost, how many the trace knows of
}

// counts is what a probe has seen.
type counts struct{ hits, missed, lost uint64 }

// now adds what the registration that lasts has seen.
func (p *probe) now() counts {
	c := p.counts
	if p.kp == nil {
		return c
	}
	c.hits += p.kp.Hits()
	c.missed += p.kp.NMissed()
	if p.rp != nil {
		c.hits += p.rp.Hits() - p.kp.Hits() // the event is the return (kretprobe_dispatcher)
		c.missed += p.rp.NMissed()
	}
	c.lost += trace.Lost(p.kp)
	return c
}

// newLosses is how many records were lost since it was last asked.
func (p *probe) newLosses() uint64 {
	lost := p.now().lost
	n := lost - p.told
	p.told = lost
	return n
}

// begin does the work for a newly defined p.
func (p *probe) begin() error {
	switch {
	case p.event.on:
		return p.enable()
	case p.def.Family == dynevent.Kprobe:
		return p.register(kprobes.FlagDisabled)
	}
	return nil
}

// enable has p's hits handled.
func (p *probe) enable() error {
	switch {
	case p.kp == nil:
	case p.strayed():
		if err := p.unregister(); err != nil {
			return err
		}
		return p.register(0)
	default:
		return p.enableRegistered()
	}
	if err := p.register(0); err != nil {
		return err
	}
	if err := p.count(1); err != nil {
		return errors.Join(err, p.unregister())
	}
	return nil
}

// disable is the opposite.
func (p *probe) disable() error {
	switch {
	case p.kp == nil:
		return nil
	case p.def.Family == dynevent.Uprobe:
		return p.remove()
	}
	return p.event.tree.session.DisableKprobe(p.kp)
}

// register places p with the present work of its event's hits.
func (p *probe) register(flags kprobes.Flags) error {
	s := p.event.tree.session
	rp := &kprobes.Kretprobe{}
	kp := &rp.KP
	if p.event.kind != dynevent.Return {
		kp = &kprobes.Kprobe{}
	}
	if err := p.place(kp); err != nil {
		return err
	}
	l, err := p.newLayout(kp)
	if err != nil {
		return err
	}
	kp.Flags = flags
	f := p.newFetching(l, kp)
	if p.event.kind == dynevent.Return {
		rp.MaxActive = p.def.MaxActive
		if err = f.AtReturns(rp); err == nil {
			err = s.RegisterKretprobe(rp)
		}
	} else if err = f.At(kp); err == nil {
		rp, err = nil, s.RegisterKprobe(kp)
	}
	if err != nil {
		return err
	}
	p.kp, p.rp, p.fetches = kp, rp, f
	if rp != nil {
		p.def.MaxActive = rp.MaxActive
	}
	return nil
}

// remove takes p away, and what enable has done for it.
func (p *probe) remove() error {
	var err error
	if p.kp != nil && p.def.Family == dynevent.Uprobe {
		err = p.count(-1)
	}
	return errors.Join(err, p.unregister())
}

// unregister ends p's registration and keeps its counts.
func (p *probe) unregister() error {
	if p.kp == nil {
		return nil
	}
	err := p.event.tree.session.UnregisterKprobe(p.kp)
	p.counts = p.now()
	p.kp, p.rp = nil, nil
	return err
}

// replace registers p anew, since its event's hits have something else to do. No hit is
// missed or handled twice. After an error p is unchanged.
func (p *probe) replace() error {
	if p.kp == nil || p.rp != nil && p.fetches.StopsWith(p.event.stacks) == p.fetches.Stops() {
		return nil // returns are filtered by the tracer: calls in flight would be forgotten
	}
	s := p.event.tree.session
	old := *p
	if err := p.register(kprobes.FlagDisabled); err != nil {
		return err
	}
	var err error
	if p.event.on {
		err = s.ExchangeKprobes(old.kp, p.kp)
	}
	if err != nil {
		fresh := p.kp
		*p = old
		return errors.Join(err, s.UnregisterKprobe(fresh))
	}
	err = s.UnregisterKprobe(old.kp)
	p.counts = old.now()
	return err
}

// place writes into kp where p is to be.
func (p *probe) place(kp *kprobes.Kprobe) error {
	d := p.def
	switch {
	case d.Family == dynevent.Uprobe:
		return p.event.tree.inFile(d, kp)
	case d.Symbol == "":
		kp.Addr = arch.Addr(d.Addr)
	default:
		kp.SymbolName, kp.Offset = symbolName(d), d.Offset
	}
	return nil
}

// symbolName is the name that d's symbol is looked up by.
func symbolName(d *dynevent.Definition) string {
	if d.Module != "" {
		return d.Module + ":" + d.Symbol
	}
	return d.Symbol
}

// newLayout is how p's arguments are fetched at kp.
func (p *probe) newLayout(kp *kprobes.Kprobe) (*fetch.Layout, error) {
	t := p.event.tree
	p.symbols = map[string]arch.Addr{}
	symbol := func(name string) (arch.Addr, bool) {
		at, ok := t.symbol(name)
		p.symbols[name] = at
		return at, ok
	}
	env := fetch.Env{ABI: t.abi(kp), Symbol: symbol, Return: p.event.kind == dynevent.Return}
	if p.def.Family == dynevent.Uprobe {
		env.FileOffset = func(off int64) (arch.Addr, bool) { return t.mapped(p.def.Path, uint64(off)) }
	}
	args := p.def.Args
	if env.Return {
		args = slices.Concat([]fetch.Arg{returnAddress}, args)
	}
	return fetch.NewLayout(args, env)
}

// strayed tells that a symbol of p's arguments is elsewhere by now, since its library was loaded again.
func (p *probe) strayed() bool {
	for name, was := range p.symbols {
		if at, ok := p.event.tree.symbol(name); ok && at != was {
			return true
		}
	}
	return false
}

// returnAddress is fetched in front of the arguments of returns: it is where the thread is.
var returnAddress = fetch.Arg{
	Name:   "__probe_ret_ip",
	Source: fetch.Source{Base: fetch.Register, Name: host.Roles.IP},
	Type:   fetch.Type{Name: "x64", Kind: fetch.Hex, Size: 8},
}

// abi is how the function at kp is called.
func (t *Tree) abi(kp *kprobes.Kprobe) fetch.ABI {
	at := kp.Addr
	if kp.SymbolName != "" {
		if found, err := t.session.Symbols().Resolve(context.Background(), kp.SymbolName); err == nil {
			at = found[0].Addr
		}
	}
	return values.ABIOf(t.session.Symbols(), at)
}

// symbol is the address of a variable or function that is written @NAME.
func (t *Tree) symbol(name string) (arch.Addr, bool) { return values.Object(t.session.Symbols(), name) }

// symbolize prints an address as the kernel does (kernel/kallsyms.c, sprint_symbol): symbol, offset and size, and
// in brackets the library.
func (t *Tree) symbolize(at arch.Addr) string { return t.name(at, values.Symbol) }

// nameOf is the symbol that an address lies in, and in brackets its library.
func (t *Tree) nameOf(at arch.Addr) string {
	return t.name(at, func(loc symbols.Location) string { return loc.Symbol.Name })
}

func (t *Tree) name(at arch.Addr, text func(symbols.Location) string) string {
	loc, ok := t.session.Symbols().Lookup(at)
	if !ok || loc.Symbol.Name == "" {
		return at.String()
	}
	return escape.Line(text(loc) + inModule(loc.Symbol.Module))
}
