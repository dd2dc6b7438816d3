package kprobes

import (
	"errors"
	"sort"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/optimize"
	"github.com/gokprobe/gokprobe/symbols"
)

// Preview tells, without a session, whether probes would be reached by jumps. Use it from one
// goroutine.
type Preview struct {
	table    *symbols.Table
	mem      arch.Memory
	analyses analyses
}

// NewPreview looks at a process or file by its symbols and its memory, without patches.
func NewPreview(table *symbols.Table, mem arch.Memory) *Preview {
	return &Preview{table: table, mem: mem}
}

// Optimizable returns nil if a probe at the instruction at at would be reached by a jump,
// provided that its work can be done in the target and that there is room where the jump may
// lead; else an error that says why not.
func (p *Preview) Optimizable(at arch.Addr) error {
	if host.Detours == nil {
		return errors.New("this architecture has no optimized probes")
	}
	_, err := p.analyses.choose(p.table, at, func(at arch.Addr, n int) ([]byte, error) {
		code := readable(p.mem, at, n)
		if len(code) == 0 {
			return nil, ErrNotMapped
		}
		return code, nil
	})
	return err
}

// readable reads up to n bytes: less where no more can be read.
func readable(mem arch.Memory, at arch.Addr, n int) []byte {
	const page = 4096
	code := make([]byte, n)
	if mem.ReadMemory(at, code) == nil {
		return code
	}
	for got := 0; got < n; {
		piece := code[got:min(n, got+page-int(at.Add(int64(got))%page))]
		if mem.ReadMemory(at.Add(int64(got)), piece) != nil {
			return code[:got+sort.Search(len(piece), func(i int) bool { return mem.ReadMemory(at.Add(int64(got)), piece[:i+1]) != nil })]
		}
		got += len(piece)
	}
	return code
}

// analyses is decoded functions. The zero value is ready.
type analyses struct {
	known map[arch.Range]analysed
	bytes uint64 // of code
}

// mostAnalysed is how many bytes of code a survey keeps decoded, and longestFunction how many of one function. The longest
// that are known, interpreters' main loops, have some hundred KiB.
const (
	mostAnalysed    = 2 << 20
	longestFunction = 1 << 20
)

type analysed struct {
	*optimize.Analysis
	err error
}

// remembered is what is known of functions, in all sessions and processes: libraries are the same in most of them. Libcrypto and a JVM together have some 20 MB of code.
var remembered = optimize.Memo{Most: 24 << 20}

// choose asks which jumps a probe at at may have. read fills in code, as much as there is.
func (as *analyses) choose(table *symbols.Table, at arch.Addr, read func(arch.Addr, int) ([]byte, error)) (*optimize.Choice, error) {
	bounds, ok := table.Function(at)
	if !ok {
		return nil, errNoFunction
	}
	if bounds.Len() > longestFunction {
		return nil, errLongFunction
	}
	const tail = 32
	an, ok := as.known[bounds]
	if !ok {
		if as.bytes += bounds.Len(); as.known == nil || as.bytes > mostAnalysed {
			as.known, as.bytes = map[arch.Range]analysed{}, bounds.Len()
		}
		code, err := read(bounds.Start, int(bounds.Len())+tail)
		an.err = err
		if err == nil {
			f := optimize.Function{Range: bounds, Code: code, Next: bounds.End.Add(tail)}
			an.Analysis, an.err = remembered.Analyze(host.Arch, host.Detours, f)
		}
		as.known[bounds] = an
	}
	if an.err != nil {
		return nil, an.err
	}
	if at.Add(int64(host.Detours.JumpLen())) > bounds.End {
		return an.Before(nextFunction(table, bounds.End, tail)).Site(at)
	}
	return an.Site(at) // what follows does not matter
}

var errNoFunction = errors.New("no function is known there, so jumps into the optimized region can't be ruled out")

var errLongFunction = errors.New("its function is longer than 1 MiB, which is not decoded")

// nextFunction is where what follows end begins, or limit bytes from there.
func nextFunction(table *symbols.Table, end arch.Addr, limit int) arch.Addr {
	for a := end; a < end.Add(int64(limit)); a++ {
		bounds, known := table.Function(a)
		if _, data := table.DataInText(a); data || known && bounds.Start >= end {
			return a
		}
	}
	return end.Add(int64(limit))
}
