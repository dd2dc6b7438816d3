package kprobes

import (
	"cmp"
	"errors"
	"slices"
	"sort"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/reach"
	"github.com/gokprobe/gokprobe/internal/syscallsites"
	"github.com/gokprobe/gokprobe/symbols"
)

// Why a place in a function is none of its instructions, as far as can be known. A probe can still be placed there by its address.
var (
	ErrUnreached  = errors.New("no path of the function leads there, so it may be data")
	ErrUnresolved = errors.New("only a jump whose targets are not known may lead there, so it may be data")
)

// Code tells which places of functions are instructions, in a process or file. Use it from one goroutine.
type Code struct {
	table *symbols.Table
	mem   arch.Memory
	texts map[arch.Addr]text // by the beginning of an executable range

	last    arch.Range  // the function that was decoded last
	starts  []arch.Addr // its instructions
	decoded int         // bytes that were, for one function
}

// text lists byte sequences that look like branches in an executable range of a module,
// by where they lead to.
type text []branch

// mostBranches is how many branches of a range are known: those of 100 MB of compiled code.
const mostBranches = 1 << 21

// NewCode looks at a process or file by its symbols and its memory, without patches.
func NewCode(table *symbols.Table, mem arch.Memory) *Code {
	return &Code{table: table, mem: mem, texts: map[arch.Addr]text{}}
}

// EachInsn calls f for each place of the function with bounds fn, by address: for its instructions with nil, and for what else decodes in
// it, padding aside, with ErrUnreached or ErrUnresolved. A landing pad at the entry is left out. The error says why a part of the function can't be decoded.
func (c *Code) EachInsn(fn arch.Range, f func(i arch.Insn, why error)) error {
	if fn.Len() > longestFunction {
		return errLongFunction
	}
	code := make([]byte, fn.Len())
	if err := c.mem.ReadMemory(fn.Start, code); err != nil {
		return err
	}
	skip := fn.Start.Add(int64(host.Arch.EntrySkip(code)))
	followed, ok := host.Arch.(reach.Host)
	if !ok || c.table.GoFunction(fn.Start) { // Go's compiler and assembler put no data into text
		return sweep(code, arch.Range{Start: fn.Start, End: fn.End}, func(i arch.Insn) {
			if i.Addr >= skip {
				f(i, nil)
			}
		})
	}
	found := reach.Analyze(followed, reach.Function{
		Range: fn, Code: code, Memory: c.mem, IsCode: c.inText,
		Pointers: func() []arch.Addr { return c.table.Pointers(fn) },
		Entries:  append(c.table.Entrances(fn), c.branchesInto(fn)...),
	})
	left, why := found.Left, ErrUnreached
	if found.Unresolved > 0 {
		why = ErrUnresolved
	}
	unreached := func(r arch.Range) {
		_ = sweep(code[r.Start-fn.Start:], r, func(i arch.Insn) { f(i, why) })
	}
	for _, i := range found.Insns {
		for len(left) > 0 && left[0].Start < i.Addr {
			unreached(left[0])
			left = left[1:]
		}
		if i.Addr >= skip {
			f(i, nil)
		}
	}
	for _, r := range left {
		unreached(r)
	}
	if len(found.Undecodable) > 0 {
		return found.Undecodable[0]
	}
	return nil
}

// sweep decodes r, whose bytes are in code, one instruction after the other, up to the
// first that can't be decoded.
func sweep(code []byte, r arch.Range, f func(arch.Insn)) error {
	for at := r.Start; at < r.End; {
		insn, err := host.Arch.Decode(code[at-r.Start:], at)
		if err != nil {
			return err
		}
		f(insn)
		at = insn.End()
	}
	return nil
}

// inText tells that a lies in executable memory of a module.
func (c *Code) inText(a arch.Addr) bool {
	_, ok := c.textOf(a)
	return ok
}

func (c *Code) textOf(a arch.Addr) (arch.Range, bool) {
	for _, m := range c.table.Modules() {
		for _, r := range m.Text {
			if r.Contains(a) {
				return r, true
			}
		}
	}
	return arch.Range{}, false
}

// branch is a byte sequence that looks like a direct branch with a 32-bit displacement.
type branch struct{ from, to arch.Addr }

// branchesInto lists where other functions branch into fn behind its entry: its part that the compiler has split off does. Every place of
// the text is looked at that could be such a branch; it counts if decoding the function around it comes to it.
func (c *Code) branchesInto(fn arch.Range) []arch.Addr {
	text, ok := c.textOf(fn.Start)
	if !ok {
		return nil
	}
	all := c.text(text)
	c.decoded = 0
	var found []arch.Addr
	i := sort.Search(len(all), func(i int) bool { return all[i].to > fn.Start })
	for ; i < len(all) && all[i].to < fn.End && len(found) < mostInto; i++ {
		if br := all[i]; !fn.Contains(br.from) && c.begins(br.from, text) {
			found = append(found, br.to)
		}
	}
	return found
}

// How many branches into one function are known, and how many bytes of others are decoded for that.
const (
	mostInto  = 1 << 12
	mostSwept = 16 << 20
)

// begins tells that an instruction begins at at, by decoding its function from the start.
func (c *Code) begins(at arch.Addr, text arch.Range) bool {
	fn, known := c.table.Function(at)
	if !known || fn.Start < text.Start || fn.End > text.End || fn.Len() > longestFunction {
		return false
	}
	if c.last != fn {
		code := make([]byte, fn.Len())
		if c.decoded += len(code); c.decoded > mostSwept || c.mem.ReadMemory(fn.Start, code) != nil {
			return false
		}
		c.last, c.starts = fn, c.starts[:0]
		_ = sweep(code, fn, func(i arch.Insn) { c.starts = append(c.starts, i.Addr) })
	}
	_, begins := slices.BinarySearch(c.starts, at)
	return begins
}

// text searches an executable range, as far as it can be read, for bytes that look like
// direct branches with a 32-bit displacement. Where there are too many, or there is too
// much code, none are known: what only they lead to is left out then, as data is.
func (c *Code) text(r arch.Range) text {
	all, known := c.texts[r.Start]
	if known {
		return all
	}
	c.texts[r.Start] = nil
	if r.Len() > syscallsites.MostCode {
		return nil
	}
	const (
		codeWindow = 1 << 20 // bytes that are looked at at once
		behind     = 8       // a branch has six bytes
	)
	buf := make([]byte, codeWindow+behind)
	for at := r.Start; at < r.End; at += codeWindow {
		code := buf[:min(uint64(len(buf)), uint64(r.End-at))]
		if c.mem.ReadMemory(at, code) != nil {
			break
		}
		host.Arch.EachBranch(code, at, func(from, to arch.Addr) {
			if r.Contains(to) && from < at+codeWindow && len(all) <= mostBranches {
				all = append(all, branch{from, to})
			}
		})
		if len(all) > mostBranches {
			return nil
		}
	}
	slices.SortFunc(all, func(a, b branch) int { return cmp.Compare(a.to, b.to) })
	c.texts[r.Start] = all
	return all
}
