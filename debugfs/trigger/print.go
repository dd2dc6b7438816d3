package trigger

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/gokprobe/gokprobe/expr/fetch"
	"github.com/gokprobe/gokprobe/internal/escape"
)

// Symbols names an address: "sym", or with offset "sym+0x1/0x2".
type Symbols func(addr uint64, offset bool) string

// orHex is s, or one that knows no names.
func (s Symbols) orHex() Symbols {
	if s != nil {
		return s
	}
	return func(addr uint64, _ bool) string { return "0x" + strconv.FormatUint(addr, 16) }
}

// printer prints a copy of a histogram, so that hits do not wait for it.
type printer struct {
	*bytes.Buffer
	spec          *Spec
	entries       []*entry
	hits, dropped uint64
	best          []shot
	symbols       Symbols
}

// Print writes the histogram as the hist file shows it: info is the line of the trigger file.
func (h *Hist) Print(w io.Writer, info string, s Symbols) error {
	p := h.copied()
	p.symbols = s.orHex()
	p.WriteString("# event histogram\n#\n# trigger info: " + info + "\n#\n\n")
	p.sort()
	p.entryLines()
	p.snapshots()
	fmt.Fprintf(p, "\nTotals:\n    Hits: %d\n    Entries: %d\n    Dropped: %d\n", p.hits, len(p.entries), p.dropped)
	_, err := p.WriteTo(w)
	return err
}

// copied is what a printer needs of the histogram as it is.
func (h *Hist) copied() printer {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := printer{&bytes.Buffer{}, h.spec, make([]*entry, len(h.order)), h.hits, h.dropped, slices.Clone(h.best), nil}
	for i, e := range h.order {
		c := entry{keys: e.keys, comm: e.comm, hits: e.hits, sums: slices.Clone(e.sums), tracks: slices.Clone(e.tracks)}
		for j := range c.tracks {
			c.tracks[j].saved = slices.Clone(c.tracks[j].saved)
		}
		p.entries[i] = &c
	}
	return p
}

// sort brings the entries into the order of sort=.
func (p printer) sort() {
	slices.SortStableFunc(p.entries, func(a, b *entry) int {
		for _, k := range p.spec.sorts {
			if c := p.spec.compare(k, a, b); c != 0 {
				return c
			}
		}
		return 0
	})
}

func (s *Spec) compare(k sortKey, a, b *entry) (c int) {
	at := slices.Index(s.keys, k.by)
	switch {
	case k.by == nil:
		c = cmp.Compare(a.hits, b.hits)
	case at < 0:
		at = slices.Index(s.vals, k.by)
		c = cmp.Compare(a.sums[at], b.sums[at])
	case k.by.op == opStack: // no order
	case k.by.isText():
		c = strings.Compare(a.keys[at].S, b.keys[at].S)
	case k.by.signed():
		c = cmp.Compare(int64(a.keys[at].U), int64(b.keys[at].U))
	default:
		c = cmp.Compare(a.keys[at].U, b.keys[at].U)
	}
	if k.descending {
		return -c
	}
	return c
}

// stat is what .percent and .graph compare a value with.
type stat struct{ most, total uint64 }

func (p printer) entryLines() {
	stats := make([]stat, len(p.spec.vals))
	for _, e := range p.entries {
		for i, n := range e.sums {
			stats[i].most = max(stats[i].most, n)
			stats[i].total += n
		}
	}
	for _, e := range p.entries {
		p.keys(e.keys, e.comm)
		if !p.spec.NoHitcount {
			fmt.Fprintf(p, " hitcount: %10d", e.hits)
		}
		for i, t := range p.spec.vals {
			if !t.isExpr() { // expressions are there to sort by, and for variables
				p.WriteByte(' ')
				p.value(t, e.sums[i], stats[i])
			}
		}
		for i, a := range p.spec.actions {
			if a.tracks() {
				p.track(a, &e.tracks[i])
			}
		}
		p.WriteByte('\n')
	}
}

