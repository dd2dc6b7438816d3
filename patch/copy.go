package patch

import (
	"bytes"

	"github.com/gokprobe/gokprobe/arch"
)

// RestoreCopy is Restore for the memory of a newborn process, which is a copy of its parent's. Entries that follow one another in
// entries and lie in one page are restored together, where all of them stand as they were written: by one write
// of the bytes from the first to the last. A process with thousands of patches has only some hundred such pages.
//
// Nobody but the kernel writes there: the process has not run yet, and has no other tracer. A uprobe that is registered between the
// look at a page and the write, some microseconds, is lost in this process alone. One that goes just then is not brought back.
func RestoreCopy(f Frozen, mem arch.Memory, j Judge, entries []Entry) error {
	if err := holds(f); err != nil {
		return err
	}
	var all failures
	for len(entries) > 0 {
		n := inPage(entries)
		if n == 1 || !restorePage(mem, j, entries[:n]) {
			for _, e := range entries[:n] {
				all.add(restore(mem, j, e))
			}
		}
		entries = entries[n:]
	}
	return all.err()
}

// inPage is how many entries from the first on lie in its page.
func inPage(entries []Entry) (n int) {
	page := entries[0].At &^ (pageSize - 1)
	for n = range entries {
		if e := entries[n]; e.At < page || e.At+arch.Addr(len(e.Original)) > page+pageSize {
			return max(n, 1)
		}
	}
	return len(entries)
}

// restorePage undoes entries of one page, in their order, if each of them is as it was written, or original. Else nothing is changed. If it
// is false, what the page has can be restored place by place: whatever was written is the same byte, or an original one.
func restorePage(mem arch.Memory, j Judge, entries []Entry) bool {
	start, end := entries[0].At, entries[0].At
	for _, e := range entries {
		start, end = min(start, e.At), max(end, e.At+arch.Addr(len(e.Original)))
	}
	before := make([]byte, end-start)
	if mem.ReadMemory(start, before) != nil {
		return false
	}
	want, ours := bytes.Clone(before), make([]bool, len(before))
	for _, e := range entries {
		was, ok := undo(e, start, want, j)
		if !ok {
			return false
		}
		for i := range e.Original {
			ours[int(e.At-start)+i] = ours[int(e.At-start)+i] || was
		}
	}
	for _, r := range writes(want, ours, j) {
		if mem.WriteMemory(start+arch.Addr(r.from), want[r.from:r.to]) != nil {
			return false
		}
	}
	got := make([]byte, len(want))
	return mem.ReadMemory(start, got) == nil && beneath(want, got, j.Trap)
}

// Undo takes entries out of b, which was read from at, in their order. It is false if one of them stands neither as it was written, nor is original. All
// of them lie in b.
func (j Judge) Undo(entries []Entry, at arch.Addr, b []byte) bool {
	for _, e := range entries {
		if _, ok := undo(e, at, b, j); !ok {
			return false
		}
	}
	return true
}

// undo is Judge.Undo of one. ours: it stood there.
func undo(e Entry, at arch.Addr, b []byte, j Judge) (ours, ok bool) {
	if len(e.Original) == 0 || len(e.Original) != len(e.Replacement) {
		return false, false
	}
	now := b[e.At-at:][:len(e.Original)]
	switch Classify(e.Original, e.Replacement, now, j.Trap) {
	case Clean:
		return false, true
	case Ours:
		copy(now, e.Original)
		return true, true
	}
	return false, false
}

type stretch struct{ from, to int }

// writes are the stretches of want to write, so that all of ours are in one of them. No breakpoint of somebody else's is: it may go before the
// write, which would bring it back, and nobody would know it.
func writes(want []byte, ours []bool, j Judge) (list []stretch) {
	open := false
	for i := range want {
		switch {
		case ours[i] && open:
			list[len(list)-1].to = i + 1
		case ours[i]:
			list, open = append(list, stretch{i, i + 1}), true
		case j.trap(want[i]):
			open = false
		}
	}
	return list
}
