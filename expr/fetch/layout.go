package fetch

import (
	"fmt"
	"slices"
	"syscall"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/program"
)

// StringSize is the bytes that a record sets aside for a string, with its zero. Records have a
// fixed length, so it is less than the kernel's MaxString, and less still in a record of many strings.
const StringSize = 256

// Env is what the values of an event are found by.
type Env struct {
	ABI
	// Symbol looks up the name of @SYM; FileOffset where @+OFF is mapped. nil knows nothing.
	Symbol     func(name string) (arch.Addr, bool)
	FileOffset func(off int64) (arch.Addr, bool)
	// Text is how many bytes of a string are kept at least, if there are so many; 0 for what there is room for, StringSize at most.
	Text int
	// Return tells that the values are fetched when a function has returned: $argN is then what
	// Save has kept at its entry.
	Return bool
}

// ABI is which registers functions are called with.
type ABI = arch.Convention

// headItems is how many items stand in front of those of the arguments: the time, the thread and the processor.
const headItems = 3

// Layout is how the arguments of an event stand in the records that a program writes of
// them. It is not changed after it was made; any number of goroutines may use it.
type Layout struct {
	args  []Arg
	env   Env
	plans []plan // of the arguments
	regs  []string
	saved []int64 // the numbers of the $argN that are saved at the entry
	items []program.Item
	// runs is the program for Run, whose fields are those of every other program of the layout.
	runs *program.Checked
	size int // bytes of a record
}

// plan is how one argument is recorded.
type plan struct {
	item, items int          // the first of its items and how many they are; none for what is known without
	lengths     int          // how many of them, the last ones, are for the source's limits,
	isNilZero   bool         // or the last one is the address that leads to the value
	known       Value        // what is known without
	number      program.Expr // the value, if it is one number
	isNumber    bool
	text        program.Expr // where the value is, if it is one string
	isText      bool
}

// ring is the one that Run's records are in.
var ring = program.Map{Kind: program.Ring, Size: 8 * program.MaxRecord}

// NewLayout finds out how args are to be recorded. The error matches ENOENT if a symbol or an
// offset is not there, E2BIG if the record would be larger than program.MaxRecord, or the program of
// too many instructions.
func NewLayout(args []Arg, env Env) (*Layout, error) {
	l := &Layout{args: slices.Clone(args), env: env}
	l.items = append(l.items,
		program.Item{Name: "time", Value: program.Now()}, program.Item{Name: "thread", Value: program.CurrentThread()},
		program.Item{Name: "processor", Value: program.CurrentProcessor()})
	text, err := l.textSize()
	if err != nil {
		return nil, err
	}
	for _, a := range args {
		p, err := l.plan(a, text)
		if err != nil {
			return nil, fmt.Errorf("argument %s: %w", a.Name, err)
		}
		l.plans = append(l.plans, p)
	}
	p, err := l.Program("fetch arguments", program.Cond{}, ring)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, syscall.E2BIG)
	}
	if l.runs, err = program.Check(p); err != nil {
		return nil, fmt.Errorf("%w: %w", err, syscall.E2BIG)
	}
	for _, f := range p.Fields {
		l.size = max(l.size, f.Off+f.Size, f.Err+8)
	}
	return l, nil
}

// word is the bytes of a number, or of a read's result, in a record.
const word = 8

// textSize is how many bytes each of the strings gets.
func (l *Layout) textSize() (int, error) {
	fixed, strings := headItems*word, 0
	for _, a := range l.args {
		fixed += 4 * word * len(a.Source.Limits)
		if a.Source.From != nil || a.Source.IsNilZero {
			fixed += 2 * word
		}
		switch n := max(a.Type.Count, 1); {
		case a.isString() && !a.constant():
			strings += n
			if a.Source.Len != nil {
				fixed += 2 * word
			}
		case a.Type.Count > 0:
			fixed += word + (n*a.Type.size()+word-1)&^(word-1)
		default:
			fixed += 2 * word
		}
	}
	if strings == 0 {
		return 0, nil
	}
	room := (program.MaxRecord-fixed)/strings - word
	asked := l.env.Text + word // with a zero, and what the size is cut by
	size := min(max(StringSize, asked), room) &^ (word - 1)
	switch {
	case size < word:
		return 0, fmt.Errorf("%d strings and %d other bytes are more than a record of %d holds: %w", strings, fixed, program.MaxRecord, syscall.E2BIG)
	case l.env.Text > 0 && room < asked:
		return 0, fmt.Errorf("%d strings of %d bytes are more than a record holds, which has room for %d of each; ask for shorter ones: %w", strings, l.env.Text, max(room-word, 0), syscall.E2BIG)
	}
	return size, nil
}

