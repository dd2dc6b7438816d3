package recovery

import (
	"cmp"
	"slices"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/patch"
)

// patchedMemory shows memory as it was before it was patched.
type patchedMemory struct {
	mem     arch.Memory
	records recordIndex
}

func (m patchedMemory) ReadMemory(at arch.Addr, p []byte) error {
	if err := m.mem.ReadMemory(at, p); err != nil {
		return err
	}
	m.records.undo(at, p)
	return nil
}

// insn decodes the original instruction at at.
func (m patchedMemory) insn(at arch.Addr) (arch.Insn, error) {
	b := make([]byte, host.Arch.MaxInsnLen())
	for len(b) > 0 {
		if err := m.ReadMemory(at, b); err == nil {
			break
		}
		b = b[:len(b)-1] // the mapping ends before
	}
	return host.Arch.Decode(b, at)
}

// recordIndex finds the records about some bytes, of however many.
type recordIndex struct {
	records []patch.Entry // the newest first
	// byAddr are those in order of address, and of these the oldest first; without such as an older one at the same address hides,
	// since it is as long: so there are no more of one address than a record has bytes.
	byAddr  []indexed
	longest int // bytes of a record
}

type indexed struct {
	record int32
	twice  bool // others have the same address
}

func indexRecords(records []patch.Entry) recordIndex {
	x := recordIndex{records: records}
	all := make([]indexed, len(records))
	for i, r := range records {
		all[i].record = int32(i)
		x.longest = max(x.longest, len(r.Original))
	}
	slices.SortFunc(all, func(a, b indexed) int {
		return cmp.Or(cmp.Compare(records[a.record].At, records[b.record].At), cmp.Compare(b.record, a.record))
	})
	kept := all[:0]
	for _, e := range all {
		if n := len(kept) - 1; n >= 0 && x.at(kept[n]) == x.at(e) {
			kept[n].twice, e.twice = true, true
			if x.len(e) <= x.len(kept[n]) {
				continue
			}
		}
		kept = append(kept, e)
	}
	x.byAddr = kept
	return x
}

func (x *recordIndex) at(e indexed) arch.Addr { return x.records[e.record].At }
func (x *recordIndex) len(e indexed) int      { return len(x.records[e.record].Original) }

// about is the records that may be about some of n bytes from at on.
func (x *recordIndex) about(at arch.Addr, n int) []indexed {
	from := at - min(at, arch.Addr(max(x.longest-1, 0)))
	first, _ := slices.BinarySearchFunc(x.byAddr, from, func(e indexed, a arch.Addr) int { return cmp.Compare(x.at(e), a) })
	end := first
	for end < len(x.byAddr) && x.at(x.byAddr[end])-from < at-from+arch.Addr(n) {
		end++
	}
	return x.byAddr[first:end]
}

// undo puts what stood there into p, which was read from at: of two records the older one tells.
func (x *recordIndex) undo(at arch.Addr, p []byte) {
	some := slices.Clone(x.about(at, len(p)))
	slices.SortFunc(some, func(a, b indexed) int { return cmp.Compare(a.record, b.record) })
	for _, e := range some {
		rec := x.records[e.record]
		for i, b := range rec.Original {
			if k := rec.At + arch.Addr(i) - at; k < arch.Addr(len(p)) {
				p[k] = b
			}
		}
	}
}

// alone reports whether no other record than e is about the same bytes. Else the bytes
// that were written last must be taken away first.
func (x *recordIndex) alone(e patch.Entry) bool {
	n := 0
	for _, i := range x.about(e.At, len(e.Original)) {
		if x.at(i)+arch.Addr(x.len(i)) <= e.At {
			continue
		}
		if n++; i.twice || n > 1 {
			return false
		}
	}
	return n == 1
}

// endsBehind is the first of a list, in order of address, that ends behind at: it has that, or none has.
func endsBehind[T any](list []T, at arch.Addr, of func(T) arch.Range) int {
	i, _ := slices.BinarySearchFunc(list, at, func(e T, at arch.Addr) int {
		if of(e).End <= at {
			return -1
		}
		return 1
	})
	return i
}

func rangeOf(m procfs.Mapping) arch.Range { return m.Range }

// joined is the ranges in order of address, those that meet as one. A target may name the same memory many times.
func joined(ranges []arch.Range) []arch.Range {
	slices.SortFunc(ranges, func(a, b arch.Range) int { return cmp.Compare(a.Start, b.Start) })
	var all []arch.Range
	for _, r := range ranges {
		if n := len(all) - 1; n >= 0 && r.Start <= all[n].End {
			all[n].End = max(all[n].End, r.End)
		} else {
			all = append(all, r)
		}
	}
	return all
}
