package kprobes

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"
	"sort"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/ptrace"
	"github.com/gokprobe/gokprobe/reach"
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
	texts map[arch.Addr]*text // by the beginning of an executable range
}

// text is an executable range of a module.
type text struct {
	code     []byte
	branches []branch // by where they lead to
}

// NewCode looks at a process or file by its symbols and its memory, without patches.
func NewCode(table *symbols.Table, mem arch.Memory) *Code {
	return &Code{table, mem, map[arch.Addr]*text{}}
}

// EachInsn calls f for each place of the function with bounds fn, by address: for its instructions with nil, and for what else decodes in
// it, padding aside, with ErrUnreached or ErrUnresolved. A landing pad at the entry is left out. The error says why a part of the function can't be decoded.
func (c *Code) EachInsn(fn arch.Range, f func(i arch.Insn, why error)) error {
	code := make([]byte, fn.Len())
	if err := c.mem.ReadMemory(fn.Start, code); err != nil {
		return err
	}
	skip := fn.Start.Add(int64(ptrace.Host.EntrySkip(code)))
	host, ok := ptrace.Host.(reach.Host)
	if !ok || c.table.GoFunction(fn.Start) { // Go's compiler and assembler put no data into text
		return sweep(code, arch.Range{Start: fn.Start, End: fn.End}, func(i arch.Insn) {
			if i.Addr >= skip {
				f(i, nil)
			}
		})
	}
	found := reach.Analyze(host, reach.Function{
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

// sweep decodes r, of which code has the bytes, one instruction after the other, up to the first that can't be.
func sweep(code []byte, r arch.Range, f func(arch.Insn)) error {
	for at := r.Start; at < r.End; {
		insn, err := ptrace.Host.Decode(code[at-r.Start:], at)
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

// branch is what looks like a direct branch with a 32-bit displacement.
type branch struct{ from, to arch.Addr }

// branchesInto lists where other functions branch into fn behind its entry: its part that the compiler has split off does. Every place of
// the text is looked at that could be such a branch; it counts if decoding the function around it comes to it.
func (c *Code) branchesInto(fn arch.Range) []arch.Addr {
	text, ok := c.textOf(fn.Start)
	if !ok {
		return nil
	}
	t := c.text(text)
	var found []arch.Addr
	i := sort.Search(len(t.branches), func(i int) bool { return t.branches[i].to > fn.Start })
	for ; i < len(t.branches) && t.branches[i].to < fn.End; i++ {
		if br := t.branches[i]; !fn.Contains(br.from) && c.begins(br.from, t.code, text.Start) {
			found = append(found, br.to)
		}
	}
	return found
}

// branchesIn lists what looks like branches in code at start, by where they lead to.
func branchesIn(code []byte, start arch.Addr) []branch {
	var all []branch
	for i := 0; i+jumpRoom < len(code); i++ {
		at := i
		switch {
		case code[i] == 0xe8, code[i] == 0xe9:
		case code[i] == 0x0f && code[i+1]&0xf0 == 0x80:
			at++
		default:
			continue
		}
		end := start + arch.Addr(at+jumpRoom)
		to := end.Add(int64(int32(binary.LittleEndian.Uint32(code[at+1:]))))
		if to >= start && to < start+arch.Addr(len(code)) {
			all = append(all, branch{start + arch.Addr(i), to})
		}
	}
	slices.SortFunc(all, func(a, b branch) int { return cmp.Compare(a.to, b.to) })
	return all
}

// begins tells that an instruction begins at at, by decoding its function from the start.
func (c *Code) begins(at arch.Addr, code []byte, start arch.Addr) bool {
	fn, known := c.table.Function(at)
	if !known || fn.Start < start || fn.End > start+arch.Addr(len(code)) {
		return false
	}
	var starts []arch.Addr
	_ = sweep(code[fn.Start-start:], arch.Range{Start: fn.Start, End: at + 1}, func(i arch.Insn) { starts = append(starts, i.Addr) })
	i := sort.Search(len(starts), func(i int) bool { return starts[i] >= at })
	return i < len(starts) && starts[i] == at
}

// text reads an executable range, as far as it can be read.
func (c *Code) text(r arch.Range) *text {
	t := c.texts[r.Start]
	if t == nil {
		t = &text{code: make([]byte, r.Len())}
		if c.mem.ReadMemory(r.Start, t.code) != nil {
			t.code = nil
		}
		t.branches = branchesIn(t.code, r.Start)
		c.texts[r.Start] = t
	}
	return t
}