func (p printer) keys(keys []fetch.Value, comm string) {
	p.WriteString("{ ")
	multiline := false
	for i, t := range p.spec.keys {
		if i > 0 {
			p.WriteString(", ")
		}
		if t.op == opStack {
			multiline = true
		}
		p.key(t, keys[i], comm)
	}
	if !multiline {
		p.WriteByte(' ')
	}
	p.WriteByte('}')
}

func (p printer) key(t *term, v fetch.Value, comm string) {
	if t.op == opStack {
		p.WriteString("common_stacktrace:\n")
		for _, a := range v.Elems {
			p.WriteString("         " + p.symbols(a.U, true) + "\n")
		}
		return
	}
	p.WriteString(t.label() + ": ")
	switch {
	case t.isText():
		fmt.Fprintf(p, "%-50s", escape.Line(v.S))
	case t.mod == hex:
		fmt.Fprintf(p, "%x", v.U)
	case t.mod == sym:
		fmt.Fprintf(p, "[%x] %-45s", v.U, p.symbols(v.U, false))
	case t.mod == symOffset:
		fmt.Fprintf(p, "[%x] %-55s", v.U, p.symbols(v.U, true))
	case t.mod == execname:
		fmt.Fprintf(p, "%-16s[%10d]", escape.Line(comm), v.U)
	case t.mod == syscallName:
		fmt.Fprintf(p, "%-30s[%3d]", SyscallName(v.U), v.U)
	case t.mod == log2:
		fmt.Fprintf(p, "~ 2^%-2d", v.U)
	case t.mod == buckets:
		fmt.Fprintf(p, "~ %d-%d", v.U, v.U+t.width-1)
	default:
		fmt.Fprintf(p, "%10d", v.U)
	}
}

func (p printer) value(t *term, n uint64, s stat) {
	switch t.mod {
	case percent:
		if n > s.total { // the sum has wrapped around
			fmt.Fprintf(p, " %s (%%):[ERROR]", t.label())
			return
		}
		pc := hundredths(n, s.total)
		fmt.Fprintf(p, " %s (%%): %3d.%02d", t.label(), pc/100, pc%100)
	case graph:
		fmt.Fprintf(p, " %s: %-20s", t.label(), strings.Repeat("#", int(hundredths(n, s.most)*20/10000)))
	case hex:
		fmt.Fprintf(p, " %s: %10x", t.label(), n)
	default:
		fmt.Fprintf(p, " %s: %10d", t.label(), n)
	}
}

// hundredths is how many hundredths of a percent part is of whole, rounded down.
func hundredths(part, whole uint64) uint64 {
	if whole == 0 {
		return 0
	}
	hi, lo := bits.Mul64(part, 10000)
	if hi >= whole {
		return math.MaxUint64
	}
	q, _ := bits.Div64(hi, lo, whole)
	return q
}

// track prints what an action has remembered of an entry.
func (p printer) track(a *action, t *track) {
	word := map[string]string{"onmax": "max", "onchange": "changed"}[a.handler]
	fmt.Fprintf(p, "\n\t%s: %10d", word, t.value)
	for i, v := range t.saved {
		if a.terms[i].isText() {
			fmt.Fprintf(p, "  %s: %-32s", a.params[i], escape.Line(v.S))
		} else {
			fmt.Fprintf(p, "  %s: %10d", a.params[i], v.U)
		}
	}
}

// snapshots tells of which hit a snapshot was taken.
func (p printer) snapshots() {
	for i, a := range p.spec.actions {
		b := p.best[i]
		if !b.taken {
			continue
		}
		p.WriteString("\nSnapshot taken (see tracing/snapshot).  Details:\n")
		fmt.Fprintf(p, "\ttriggering value { %s(%s) }: %10d\ttriggered by event with key: ", a.handler, a.subject, b.value)
		p.keys(b.keys, b.comm)
		p.WriteByte('\n')
	}
}
