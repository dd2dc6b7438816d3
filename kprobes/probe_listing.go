package kprobes

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/escape"
	"github.com/gokprobe/gokprobe/symbols"
)

// Listed is a registered probe as the kernel's kprobes/list shows it.
type Listed struct {
	Addr   arch.Addr
	Type   byte   // 'k', 'r' or 'j'
	Symbol string // symbol+0xoffset; empty if Addr lies in no symbol, or the probe is in no place
	Module string // of the symbol; empty for the executable, as for the kernel's own code
	// Gone and Disabled are the probe's own, Optimized is that of all probes at Addr (F6).
	Gone, Disabled, Optimized bool
}

// Probes lists all registered probes by address; those of one address with the one that was
// registered last first. A probe that is placed in followed children as well is listed once, one that waits for
// a library which was never there is not.
func (s *Session) Probes() []Listed {
	var all []Listed
	_ = s.tracer.Do(func() {
		for _, kp := range slices.Backward(s.registry.probes) {
			if kp.Addr == notYet {
				continue
			}
			all = append(all, s.registry.listed(kp))
		}
	})
	slices.SortStableFunc(all, func(a, b Listed) int { return cmp.Compare(a.Addr, b.Addr) })
	return all
}

func (rg *registry) listed(kp *Kprobe) Listed {
	l := Listed{Addr: kp.Addr, Type: 'k', Gone: kp.Flags&FlagGone != 0, Disabled: kp.Flags&FlagDisabled != 0}
	switch {
	case kp.ret != nil:
		l.Type = 'r'
	case kp.jprobe != nil:
		l.Type = 'j'
	}
	if len(kp.placements) > 0 {
		st := kp.placements[0].site
		l.Addr, l.Optimized = st.addr, st.jump() != nil
	}
	if rg.s.table == nil {
		return l
	}
	if loc, ok := rg.s.table.Lookup(l.Addr); ok && loc.Symbol.Name != "" {
		l.Symbol = loc.String()
		if m := loc.Symbol.Module; m != nil && m.Kind != symbols.KindExecutable {
			l.Module = m.Name
		}
	}
	return l
}

// String is the line of kprobes/list, without its end (kernel/kprobes.c, report_probe).
func (l Listed) String() string {
	var line string
	if l.Symbol == "" {
		line = fmt.Sprintf("%016x  %c  %s ", uint64(l.Addr), l.Type, l.Addr)
	} else {
		line = fmt.Sprintf("%016x  %c  %s  %s ", uint64(l.Addr), l.Type, escape.Line(l.Symbol), cmp.Or(escape.Line(l.Module), " "))
	}
	switch {
	case l.Gone:
		line += "[GONE]"
	case l.Disabled:
		line += "[DISABLED]"
	}
	if l.Optimized {
		line += "[OPTIMIZED]"
	}
	return line
}

// Optimization tells whether jumps may take the place of breakpoints (SetOptimization).
func (s *Session) Optimization() bool {
	var on bool
	_ = s.tracer.Do(func() { on = !s.opts.NoOptimize })
	return on
}
