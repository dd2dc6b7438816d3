package patch

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gokprobe/gokprobe/arch"
)

// Text is the code of one patch domain, that is, of one address space, which
// several processes may share (CLONE_VM, vfork). Use it from one goroutine.
type Text struct {
	mem     arch.Memory
	journal Journal
	patches index
	seq     uint64
	shares  uint64

	judge       Judge // see Beside
	undisturbed func(at arch.Addr, b []byte)
}

// NewText returns a Text over mem with no patches. mem must be able to write
// pages that the target itself can't. journal may be nil.
func NewText(mem arch.Memory, journal Journal) *Text {
	return &Text{mem: mem, journal: journal, patches: newIndex()}
}

// CopyOf makes t, which has no patches, the Text of a copy of parent's memory, as a fork makes it, in which all of parent's patches stand. t's journal has
// them as parent's has.
func (t *Text) CopyOf(parent *Text) {
	t.seq = parent.seq
	t.patches = newIndexLike(parent.patches)
	all := make([]Patch, 0, parent.patches.n)
	for p := range parent.patches.every() {
		all = append(all, *p)
		t.patches.add(&all[len(all)-1])
	}
}

// Torn tells whether memory may show a mixture of a patch and what was there before.
func (t *Text) Torn() bool {
	for p := range t.patches.every() {
		if p.torn {
			return true
		}
	}
	return false
}

// Install replaces the bytes expect at at by replacement and returns the armed patch.
// expect is what the caller decoded, in the view of Original.
//
// Errors: ErrLength; ErrOverlap if a byte belongs to another patch; ErrChanged
// if memory no longer shows expect; ErrRunning if there is more than one byte, which
// FrozenText may change; the journal's or memory's error. After an
// error memory is as before, unless the error matches ErrTorn.
func (t *Text) Install(at arch.Addr, expect, replacement []byte) (*Patch, error) {
	if len(expect) != len(replacement) {
		return nil, fmt.Errorf("patch of % x by % x at %s: %w", expect, replacement, at, ErrLength)
	}
	ps, err := t.InstallAll([]Want{{at, expect, replacement}})
	if err != nil {
		return nil, err
	}
	return ps[0], nil
}

// Remove puts the original bytes back and forgets p. If memory shows bytes that
// are not ours, they stay, p is forgotten all the same and the error matches
// ErrChanged. After any other memory error p stays known; see Drop.
// A disarmed patch is forgotten without a look at memory. Another one of more than one byte
// stays, and the error matches ErrRunning.
func (t *Text) Remove(p *Patch) error {
	if err := t.known(p); err != nil {
		return err
	}
	if err := p.alone(); err != nil {
		return err
	}
	return t.remove(p)
}

func (t *Text) remove(p *Patch) error {
	if err := t.known(p); err != nil {
		return err
	}
	err := t.disarm(p)
	if err != nil && !errors.Is(err, ErrChanged) {
		return fmt.Errorf("removing the patch at %s: %w", p.at, err)
	}
	t.patches.remove(p)
	return errors.Join(err, t.erase(p))
}

// Drop forgets p without touching memory: the code has been unmapped, or p can't
// be removed and the caller gives up. The error is the journal's.
func (t *Text) Drop(p *Patch) error {
	if err := t.known(p); err != nil {
		return err
	}
	t.patches.remove(p)
	return t.erase(p)
}

// Arm makes memory show p's replacement; it does nothing if it does already.
// The error matches ErrChanged if the original is no longer there, ErrRunning if
// it is of more than one byte.
func (t *Text) Arm(p *Patch) error {
	if err := t.known(p); err != nil {
		return err
	}
	if p.armed && !p.torn {
		return nil
	}
	if len(p.original) > oneStore {
		return p.long()
	}
	return t.arm(p)
}

func (t *Text) arm(p *Patch) error {
	if err := t.set(p, true); err != nil {
		return fmt.Errorf("arming the patch at %s: %w", p.at, err)
	}
	return nil
}

