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

// Restore puts the original bytes of entries back into mem, in the order given
// (the newest first). It needs no Text, so it serves whoever finds a journal
// and the copy of memory that a forked child has.
//
// Bytes that are the original already stay. So do bytes that are not ours: the
// error then matches ErrChanged. A half-written replacement is ours. Restore
// goes on after an error and returns all of them joined. An entry of more than
// one byte needs the target frozen, see the package comment.
func Restore(mem arch.Memory, entries []Entry) error {
	var errs []error
	for _, e := range entries {
		errs = append(errs, restore(mem, e))
	}
	return errors.Join(errs...)
}

func restore(mem arch.Memory, e Entry) error {
	if len(e.Original) == 0 || len(e.Original) != len(e.Replacement) {
		return fmt.Errorf("restoring %s: %w", e.At, ErrLength)
	}
	got := make([]byte, len(e.Original))
	if err := mem.ReadMemory(e.At, got); err != nil {
		return fmt.Errorf("restoring %s: %w", e.At, err)
	}
	switch {
	case bytes.Equal(got, e.Original):
		return nil
	case !mixture(got, e.Original, e.Replacement):
		return fmt.Errorf("restoring: %w", changed(e.At, got, e.Replacement))
	}
	if err := writeVerified(mem, e.At, e.Original, got); err != nil {
		return fmt.Errorf("restoring %s: %w", e.At, err)
	}
	return nil
}

// look reads what stands at p. The error matches ErrChanged if that is not what p
// left there.
func (t *Text) look(p *Patch) ([]byte, error) {
	got := make([]byte, len(p.original))
	if err := t.mem.ReadMemory(p.at, got); err != nil {
		return nil, err
	}
	if bytes.Equal(got, p.shown()) || p.torn && mixture(got, p.original, p.replacement) {
		return got, nil
	}
	return nil, changed(p.at, got, p.shown())
}

// poke makes memory, which shows before, show p's replacement or its original
// bytes. p is torn afterwards if the write failed and can't be taken back.
func (t *Text) poke(p *Patch, arm bool, before []byte) error {
	want := p.original
	if arm {
		want = p.replacement
	}
	err := writeVerified(t.mem, p.at, want, before)
	switch {
	case err == nil:
		p.armed, p.torn = arm, false
	case errors.Is(err, ErrTorn):
		p.torn = true
	}
	// Otherwise before is back, which may be as torn as it was.
	return err
}

// set looks, then pokes.
func (t *Text) set(p *Patch, arm bool) error {
	before, err := t.look(p)
	if err == nil {
		err = t.poke(p, arm, before)
	}
	if errors.Is(err, ErrChanged) {
		// Somebody else's bytes: nothing of ours is left to take care of.
		p.armed, p.torn = false, false
	}
	return err
}

// writeVerified writes want at at, which shows before, and reads it back. After a
// failure it puts before back as far as memory shows our bytes. The error matches
// ErrChanged if somebody else's bytes appeared meanwhile (they stay), ErrTorn
// if memory can't be shown to hold before again.
func writeVerified(mem arch.Memory, at arch.Addr, want, before []byte) error {
	got := make([]byte, len(want))
	err := mem.WriteMemory(at, want)
	if err == nil {
		err = mem.ReadMemory(at, got)
	}
	switch {
	case err == nil && bytes.Equal(got, want):
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
