package trace

import (
	"errors"
	"maps"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/expr/values"
	"github.com/gokprobe/gokprobe/internal/escape"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/symbols"
)

// mostElsewhere is how many programs are remembered that followed children execute.
const mostElsewhere = 64

// there returns the facts about pt in the process of a hit. It is nil if the wanted values can't be fetched in the file that the process executes; a
// warning says so once.
func (pt *point) there(regs *kprobes.Regs) *known {
	table := regs.Symbols()
	if table == pt.probe.session.kprobes.Symbols() {
		if k := pt.notice(); !pt.isBlind(k) {
			return k
		}
		return nil
	}
	k, met := pt.elsewhere[table]
	if !met || k != nil && k.addr != regs.Place() { // its library may have come back elsewhere
		k = pt.learn(table, regs)
		maps.DeleteFunc(pt.elsewhere, func(old *symbols.Table, _ *known) bool { return old.Closed() }) // of programs that have ended
		if pt.elsewhere == nil || len(pt.elsewhere) >= mostElsewhere {
			pt.elsewhere = map[*symbols.Table]*known{}
		}
		pt.elsewhere[table] = k
	}
	return k
}

// learn looks pt up in the files of a followed child.
func (pt *point) learn(table *symbols.Table, regs *kprobes.Regs) *known {
	k := &known{table: table, addr: regs.Place()}
	_ = pt.lookUp(k) // no warning: there would be one for each executable
	if pt.fetch == nil {
		return k
	}
	var err error
	if k.fetch, err = pt.fetchAt(table, k.addr); err != nil {
		pt.refuse(table, "hits of %s in process %d (%s), which executes another file, are not printed: %v", pt.Name, regs.PID(), escape.Line(regs.Comm()), err)
		return nil
	}
	return k
}

// fetchAt is what Fetch and If want where pt's probe is at addr, in a call's Data as it was made.
func (pt *point) fetchAt(table *symbols.Table, addr arch.Addr) (*values.Values, error) {
	v, err := pt.probe.want.fetching(table, pt.at(table, addr))
	if err == nil && v.Layout.Saved() > pt.fetch.Layout.Saved() {
		err = errSavesMore
	}
	if err != nil {
		return nil, err
	}
	return v, nil
}

// refuse warns, once for each executable, that hits are not printed.
func (pt *point) refuse(table *symbols.Table, format string, args ...any) {
	exe := executable(table)
	if pt.refused[exe] {
		return
	}
	if pt.refused == nil || len(pt.refused) >= mostElsewhere {
		pt.refused = map[string]bool{}
	}
	pt.refused[exe] = true
	pt.probe.session.warn(format, args...)
}

// isBlind tells that what is wanted of hits is not known in k.
func (pt *point) isBlind(k *known) bool { return k == nil || pt.fetch != nil && k.fetch == nil }

// executable is the path of the executable in a table.
func executable(table *symbols.Table) string {
	for _, m := range table.Modules() {
		if m.Kind == symbols.KindExecutable {
			return m.Path
		}
	}
	return ""
}

var errSavesMore = errors.New("more has to be remembered of a call there")
