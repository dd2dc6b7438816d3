package patch

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/gokprobe/gokprobe/arch"
)

// Entry is one change to undo: a journal record, or a patch that a forked child
// inherited. Original and Replacement have the same length.
type Entry struct {
	At          arch.Addr
	Original    []byte
	Replacement []byte
}

// Restore puts the original bytes of entries back into mem, in the order given (the
// newest first). It needs no Text. So it serves for a journal that another process
// finds, and for the copy of memory in a forked child. j is as in Beside.
//
// Only bytes of ours are changed, among them those of a half-written replacement. A
// byte where replacement and original are equal is not ours. If other bytes than
// original ones and foreign breakpoints stay, the error matches ErrChanged. Restore
// goes on after an error; it returns the first ones joined, and how many more there
// were. It does nothing, and the error matches ErrRunning, if f does not hold.
func Restore(f Frozen, mem arch.Memory, j Judge, entries []Entry) error {
	if err := holds(f); err != nil {
		return err
	}
	var all failures
	pages := NewPages(mem)
	for _, e := range entries {
		if len(e.Original) > 0 && len(e.Original) == len(e.Replacement) && pages.Holds(e.At, e.Original) {
			continue // it was original a moment ago; what others put there since is theirs
		}
		all.add(restore(mem, j, e))
		pages.Forget(e.At, len(e.Original))
	}
	return all.err()
}

// failures are the errors of many places, of which the first are told: there may be as many as the target likes.
type failures struct {
	first []error
	n     int
}

func (f *failures) add(err error) {
	const most = 16
	if err == nil {
		return
	}
	if f.n++; f.n <= most {
		f.first = append(f.first, err)
	}
}

func (f *failures) err() error {
	if more := f.n - len(f.first); more > 0 {
		return errors.Join(append(f.first, fmt.Errorf("more such places: %d", more))...)
	}
	return errors.Join(f.first...)
}

func restore(mem arch.Memory, j Judge, e Entry) error {
	if len(e.Original) == 0 || len(e.Original) != len(e.Replacement) {
		return fmt.Errorf("restoring %s: %w", e.At, ErrLength)
	}
	if bytes.Equal(e.Original, e.Replacement) {
		return nil // somebody else's breakpoint, which stood there first (Patch.Shared): it may have gone since
	}
	got := make([]byte, len(e.Original))
	if err := mem.ReadMemory(e.At, got); err != nil {
		return fmt.Errorf("restoring %s: %w", e.At, err)
	}
	var err error
	switch s := Classify(e.Original, e.Replacement, got, j.Trap); {
	case s == Foreign:
		if _, left := j.without(e, got); left {
			err = takeOut(mem, j, e, got)
			break
		}
		return fmt.Errorf("restoring: %w", changed(e.At, got, e.Replacement))
	case s == Ours:
		err = writeVerified(mem, e.At, e.Original, got, j.Trap)
		if !errors.Is(err, ErrChanged) {
			break
		}
		if err = mem.ReadMemory(e.At, got); err != nil {
			break
		}
		fallthrough // somebody came meanwhile
	case s.Left():
		err = takeOut(mem, j, e, got)
	}
	if err != nil {
		return fmt.Errorf("restoring %s: %w", e.At, err)
	}
	return nil
}

// poke writes p's replacement or its original bytes into memory, which shows before. p
// is torn afterwards if the write failed and can't be taken back.
func (t *Text) poke(p *Patch, arm bool, before []byte) error {
	want, trap := p.original, t.judge.Trap
	if arm {
		want, trap = p.replacement, nil
	}
	err := writeVerified(t.mem, p.at, want, before, trap)
	switch {
	case err == nil:
		p.armed, p.torn = arm, false
	case errors.Is(err, ErrTorn):
		p.torn = true
	}
	// Otherwise before is back, which may be as torn as it was.
	return err
}

// set writes p's replacement or its original bytes, from any mixture of the two that
// memory shows.
func (t *Text) set(p *Patch, arm bool) error {
	before, s, err := t.stands(p)
	if err == nil && s == Foreign {
		if _, left := t.judge.without(p.entry(), before); arm || !left {
			err = changed(p.at, before, p.shown())
		}
	}
	if err == nil && arm {
		err = t.unchangedBehind(p)
	}
	if err == nil && arm {
		err = t.show(p, before, s)
	} else if err == nil {
		err = t.hide(p, before, s)
	}
	if errors.Is(err, ErrChanged) {
		// Somebody else's bytes: nothing of ours is left to take care of.
		p.armed, p.torn = false, false
	}
	return err
}

