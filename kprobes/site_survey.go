package kprobes

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"sort"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/procfs"
)

// survey is what a registration has found out about the target. It is kept during one
// call only, for the probes that follow in it.
type survey struct {
	maps  []procfs.Mapping
	pages map[arch.Addr][]byte // code without patches

	functions map[arch.Range]*decoded
	decoded   uint64 // bytes of those
	analyses  analyses

	critical []arch.Range // restartable sequences
	searched bool

	shadow *bool

	beset map[arch.Range]bool // mappings: whether others have breakpoints there
}

// decoded is the instructions of one function, as far as they were decoded.
type decoded struct {
	code   []byte
	starts []arch.Addr
	next   arch.Addr
}

func (d *domain) surveyed() *survey {
	if d.survey == nil {
		d.survey = &survey{pages: map[arch.Addr][]byte{}, functions: map[arch.Range]*decoded{}}
	}
	return d.survey
}

func (v *survey) mappings(d *domain) ([]procfs.Mapping, error) {
	if v.maps != nil {
		return v.maps, nil
	}
	if _, err := d.space.TID(); err != nil {
		return nil, ErrExited
	}
	var err error
	if v.maps, err = d.space.Maps(); err != nil {
		return nil, fmt.Errorf("reading the process's mappings: %w", err)
	}
	d.neighbours.noteCalls(v.maps)
	return v.maps, nil
}

// mapping returns the mapping that contains at, nil if none does.
func (v *survey) mapping(d *domain, at arch.Addr) (*procfs.Mapping, error) {
	maps, err := v.mappings(d)
	i := sort.Search(len(maps), func(i int) bool { return maps[i].Range.End > at })
	if err != nil || i == len(maps) || !maps[i].Range.Contains(at) {
		return nil, err
	}
	return &maps[i], nil
}

// shadowStack tells whether the process's calls and returns are followed by one.
func (v *survey) shadowStack(d *domain) (bool, error) {
	if v.shadow == nil {
		tid, err := d.space.TID()
		if err != nil {
			return false, err
		}
		st, err := procfs.ReadStatus(tid, 0)
		on := err == nil && st.ShadowStack
		v.shadow = &on
	}
	return *v.shadow, nil
}

// original reads up to n bytes of unpatched code; fewer if the mapping ends.
func (v *survey) original(d *domain, at arch.Addr, n int) ([]byte, error) {
	const size = 4096
	code := make([]byte, 0, min(n, 1<<16))
	for len(code) < n {
		from := at.Add(int64(len(code)))
		page, err := v.page(d, from&^(size-1), size)
		if err != nil && len(code) == 0 {
			return nil, fmt.Errorf("%w: %w", ErrNotMapped, err)
		} else if err != nil {
			break
		}
		page = page[from%size:]
		code = append(code, page[:min(len(page), n-len(code))]...)
	}
	return code, nil
}

// Limits of what a survey keeps: pages, bytes of functions that were decoded, and the longest that is.
const (
	mostPages   = 1 << 13
	mostKept    = 16 << 20
	longestKept = 4 << 20
)

func (v *survey) page(d *domain, at arch.Addr, size int) ([]byte, error) {
	if page, ok := v.pages[at]; ok {
		return page, nil
	}
	if len(v.pages) >= mostPages {
		clear(v.pages)
	}
	page := make([]byte, size)
	if err := d.text.Original(at, page); err != nil {
		return nil, err
	}
	v.pages[at] = page
	return page, nil
}

// decodeTo decodes fn from its start until it reaches or passes at.
func (v *survey) decodeTo(d *domain, fn arch.Range, at arch.Addr) (*decoded, error) {
	f := v.functions[fn]
	if f == nil {
		if fn.Len() > longestKept {
			return nil, fmt.Errorf("%w: its function has %d MiB, which are not decoded", ErrUndecodable, fn.Len()>>20)
		}
		if v.decoded += fn.Len(); v.decoded > mostKept {
			clear(v.functions)
			v.decoded = fn.Len()
		}
		code, err := v.original(d, fn.Start, int(fn.Len()))
		if err != nil {
			return nil, err
		}
		f = &decoded{code: code, next: fn.Start}
		v.functions[fn] = f
	}
	for f.next < at {
		insn, err := host.Arch.Decode(f.code[min(uint64(f.next-fn.Start), uint64(len(f.code))):], f.next)
		if err != nil {
			return nil, fmt.Errorf("%w: at %s, between the function's start %s and it: %w", ErrUndecodable, f.next, fn.Start, err)
		}
		f.starts = append(f.starts, f.next)
		f.next = insn.End()
	}
	return f, nil
}

// mostSequences is how many restartable sequences of a module are known. Allocators and C libraries have a handful.
const mostSequences = 1 << 14

// sequences lists the restartable sequences (rseq(2)) of all modules, by address, from the
// descriptors that the linker collects: struct rseq_cs in section __rseq_cs
// (include/uapi/linux/rseq.h). A stop inside of one aborts it, and it would be tried
// again for ever.
func (v *survey) sequences(d *domain) []arch.Range {
	if v.searched {
		return v.critical
	}
	v.searched = true
	const size, signature = 32, 4 // the kernel looks at what stands before the abort address
	for _, section := range d.symbols().Sections("__rseq_cs") {
		b := make([]byte, min(section.Len(), mostSequences*size))
		if d.space.ReadMemory(section.Start, b) != nil {
			continue
		}
		for ; len(b) >= size; b = b[size:] {
			start := arch.Addr(binary.LittleEndian.Uint64(b[8:]))
			length := binary.LittleEndian.Uint64(b[16:])
			abort := arch.Addr(binary.LittleEndian.Uint64(b[24:]))
			v.critical = append(v.critical, arch.Range{Start: start, End: start + arch.Addr(length)},
				arch.Range{Start: abort - signature, End: abort})
		}
	}
	v.critical = merged(v.critical)
	return v.critical
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
