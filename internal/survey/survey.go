// Package survey is what has been found out about a target in one call of its tracer, for what follows in that call: its mappings, its code as
// it is without patches, where instructions of functions begin. Each is asked for once. A Survey does not outlive the call, since
// the target runs on after it.
package survey

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"sort"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/procfs"
)

// Target is what a Survey asks.
type Target interface {
	Maps() ([]procfs.Mapping, error) // by address
	// Original reads code as it is without patches; ReadMemory what is there.
	Original(at arch.Addr, p []byte) error
	ReadMemory(at arch.Addr, p []byte) error
	// Decode decodes the first instruction of code.
	Decode(code []byte, at arch.Addr) (arch.Insn, error)
	// Sequences are the sections in which modules tell of restartable sequences.
	Sequences() []arch.Range
	// ShadowStack tells whether the process's calls and returns are followed by one.
	ShadowStack() (bool, error)
}

// Survey is for one goroutine.
type Survey struct {
	target Target
	maps   []procfs.Mapping
	pages  map[arch.Addr][]byte // code without patches

	functions map[arch.Range]*Function
	decoded   uint64 // bytes of those

	critical []arch.Range // restartable sequences
	searched bool

	shadow *bool
}

// New begins a survey, in which nothing is known.
func New(target Target) *Survey {
	return &Survey{target: target, pages: map[arch.Addr][]byte{}, functions: map[arch.Range]*Function{}}
}

// Mappings are those of the target, by address. They must not be changed.
func (v *Survey) Mappings() ([]procfs.Mapping, error) {
	if v.maps != nil {
		return v.maps, nil
	}
	var err error
	v.maps, err = v.target.Maps()
	return v.maps, err
}

// Mapping returns the mapping that contains at, nil if none does.
func (v *Survey) Mapping(at arch.Addr) (*procfs.Mapping, error) {
	maps, err := v.Mappings()
	i := sort.Search(len(maps), func(i int) bool { return maps[i].Range.End > at })
	if err != nil || i == len(maps) || !maps[i].Range.Contains(at) {
		return nil, err
	}
	return &maps[i], nil
}

// ShadowStack tells whether the process's calls and returns are followed by one.
func (v *Survey) ShadowStack() (bool, error) {
	if v.shadow == nil {
		on, err := v.target.ShadowStack()
		if err != nil {
			return false, err
		}
		v.shadow = &on
	}
	return *v.shadow, nil
}

// ReadError is why code could not be read.
type ReadError struct{ Err error }

// Error implements error.
func (e *ReadError) Error() string { return e.Err.Error() }

// Unwrap is what reading said.
func (e *ReadError) Unwrap() error { return e.Err }

// Original reads up to n bytes of unpatched code; fewer if the mapping ends. Where there are none, the error is a *ReadError.
func (v *Survey) Original(at arch.Addr, n int) ([]byte, error) {
	code := make([]byte, 0, min(n, 1<<16))
	for len(code) < n {
		from := at.Add(int64(len(code)))
		page, err := v.page(from &^ (pageSize - 1))
		if err != nil && len(code) == 0 {
			return nil, &ReadError{err}
		} else if err != nil {
			break
		}
		page = page[from%pageSize:]
		code = append(code, page[:min(len(page), n-len(code))]...)
	}
	return code, nil
}

const pageSize = 4096

// Limits of what a survey keeps: pages, bytes of functions that were decoded, and the longest that is.
const (
	mostPages   = 1 << 13
	mostKept    = 16 << 20
	longestKept = 4 << 20
)

func (v *Survey) page(at arch.Addr) ([]byte, error) {
	if page, ok := v.pages[at]; ok {
		return page, nil
	}
	if len(v.pages) >= mostPages {
		clear(v.pages)
	}
	page := make([]byte, pageSize)
	if err := v.target.Original(at, page); err != nil {
		return nil, err
	}
	v.pages[at] = page
	return page, nil
}

// Function is the instructions of a function, as far as they were decoded.
type Function struct {
	bounds arch.Range
	code   []byte
	starts []arch.Addr
	next   arch.Addr
}