// Disarm makes memory show p's original bytes and keeps p known, so that a
// thread which trapped on it is still understood. It does nothing if p is
// disarmed. The error matches ErrChanged if memory shows bytes that are not
// ours; they stay and p counts as disarmed. It matches ErrRunning if p is armed and of
// more than one byte.
func (t *Text) Disarm(p *Patch) error {
	if err := t.known(p); err != nil {
		return err
	}
	if err := p.alone(); err != nil {
		return err
	}
	if err := t.disarm(p); err != nil {
		return fmt.Errorf("disarming the patch at %s: %w", p.at, err)
	}
	return nil
}

func (t *Text) disarm(p *Patch) error {
	if !p.armed && !p.torn {
		return nil
	}
	return t.set(p, false)
}

// Forget drops all patches without touching memory or journal: after execve(2)
// both are gone.
func (t *Text) Forget() { t.patches = newIndex() }

// Find returns the patch that owns the byte at a, armed or not.
func (t *Text) Find(a arch.Addr) (*Patch, bool) {
	p := t.patches.at(a)
	return p, p != nil
}

// Shares changes whenever a patch that is known becomes shared, or is no longer (Patch.Shared).
func (t *Text) Shares() uint64 { return t.shares }

func (t *Text) share(p *Patch, shared bool) {
	if p.shared != shared {
		t.shares++
	}
	p.shared = shared
}

// Patches returns all patches in order of address.
func (t *Text) Patches() []*Patch { return t.patches.sorted() }

// Original fills b with memory from at as if nobody had patched it: without our patches
// and without breakpoints of others. A decoder must see that (the kernel's
// recover_probed_instruction).
func (t *Text) Original(at arch.Addr, b []byte) error {
	if err := t.mem.ReadMemory(at, b); err != nil {
		return err
	}
	t.Overlay(at, b)
	t.clear(at, b)
	return nil
}

// clear takes bytes that others wrote over the code out of b, which was read from at.
func (t *Text) clear(at arch.Addr, b []byte) {
	if t.undisturbed != nil {
		t.undisturbed(at, b)
	}
}

// Overlay replaces our bytes in b, which was read from at, by the original ones. It
// does so even where others have written breakpoints over them, or taken them away.
// Other code that somebody wrote over a patch stays, as it would without us.
func (t *Text) Overlay(at arch.Addr, b []byte) {
	t.patches.each(arch.Range{Start: at, End: at + arch.Addr(len(b))}, func(p *Patch) {
		if !p.armed && !p.torn {
			return
		}
		start, end := max(at, p.at), min(at+arch.Addr(len(b)), p.Range().End)
		view, original := b[start-at:end-at], p.original[start-p.at:end-p.at]
		if p.torn || Classify(original, p.replacement[start-p.at:end-p.at], view, t.judge.Trap) != Foreign {
			copy(view, original)
		}
	})
}

// Entries returns what Restore needs to clean a copy of this memory, as a forked
// child has it, the newest patch first.
func (t *Text) Entries() []Entry {
	ps := t.newestFirst()
	es := make([]Entry, 0, len(ps))
	for _, p := range ps {
		if !p.shared {
			es = append(es, Entry{At: p.at, Original: p.Original(), Replacement: p.Replacement()})
		}
	}
	return es
}

func (t *Text) newestFirst() []*Patch {
	ps := t.patches.all()
	slices.SortFunc(ps, func(a, b *Patch) int {
		if a.seq > b.seq {
			return -1
		}
		return 1
	})
	return ps
}

func (t *Text) known(p *Patch) error {
	if p == nil {
		return ErrUnknown
	}
	if t.patches.at(p.at) != p {
		return fmt.Errorf("patch at %s: %w", p.at, ErrUnknown)
	}
	return nil
}

func (t *Text) record(p *Patch) error {
	if t.journal == nil {
		return nil
	}
	original := p.original
	if p.shared {
		original = p.replacement // so that it stays
	}
	id, err := t.journal.Record(p.at, original, p.replacement)
	if err != nil {
		return fmt.Errorf("recording the patch at %s: %w", p.at, err)
	}
	p.record, p.recorded = id, true
	return nil
}

func (t *Text) erase(p *Patch) error {
	if !p.recorded {
		return nil
	}
	if err := t.journal.Erase(p.record); err != nil {
		return fmt.Errorf("erasing the record of %s: %w", p.at, err)
	}
	return nil
}
