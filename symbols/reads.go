package symbols

import "slices"

// Word is an 8-byte number at a hit, an address or a count: Plus, and one that is
type Word struct {
	Reg     string // in the register; or, if empty,
	Read    int    // in the read, by its index, among whose bytes it is,
	At      int64  // from there on;
	IsConst bool   // or 0
	Plus    int64
}

// ReadKind says how the number of bytes of a Read is known.
type ReadKind uint8

const (
	ReadBytes   ReadKind = iota // Max
	ReadCounted                 // Count elements of Elem bytes, Max at most
	ReadArray                   // Max, or of these what lies in the first page
	ReadText                    // up to and including the first zero; without a zero, Max bytes, or up to the end of a mapping
)

// Read is memory that Param.Value reads, or may read, at Addr plus Off.
type Read struct {
	Kind  ReadKind
	Addr  Word
	Off   int64
	Max   int64
	Count Word
	Elem  int64
	// IsSpare says that the value is unknown without this one, which is no harm.
	IsSpare bool
}

// maxReads bounds the reads for one parameter.
const maxReads = 24

// Reads lists the general registers, by name, and the memory that Value needs. The list is made
// before the hit, so Value may not use all of it. sp is the name of the stack pointer. ok is
// false if the list depends on values, or is longer than a record of a hit should be.
func (p Param) Reads(sp string) (regs []string, reads []Read, ok bool) {
	if p.late != nil || p.dynamic != nil {
		return nil, nil, false
	}
	if !p.place.isKnown(p.typ) {
		return nil, nil, true // it is printed as unknown
	}
	r := &reader{lang: p.lang, brief: p.brief, bounds: p.bounds.made()}
	r.value(p.typ, r.place(p.place, p.typ.size, sp), 0)
	return r.regs, r.reads, !r.hasFailed
}

// place collects the reads for the size bytes of a value at p.
func (r *reader) place(p place, size int64, sp string) source {
	for _, l := range p.limits {
		r.hasFailed = r.hasFailed || l.holds != nil
		r.place(*l.length, 8, sp)
	}
	if p.number != nil && p.number.from != nil {
		r.place(*p.number.from, 8, sp)
	}
	words := r.parts(p, sp)
	if p.isIndirect {
		off := p.behind
		for _, next := range p.more {
			words, off = r.read(Read{Addr: r.word(words, 0), Off: off, Max: 8}), next
		}
		words = r.read(Read{Addr: r.word(words, 0), Off: off, Max: size})
	}
	if n := p.number; n != nil {
		return func(off int64) (Word, bool) {
			w, known := words(off)
			w.Plus += n.plus
			return w, known && off == 0 && n.from == nil && !n.isNilZero
		}
	}
	return words
}

// source returns the word of a value at an offset in it.
type source func(off int64) (w Word, known bool)

// from is the source that begins n bytes further on.
func (s source) from(n int64) source {
	return func(off int64) (Word, bool) { return s(n + off) }
}

// reader collects all reads that a formatter could make, without knowing the values.
type reader struct {
	lang      language
	brief     bool // see Param.Brief
	bounds    bounds
	regs      []string
	reads     []Read
	bytes     int64
	seen      int // values of all levels
	hasFailed bool
}

// mostSeen bounds seen: more than are shown of a value that fits into a record.
const mostSeen = 4 * fieldsAtMost

// read adds a read, and returns the source of its words.
func (r *reader) read(x Read) source {
	if x.Max <= 0 {
		return func(int64) (Word, bool) { return Word{}, false }
	}
	n := len(r.reads)
	r.reads = append(r.reads, x)
	r.bytes += x.Max
	r.hasFailed = r.hasFailed || len(r.reads) > maxReads || r.bytes > r.bounds.recorded
	return func(off int64) (Word, bool) { return Word{Read: n, At: off}, off >= 0 && off <= x.Max-8 }
}

// parts collects the reads for the parts of a value at place p.
func (r *reader) parts(p place, sp string) source {
	words := make([]source, len(p.parts))
	for i, x := range p.parts {
		switch x.reg {
		case "xmm", "st", entryPart: // what leads to an entry depends on the map
			r.hasFailed = true
		case constantPart: // its bytes are read from nowhere
			words[i] = func(off int64) (Word, bool) { return Word{IsConst: true, Plus: x.stack}, off == 0 && x.skip == 0 }
		case computedPart:
			if words[i] = r.computed(x.made); x.skip > 0 {
				words[i] = nil
			}
		case "":
			words[i] = r.read(Read{Addr: Word{Reg: sp}, Off: x.stack, Max: x.size})
		default:
			r.regs = append(r.regs, x.reg)
			words[i] = func(off int64) (Word, bool) { return Word{Reg: x.reg}, off == 0 && x.skip == 0 }
		}
	}
	return func(off int64) (Word, bool) {
		for i, x := range p.parts {
			if off >= x.off && off-x.off <= x.size-8 && words[i] != nil {
				return words[i](off - x.off)
			}
		}
		return Word{}, false
	}
}

// word is the word at off of a value.
func (r *reader) word(s source, off int64) Word {
	w, known := s(off)
	r.hasFailed = r.hasFailed || !known
	return w
}