// Begins tells whether an instruction begins at a place up to which the function was decoded. Else it is inside of the one at start.
func (f *Function) Begins(at arch.Addr) (start arch.Addr, begins bool) {
	i := sort.Search(len(f.starts), func(i int) bool { return f.starts[i] >= at })
	if i < len(f.starts) && f.starts[i] == at || i == len(f.starts) && f.next == at {
		return at, true
	}
	return f.starts[i-1], false
}

// Code is the function's from a place on.
func (f *Function) Code(at arch.Addr) []byte {
	return f.code[min(uint64(at-f.bounds.Start), uint64(len(f.code))):]
}

// DecodeTo decodes the function with those bounds from its start until it reaches or passes at. The error is a *ReadError, or says why it can't be
// decoded.
func (v *Survey) DecodeTo(fn arch.Range, at arch.Addr) (*Function, error) {
	f := v.functions[fn]
	if f == nil {
		if fn.Len() > longestKept {
			return nil, fmt.Errorf("its function has %d MiB, which are not decoded", fn.Len()>>20)
		}
		if v.decoded += fn.Len(); v.decoded > mostKept {
			clear(v.functions)
			v.decoded = fn.Len()
		}
		code, err := v.Original(fn.Start, int(fn.Len()))
		if err != nil {
			return nil, err
		}
		f = &Function{bounds: fn, code: code, next: fn.Start}
		v.functions[fn] = f
	}
	for f.next < at {
		insn, err := v.target.Decode(f.Code(f.next), f.next)
		if err != nil {
			return nil, fmt.Errorf("at %s, between the function's start %s and it: %w", f.next, fn.Start, err)
		}
		f.starts = append(f.starts, f.next)
		f.next = insn.End()
	}
	return f, nil
}

// Restartable finds the restartable sequence (rseq(2)) that at is in. A stop inside of one aborts it, and it would be tried
// again for ever.
func (v *Survey) Restartable(at arch.Addr) (r arch.Range, inside bool) {
	if !v.searched {
		v.searched = true
		v.critical = v.sequences()
	}
	i := sort.Search(len(v.critical), func(i int) bool { return v.critical[i].End > at })
	if i < len(v.critical) && v.critical[i].Contains(at) {
		return v.critical[i], true
	}
	return r, false
}

// mostSequences is how many restartable sequences of a module are known. Allocators and C libraries have a handful.
const mostSequences = 1 << 14

// sequences lists the restartable sequences of all modules, by address, from the
// descriptors that the linker collects: struct rseq_cs in section __rseq_cs
// (include/uapi/linux/rseq.h).
func (v *Survey) sequences() (all []arch.Range) {
	const size, signature = 32, 4 // the kernel looks at what stands before the abort address
	for _, section := range v.target.Sequences() {
		b := make([]byte, min(section.Len(), mostSequences*size))
		if v.target.ReadMemory(section.Start, b) != nil {
			continue
		}
		for ; len(b) >= size; b = b[size:] {
			start := arch.Addr(binary.LittleEndian.Uint64(b[8:]))
			length := binary.LittleEndian.Uint64(b[16:])
			abort := arch.Addr(binary.LittleEndian.Uint64(b[24:]))
			all = append(all, arch.Range{Start: start, End: start + arch.Addr(length)},
				arch.Range{Start: abort - signature, End: abort})
		}
	}
	return merged(all)
}

// merged is the ranges by address, those that overlap as one.
func merged(ranges []arch.Range) []arch.Range {
	ranges = slices.DeleteFunc(ranges, func(r arch.Range) bool { return r.Start >= r.End })
	slices.SortFunc(ranges, func(a, b arch.Range) int { return cmp.Compare(a.Start, b.Start) })
	out := ranges[:0]
	for _, r := range ranges {
		if n := len(out); n > 0 && r.Start < out[n-1].End {
			out[n-1].End = max(out[n-1].End, r.End)
		} else {
			out = append(out, r)
		}
	}
	return out
}