func (a Arg) isString() bool { return a.Type.Kind == String || a.Type.Kind == UString }

// constant tells that a's value does not depend on memory and registers.
func (a Arg) constant() bool { return a.Source.Base == Comm || a.Source.Base == Text }

// size is the bytes of an element in memory.
func (t Type) size() int {
	if t.Size == 0 {
		return word
	}
	return t.Size
}

// isWord tells of a number that it may be an address.
func (t Type) isWord() bool {
	switch t.Kind {
	case Unsigned, Signed, Hex, SymbolOff, SymStr, Caller:
		return t.size() == word
	}
	return false
}

// ReadsAddresses tells that an argument may be an address that stands in memory, on a stack for instance: Host.Leads may make another one of it.
func (l *Layout) ReadsAddresses() bool {
	return slices.ContainsFunc(l.args, func(a Arg) bool {
		return a.Type.isWord() && (len(a.Source.Derefs) > 0 || a.Source.Base != Register && a.Source.Base != Retval && a.Source.Base != Immediate)
	})
}

func (t Type) number() program.Type { return program.Type{Size: t.size(), Signed: t.Kind == Signed} }

// plan adds the items of a.
func (l *Layout) plan(a Arg, text int) (plan, error) {
	p := plan{item: len(l.items)}
	if a.constant() {
		p.known.S = a.Source.Name
		return p, nil
	}
	base, derefs, err := l.base(a.Source)
	if err != nil {
		return p, err
	}
	at := base // of what is read last
	for i, d := range derefs {
		if i < len(derefs)-1 {
			at = at.Load(d.Off, program.U64)
		} else if d.Off != 0 {
			at = at.Plus(d.Off)
		}
	}
	switch {
	case a.isString() && a.Type.Count > 0:
		for i := range a.Type.Count {
			l.add(program.Item{Kind: program.String, Value: at.Load(int64(i*word), program.U64), Max: text})
		}
	case a.isString() && a.Source.Len != nil:
		n, err := l.length(*a.Source.Len)
		if err != nil {
			return p, err
		}
		l.add(program.Item{Value: n})
		l.add(program.Item{Kind: program.CountedBytes, Value: at, Len: n, Max: text})
	case a.isString():
		p.text, p.isText = at, true
		l.add(program.Item{Kind: program.String, Value: at, Max: text})
	case a.Type.Count > 0:
		l.add(program.Item{Kind: program.Array, Value: at, Max: a.Type.Count * a.Type.size()})
	case len(derefs) > 0:
		p.number, p.isNumber = at.Load(0, a.Type.number()), true
	default:
		p.number, p.isNumber = base.As(a.Type.number()), true
	}
	if p.isNumber {
		l.add(program.Item{Value: p.number})
	}
	return p, l.planLimits(&p, a.Source)
}

// planLimits adds the items that tell whether there is a value, and what else it is made of.
func (l *Layout) planLimits(p *plan, s Source) error {
	p.isNilZero = s.IsNilZero && len(s.Derefs) > 0 && s.From == nil
	var words []Source
	switch {
	case s.From != nil:
		words = append(words, *s.From)
	case p.isNilZero:
		last := s
		last.Derefs = s.Derefs[:len(s.Derefs)-1]
		words = append(words, last)
	}
	own := len(words)
	for _, limit := range s.Limits {
		if words = append(words, limit.Length); limit.Length.From != nil {
			words = append(words, *limit.Length.From)
		}
	}
	p.lengths = len(words) - own
	for _, w := range words {
		n, err := l.length(w)
		if err != nil {
			return err
		}
		l.add(program.Item{Value: n})
	}
	p.items = len(l.items) - p.item
	return nil
}

// length is the number that s leads to.
func (l *Layout) length(s Source) (program.Expr, error) {
	n, derefs, err := l.base(s)
	for _, d := range derefs {
		n = n.Load(d.Off, program.U64)
	}
	return n, err
}

func (l *Layout) add(i program.Item) { l.items = append(l.items, i) }

