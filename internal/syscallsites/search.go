package syscallsites

import (
	"bytes"
	"fmt"

	"github.com/gokprobe/gokprobe/arch"
)

// Program is what the search asks of the program whose code it is.
type Program interface {
	// Original reads code as it is without our patches.
	Original(at arch.Addr, p []byte) error
	// Know sees to it that all is known about a place that is to be known. Wanted is called every now and then. An error of either ends the search.
	Know(at arch.Addr) error
	Wanted() error
	// Function is the function around a place, if its bounds are known.
	Function(at arch.Addr) (bounds arch.Range, known bool)
	// Symbol is the symbol at a place, or the last in front of it.
	Symbol(at arch.Addr) (name string, start arch.Addr, size uint64, known bool)
	// IsData tells that a symbol says of a place that it is no code.
	IsData(at arch.Addr) bool
	// Place is what a place is called.
	Place(at arch.Addr) string
}

// Search is about the code in one mapping.
type Search struct {
	Host    Host
	JumpLen int // length in bytes of the jump that a site is to have room for
	Program Program
	Range   arch.Range // what is searched
	Name    string     // of the mapping
	// Chosen tells of instructions, by the last bytes in front of each, whether they are of interest. nil: all.
	Chosen func(before []byte) bool
	// Unknown: what is in no function that is known is told of, as a gap.
	Unknown bool
}

// Found is what was found in a mapping.
type Found struct {
	Functions []*Function // that make system calls
	Gaps      []Gap
	Short     string // why there may be more
}

// What is searched of the code in one mapping. Programs that generate theirs reserve hundreds of MiB, and fill little; no library is known to
// make system calls at a thousand places.
const (
	MostCode     = 256 << 20 // bytes
	mostPlaces   = 1 << 14   // where there are the bytes of the instruction
	MostUnknown  = 128       // those outside of all known functions
	longestCode  = 1 << 20   // bytes of one function
	mostDecoded  = 2 << 20   // bytes of all functions
	window       = 1 << 20   // bytes that are looked at at once
	mostSearched = 4096      // instructions that are followed from one
	before       = 48        // bytes in front of a call, in which its number is loaded
)

// search is a Search in progress.
type search struct {
	Search
	Found

	known   map[arch.Range]*Function
	last    arch.Range // the bounds of the last function of which only the beginning is known
	places  int
	unknown int
	decoded uint64
}

func (c *search) gap(format string, args ...any) {
	c.Gaps = append(c.Gaps, Gap{AnyNumber, fmt.Sprintf(format, args...)})
}

// Run decodes the functions that make system calls, by instructions of interest. What has no end is not searched to the end: Short says so.
func (s Search) Run() (*Found, error) {
	c := &search{Search: s, known: map[arch.Range]*Function{}}
	if s.Range.Len() > MostCode {
		return nil, fmt.Errorf("the code at %s is too large to be searched: %d MiB", s.Range.Start, s.Range.Len()>>20)
	}
	var unwanted error
	err := Windows(s.Program, s.Range, func(own arch.Range, start arch.Addr, code []byte) bool {
		for _, at := range occurrences(code, start, s.Host.SyscallInsn()) {
			if own.Contains(at) && (s.Chosen == nil || s.Chosen(code[max(int(at-start)-before, 0):at-start])) {
				if unwanted = c.look(at); unwanted != nil || c.Short != "" {
					return false
				}
			}
		}
		unwanted = s.Program.Wanted()
		return unwanted == nil
	})
	if unwanted != nil {
		err = unwanted
	}
	if err != nil || len(c.Functions) == 0 {
		return &c.Found, err
	}
	entrances := newEntranceMap(s.Host, c.Functions, s.Range)
	return &c.Found, Windows(s.Program, s.Range, func(own arch.Range, start arch.Addr, code []byte) bool {
		entrances.note(own, start, code)
		return true
	})
}

// look is about a place that has the bytes of the instruction.
func (c *search) look(at arch.Addr) error {
	if c.places++; c.places > mostPlaces {
		c.Short = fmt.Sprintf("there are more places that may be system calls in %s than are looked at", c.Name)
		return nil
	}
	if err := c.Program.Know(at); err != nil {
		return err
	}
	c.add(at)
	return nil
}

// Windows reads code of a program, as it is without us, a piece at a time: own, with what lies around it that an instruction may reach from
// or into. start is where code begins.
func Windows(p Program, r arch.Range, f func(own arch.Range, start arch.Addr, code []byte) bool) error {
	const behind = 16 // no instruction is longer
	buf := make([]byte, before+min(window, r.Len())+behind)
	for own := r; own.Start < r.End; own.Start = own.End {
		own.End = min(own.Start+window, r.End)
		start, end := max(own.Start-before, r.Start), min(own.End+behind, r.End)
		code := buf[:end-start]
		if err := p.Original(start, code); err != nil {
			return err
		}
		if !f(own, start, code) {
			return nil
		}
	}
	return nil
}

