// Package fetch fetches and prints the arguments of events: the values that a hit
// records, and their types (Documentation/trace/kprobetrace.rst;
// kernel/trace/trace_probe.c).
//
// The package is pure: no system call, no build tag.
package fetch

import "math"

// Arg is an argument of an event.
type Arg struct {
	Name   string
	Text   string // the fetch expression without its type, as it is listed
	Source Source
	Type   Type
	Enum   map[int64]string // the names that its values have; nil for none
}

// Source is where a value comes from: a base, then words of memory.
type Source struct {
	Base   Base
	Name   string  // of the register (arch.Regs' name, "rdi"), of the symbol; the text of Text
	N      int64   // StackWord: which; Argument: from 1; Immediate, Memory, FileOffset: the number
	Off    int64   // Symbol: bytes behind it
	Derefs []Deref // the innermost first
	// Len is the place of the length of a string that has an address and a length and
	// no zero at its end, as in Go, C++ and Rust; nil for others. The kernel has no
	// such strings.
	Len *Source
	// Limits hold where there is such a value, of slices and the like; else it is Absent. The kernel has none.
	Limits []Limit
	// From, unless it is nil, is taken off, and the rest divided by Per: how many elements lie between two addresses.
	From *Source
	Per  int64
	// IsNilZero tells that it is 0 where the last address is 0: the length of a Go map.
	IsNilZero bool
}

// Limit is a length that is more than an index.
type Limit struct {
	Length Source
	Index  int64
}

// Base is what a source begins with.
type Base uint8

const (
	Register   Base = iota // %REG
	Stack                  // $stack: the address
	StackWord              // $stackN
	Retval                 // $retval
	Argument               // $argN
	Comm                   // $comm: the thread's name
	Memory                 // @ADDR: the memory there
	Symbol                 // @SYM+off: the memory there
	FileOffset             // @+OFF: the memory there, in the probed file's mapping
	Immediate              // \N
	Text                   // \"text"
)

// Deref is +Off(…) or -Off(…): the memory Off bytes behind the address.
type Deref struct {
	Off  int64
	User bool // +u: an address of user space, as all are here
}

// Kind is how a value is read and printed.
type Kind uint8

const (
	Unsigned   Kind = iota // u8 … u64
	Signed                 // s8 … s64
	Hex                    // x8 … x64
	Char                   // char
	String                 // string: the bytes at the address, up to a zero
	UString                // ustring: the same here
	SymbolOff              // symbol: sym+0xoff
	SymStr                 // symstr: the same, looked up at the hit
	BitField               // bW@O/C
	SignedBits             // sbW@O/C: a bit field with a sign, which the kernel has not
	Float                  // f32, f64: IEEE 754, which the kernel has not
	Caller                 // the place that a function returns to: sym+0xoff of its caller, which the kernel has not
)

// Type is a type of the kernel's fetch arguments. The zero Type is none.
type Type struct {
	Name  string // as it is listed, without [N]: "u32", "b4@4/32"
	Kind  Kind
	Size  int // bytes of an element in memory: 1, 2, 4, 8; 0 for strings
	Width int // of a BitField: bits
	Shift int // of a BitField: the lowest bit's number
	Count int // elements of an array; 0: it is none
}

// HasSign tells whether the numbers of t may be negative whole numbers.
func (t Type) HasSign() bool { return t.Kind == Signed || t.Kind == SignedBits }

// IsBits tells whether the values of t are some bits of a number of Size bytes.
func (t Type) IsBits() bool { return t.Kind == BitField || t.Kind == SignedBits }

// Float is v, a value of t, which is a Float.
func (t Type) Float(v Value) float64 {
	if t.Size == 4 {
		return float64(math.Float32frombits(uint32(v.U)))
	}
	return math.Float64frombits(v.U)
}

// MaxString is how many bytes of a string are kept, with its zero (the kernel: PATH_MAX).
const MaxString = 4096

// Field is a named value of an event's record: one of those that all have (common_pid …),
// __probe_ip, or an argument.
type Field struct {
	Name string
	Type Type
	Enum map[int64]string // as in Arg
	// IsDynamic says that another kind of value is absent: what there is, each hit tells.
	IsDynamic bool
}

// Value is a field's value at a hit.
type Value struct {
	U     uint64  // numbers, extended to 64 bits by their sign; of a Float its bits
	S     string  // strings, and symbols as text
	Elems []Value // of an array
	Fault bool    // memory that could not be read; U is 0 then
	// Absent tells of a Fault that there is no such element. No filter compares it.
	Absent bool
	IsCut  bool // S may be only how a text begins
}