// base is what s begins with, and all that is read from there.
func (l *Layout) base(s Source) (program.Expr, []Deref, error) {
	there := append([]Deref{{}}, s.Derefs...) // for a base that names what lies at an address
	switch s.Base {
	case Register:
		return l.reg(s.Name), s.Derefs, nil
	case Retval:
		return l.reg(l.env.Results[0]), s.Derefs, nil
	case Stack:
		return l.reg(l.env.Stack), s.Derefs, nil
	case StackWord:
		return l.reg(l.env.Stack), append([]Deref{{Off: word * s.N}}, s.Derefs...), nil
	case Argument:
		return l.argument(s)
	case Immediate:
		return program.Const(s.N), s.Derefs, nil
	case Memory:
		return program.Const(s.N), there, nil
	case Symbol:
		if l.env.Symbol != nil {
			if at, ok := l.env.Symbol(s.Name); ok {
				return program.Const(int64(at) + s.Off), there, nil
			}
		}
		return program.Expr{}, nil, fmt.Errorf("there is no symbol %s: %w", s.Name, syscall.ENOENT)
	case FileOffset:
		if l.env.FileOffset != nil {
			if at, ok := l.env.FileOffset(s.N); ok {
				return program.Const(int64(at)), there, nil
			}
		}
		return program.Expr{}, nil, fmt.Errorf("the file is not mapped at offset %#x: %w", s.N, syscall.ENOENT)
	}
	return program.Expr{}, nil, fmt.Errorf("a value can't come from base %d: %w", s.Base, syscall.EINVAL)
}

// argument is $argN.
func (l *Layout) argument(s Source) (program.Expr, []Deref, error) {
	if s.N < 1 {
		return program.Expr{}, nil, fmt.Errorf("arguments are counted from 1, not from %d: %w", s.N, syscall.EINVAL)
	}
	if l.env.Return {
		if !slices.Contains(l.saved, s.N) {
			l.saved = append(l.saved, s.N)
		}
		return l.reg(savedName(s.N)), s.Derefs, nil
	}
	if s.N <= int64(len(l.env.Args)) {
		return l.reg(l.env.Args[s.N-1]), s.Derefs, nil
	}
	return l.reg(l.env.Stack), append([]Deref{l.stackArgument(s.N)}, s.Derefs...), nil
}

// stackArgument is where an argument lies at the entry, behind the stack pointer.
func (l *Layout) stackArgument(n int64) Deref {
	return Deref{Off: word * (n - int64(len(l.env.Args)))}
}

// savedName is what the program of a return calls a saved argument: no register has a name like that.
func savedName(n int64) string { return fmt.Sprintf("$arg%d", n) }

func (l *Layout) reg(name string) program.Expr {
	if !slices.Contains(l.regs, name) {
		l.regs = append(l.regs, name)
	}
	return program.Reg(name)
}

// Program makes the program that records the arguments in ring at hits that meet
// filter, which may use what Expr gives. Records that find no room are counted in the
// map behind the ring. It fetches the same as Run, except from probed code: there it
// finds the probe, as in the kernel, and Run the original bytes.
func (l *Layout) Program(name string, filter program.Cond, ring program.Map) (*program.Program, error) {
	return program.Build(name, 0, l.regs, filter, program.WriteRecord{Ring: ring, Items: l.items})
}

// Expr is argument i as a number of 64 bits, extended by its sign; 0 where memory can't be read. ok is false if
// a program can't compute it: strings, arrays, bit fields, floating-point numbers, elements that may not be there,
// numbers of elements between addresses.
func (l *Layout) Expr(i int) (e program.Expr, ok bool) {
	if i < 0 || i >= len(l.plans) || !l.plans[i].isNumber || l.plans[i].lengths > 0 || l.args[i].Source.From != nil {
		return e, false
	}
	switch l.args[i].Type.Kind {
	case BitField, SignedBits, SymStr, Float:
		return e, false
	}
	return l.plans[i].number.OrZero(), true
}

// Text returns the place of argument i, a string, and how many bytes of it are kept,
// with its zero. ok is false if it is no string, or is not in memory.
func (l *Layout) Text(i int) (at program.Expr, size int, ok bool) {
	if i < 0 || i >= len(l.plans) || !l.plans[i].isText || l.plans[i].lengths > 0 {
		return at, 0, false
	}
	return l.plans[i].text, l.items[l.plans[i].item].Max, true
}

// Items are the items of the arguments, which may be part of a program with further ones (DecodeFields).
func (l *Layout) Items() []program.Item { return slices.Clone(l.items[headItems:]) }

// Regs are the registers that the items, and what Expr gives, are made of.
func (l *Layout) Regs() []string { return slices.Clone(l.regs) }

// Args are the arguments.
func (l *Layout) Args() []Arg { return slices.Clone(l.args) }

// Fields are the arguments as fields.
func Fields(args []Arg) []Field {
	fields := make([]Field, len(args))
	for i, a := range args {
		fields[i] = Field{Name: a.Name, Type: a.Type, Enum: a.Enum}
	}
	return fields
}