// show is set of a patch that is to be armed, where before, which is s, stands.
func (t *Text) show(p *Patch, before []byte, s Standing) error {
	switch {
	case s == Watched, s == Covered, s == Torn && !p.torn:
		return changed(p.at, before, p.original)
	case s == Ours && !p.torn:
		t.share(p, p.shared || !p.armed) // not by us
		p.armed = true
		return nil
	case p.shared: // its owner has taken it away
		if err := t.own(p); err != nil {
			return err
		}
	}
	return t.poke(p, true, before)
}

// unchangedBehind checks that the target has not changed the code that p's replacement
// stands for.
func (t *Text) unchangedBehind(p *Patch) error {
	if len(p.behind) == 0 {
		return nil
	}
	now := make([]byte, len(p.behind))
	at := p.Range().End
	if err := t.mem.ReadMemory(at, now); err != nil {
		return err
	}
	if t.Overlay(at, now); !beneath(p.behind, now, t.judge.Trap) {
		return changed(at, now, p.behind)
	}
	return nil
}

// own records that p's place is ours alone: nobody else has a breakpoint there any
// more.
func (t *Text) own(p *Patch) error {
	if err := t.erase(p); err != nil {
		return err
	}
	t.share(p, false)
	p.recorded = false
	return t.record(p)
}

// hide is set of a patch that is to be disarmed, where before, which is s, stands.
func (t *Text) hide(p *Patch, before []byte, s Standing) error {
	var err error
	switch {
	case p.shared, !s.Left() && s != Foreign:
		p.armed, p.torn = false, false
		return nil
	case s == Ours || p.torn && mixture(before, p.original, p.replacement):
		if err = t.poke(p, false, before); !errors.Is(err, ErrChanged) {
			return err
		}
		if err = t.mem.ReadMemory(p.at, before); err != nil {
			return err
		}
		if _, left := t.judge.without(p.entry(), before); !left && Classify(p.original, p.replacement, before, t.judge.Trap) == Foreign {
			return changed(p.at, before, p.original)
		}
	}
	if err = takeOut(t.mem, t.judge, p.entry(), before); err == nil {
		p.armed, p.torn = false, false
	} else if !errors.Is(err, ErrChanged) {
		p.torn = true
	}
	return err
}

// writeVerified writes want at at, which shows before, and reads it back. After a
// failure it puts before back as far as memory shows our bytes. The error matches
// ErrChanged if somebody else's bytes appeared meanwhile (they stay), ErrTorn
// if memory can't be shown to hold before again.
//
// Where trap is not nil others may have written it over want by then, and that is well.
func writeVerified(mem arch.Memory, at arch.Addr, want, before, trap []byte) error {
	got := make([]byte, len(want))
	err := mem.WriteMemory(at, want)
	if err == nil {
		err = mem.ReadMemory(at, got)
	}
	switch {
	case err == nil && beneath(want, got, trap):
		return nil
	case err == nil && !mixture(got, want, before):
		return changed(at, got, want)
	case err == nil:
		err = fmt.Errorf("code at %s reads back as % x after writing % x", at, got, want)
	}
	if undo := takeBack(mem, at, want, before); undo != nil {
		return fmt.Errorf("%w; taking it back: %w: %w", err, ErrTorn, undo)
	}
	return err
}

// takeBack undoes a write of want over before that failed. What memory shows
// decides, not what the accesses say: there may be nothing to undo.
func takeBack(mem arch.Memory, at arch.Addr, want, before []byte) error {
	undo := mem.WriteMemory(at, before)
	got := make([]byte, len(want))
	if err := mem.ReadMemory(at, got); err != nil {
		return errors.Join(undo, err)
	}
	if bytes.Equal(got, before) {
		return nil
	}
	return errors.Join(undo, fmt.Errorf("code at %s is % x", at, got))
}

// beneath reports whether got is want, with a trap of somebody's over it at most.
func beneath(want, got, trap []byte) bool {
	for i, b := range got {
		if b != want[i] && (len(trap) != 1 || b != trap[0]) {
			return false
		}
	}
	return true
}