// add takes note of what may be a system call.
func (c *search) add(at arch.Addr) {
	bounds, known := c.Program.Function(at)
	if !known {
		bounds, known = c.functionAround(at)
	}
	if !known {
		c.addUnknown(at)
		return
	}
	f := c.known[bounds]
	if f == nil {
		if f = c.decode(bounds); f == nil {
			return
		}
	}
	if f.err != nil && at >= f.end {
		c.gap("what may be a system call at %s can't be decoded: %v", c.Program.Place(at), f.err)
	} else if j, ok := f.Index(at); ok {
		f.calls = append(f.calls, j)
	}
}

// addUnknown is add for what is in no function that is known.
func (c *search) addUnknown(at arch.Addr) {
	if !c.Unknown || c.unknown > MostUnknown {
		return
	}
	if c.unknown++; c.unknown > MostUnknown {
		c.gap("what may be a system call at %s is one of too many in no function that is known", c.Program.Place(at))
		return
	}
	if !c.Program.IsData(at) && !c.inData(at) {
		c.gap("what may be a system call at %s is in no function that is known", c.Program.Place(at))
	}
}

// decode is the function with those bounds, nil if that is too much.
func (c *search) decode(bounds arch.Range) *Function {
	part := arch.Range{Start: max(bounds.Start, c.Range.Start), End: min(bounds.End, c.Range.End)}
	if c.decoded += part.Len(); part.Len() > longestCode || c.decoded > mostDecoded {
		c.Short = fmt.Sprintf("functions that make system calls, as that at %s, are longer than is looked at", c.Program.Place(bounds.Start))
		return nil
	}
	code := make([]byte, part.Len())
	if err := c.Program.Original(part.Start, code); err != nil {
		c.Short = err.Error()
		return nil
	}
	f := newFunction(c.Host, c.JumpLen, arch.Range{Start: part.Start, End: bounds.End}, code)
	c.known[bounds], c.Functions = f, append(c.Functions, f)
	return f
}

// functionAround is the function around at of which only the beginning is known, as of those that are written in assembly.
func (c *search) functionAround(at arch.Addr) (bounds arch.Range, known bool) {
	const longest = 4096
	if c.last.Contains(at) && at-c.last.Start <= longest {
		return c.last, true
	}
	name, start, size, ok := c.Program.Symbol(at)
	if !ok || size != 0 || at-start > longest || start < c.Range.Start {
		return bounds, false
	}
	bounds.Start, bounds.End = start, at
	for bounds.End < c.Range.End && bounds.End-at < longest {
		next, _, _, ok := c.Program.Symbol(bounds.End)
		if _, other := c.Program.Function(bounds.End); other || !ok || next != name {
			break
		}
		bounds.End++
	}
	c.last = bounds
	return bounds, true
}

// inData tells of what may be a system call outside of all functions that are known that it is data, as tables of constants
// between functions are. What stands between two functions is data if it can't be decoded from one to the other; unless a constant for the
// number seems to be loaded right in front.
func (c *search) inData(at arch.Addr) bool {
	const furthest = 1 << 16
	known := func(a arch.Addr) bool { _, ok := c.Program.Function(a); return ok }
	from, to := at, at
	for from > c.Range.Start && at-from < furthest && !known(from-1) {
		from--
	}
	for to < c.Range.End && to-at < furthest && !known(to) {
		to++
	}
	code := make([]byte, min(to+arch.Addr(c.Host.MaxInsnLen()), c.Range.End)-from)
	if c.Program.Original(from, code) != nil {
		return false
	}
	for length := arch.Addr(2); length <= 10 && from+length <= at; length++ { // of a load
		insn, err := c.Host.Decode(code[at-length-from:at-from], at-length)
		if err == nil && insn.End() == at && numberBehind(c.Host, insn, AnyNumber) != AnyNumber {
			return false
		}
	}
	for pc := from; pc < to; {
		insn, err := c.Host.Decode(code[pc-from:], pc)
		if err != nil {
			return true
		}
		pc = insn.End()
	}
	return false
}

// occurrences are where code, which is at start, has the bytes of the instruction call.
func occurrences(code []byte, start arch.Addr, call []byte) (all []arch.Addr) {
	for from := 0; ; {
		i := bytes.Index(code[from:], call)
		if i < 0 {
			return all
		}
		all = append(all, start+arch.Addr(from+i))
		from += i + 1
	}
}