// value collects the reads for printing a t, as formatter.format makes them.
func (r *reader) value(t *dtype, s source, depth int) {
	if depth > r.bounds.depth || r.hasFailed {
		return
	}
	if r.seen++; r.seen > mostSeen {
		r.hasFailed = true
		return
	}
	if p := t.printer(r.lang); p != nil {
		p.reads(r, s, depth)
		return
	}
	switch t.kind {
	case typePointer:
		if r.lang == langC && t.elem.isText() {
			r.read(Read{Kind: ReadText, Addr: r.word(s, 0), Max: r.bounds.bytes + 1})
		}
	case typeReference:
		if t.elem.size > 0 && t.elem.size <= 1<<12 {
			r.value(t.elem, r.read(Read{Addr: r.word(s, 0), Max: t.elem.size}), depth+1)
		}
	case typeStruct, typeUnion:
		r.structure(t, s, depth)
	case typeArray, typeVector:
		if n, elem := t.rows(); !elem.isText() || r.lang != langC {
			r.elements(elem, s, n, depth)
		}
	case typeGoString:
		r.text(s, 0, 8)
	case typeGoSlice:
		r.slice(t, s, depth)
	case typeGoInterface: // the reads depend on the dynamic type
		r.hasFailed = true
	case typeSum: // or on the variant
		for _, v := range t.variants {
			r.only(v.typ, depth)
		}
	}
}

// text is a string whose address and length lie at such offsets.
func (r *reader) text(s source, addr, length int64) {
	r.read(Read{Kind: ReadCounted, Addr: r.word(s, addr), Max: r.bounds.bytes, Count: r.word(s, length), Elem: 1})
}

// structure does as formatter.structure.
func (r *reader) structure(t *dtype, s source, depth int) {
	if x, ok := t.sequence(r.lang); ok {
		if x.isText {
			r.text(s, x.addr, x.length)
		} else {
			r.sequence(x, s, depth)
		}
		return
	}
	for _, m := range t.field {
		if m.off < 0 || m.off > t.size-m.typ.size || m.bits || m.isBase && len(m.typ.field) == 0 {
			continue
		}
		r.value(m.typ, s.from(m.off), depth+1)
	}
}

func (r *reader) elements(t *dtype, s source, n int64, depth int) {
	if t.size == 0 { // nothing leads on from there
		return
	}
	for i := range min(n, r.bounds.items) {
		r.value(t, s.from(i*t.size), depth+1)
	}
}

// slice does as formatter.slice.
func (r *reader) slice(t *dtype, s source, depth int) {
	if t.elem == nil || t.elem.size > 1<<10 {
		return
	}
	shown := r.bounds.items
	if t.elem.kind == typeUint && t.elem.size == 1 {
		shown = r.bounds.bytes
	}
	read := Read{Kind: ReadCounted, Addr: r.word(s, 0), Max: shown * t.elem.size, Count: r.word(s, 8), Elem: t.elem.size}
	r.elements(t.elem, r.read(read), r.bounds.items, depth)
}

// leadsOn tells that more is read to print a t than a value's own bytes.
func leadsOn(t *dtype, by *reader, depth int) bool {
	r := &reader{lang: by.lang, brief: by.brief, bounds: by.bounds, seen: by.seen}
	asked := false
	r.value(t, func(int64) (Word, bool) { asked = true; return Word{}, true }, depth)
	by.seen = r.seen
	return asked || r.hasFailed || len(r.reads) > 0
}

// isLate tells that p is known only when a record is read: it depends on what has called the function.
func (p place) isLate() bool {
	return slices.ContainsFunc(p.parts, func(x part) bool {
		return x.made != nil && slices.ContainsFunc(x.made.steps, func(s step) bool { return s.op == opEntryValue })
	})
}

// computed collects the registers and the reads of an expression.
func (r *reader) computed(c *computation) source {
	result, err := execute(readingWorld{r, c}, c.steps, true)
	r.hasFailed = r.hasFailed || err != nil
	return func(off int64) (Word, bool) { return result.word, off == 0 && result.isWord }
}

// readingWorld is a hit that there has not been.
type readingWorld struct {
	r *reader
	c *computation
}

func (w readingWorld) register(name string) (cell, error) {
	w.r.addRegister(name)
	return cell{word: Word{Reg: name}, isWord: true}, nil
}

func (w readingWorld) vector(int) (uint64, error) { return 0, errNoVector }

func (w readingWorld) load(at cell, size int64) (cell, error) {
	if !at.isWord {
		return cell{}, errNotComputed
	}
	w.r.read(Read{Addr: at.word, Max: size})
	return cell{word: Word{Read: len(w.r.reads) - 1}, isWord: true}, nil
}

func (w readingWorld) entry(uint64) (cell, error) {
	regs, reads := w.c.caller.reads()
	for _, name := range regs {
		w.r.addRegister(name)
	}
	for _, x := range reads {
		if !slices.Contains(w.r.reads, x) {
			w.r.read(x)
		}
	}
	return cell{}, nil
}

func (r *reader) addRegister(name string) {
	if !slices.Contains(r.regs, name) {
		r.regs = append(r.regs, name)
	}
}
