package patch

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/gokprobe/gokprobe/arch"
)

// oneStore is how many bytes of code change for all threads at once: see doc.go.
const oneStore = 1

// Frozen proves that no thread runs in an address space. More than one byte of its code
// is changed at once only with such a proof. The code that stops the threads hands it
// out.
type Frozen interface {
	// Holds is false when threads may run again.
	Holds() bool
}

// FrozenText is a Text in which no thread runs: its patches may be of any length. The
// methods that it inherits from Text are for patches of one byte.
type FrozenText struct {
	*Text
	proof Frozen
}

// While is t as long as f holds; afterwards errors match ErrRunning. Threads that stand inside a range that is
// changed, or will return into it, are the caller's to think of.
func (t *Text) While(f Frozen) FrozenText { return FrozenText{t, f} }

func (t FrozenText) holds() error { return holds(t.proof) }

func holds(f Frozen) error {
	if f == nil || !f.Holds() {
		return fmt.Errorf("changing code: %w", ErrRunning)
	}
	return nil
}

// InstallAll is Text.InstallAll.
func (t FrozenText) InstallAll(wants []Want) ([]*Patch, error) {
	if err := t.holds(); err != nil {
		return nil, err
	}
	return t.installAll(wants)
}

// Remove is Text.Remove.
func (t FrozenText) Remove(p *Patch) error {
	if err := t.holds(); err != nil {
		return err
	}
	return t.remove(p)
}

// DisarmAll is Text.DisarmAll.
func (t FrozenText) DisarmAll(ps []*Patch) {
	if t.holds() == nil {
		t.disarmAll(ps)
	}
}

// RestoreAll removes every patch, the newest first. Patches for which last reports true
// come behind the others; last may be nil. RestoreAll goes on after an error and
// returns all errors joined. Patches that could not be removed stay known.
func (t FrozenText) RestoreAll(last func(*Patch) bool) error {
	if err := t.holds(); err != nil {
		return err
	}
	var first, then []*Patch
	for _, p := range t.newestFirst() {
		if last != nil && last(p) {
			then = append(then, p)
		} else {
			first = append(first, p)
		}
	}
	return errors.Join(t.removeAll(first), t.removeAll(then))
}

func (t *Text) removeAll(ps []*Patch) error {
	t.disarmAll(ps)
	var errs []error
	for _, p := range ps {
		errs = append(errs, t.remove(p))
	}
	return errors.Join(errs...)
}

// alone makes sure that changing p is a single store, or none.
func (p *Patch) alone() error {
	if len(p.original) > oneStore && (p.armed || p.torn) {
		return p.long()
	}
	return nil
}

// long is the error of changing p while threads run.
func (p *Patch) long() error { return long(p.at, len(p.original)) }

func long(at arch.Addr, n int) error {
	return fmt.Errorf("%d bytes of code at %s: %w", n, at, ErrRunning)
}

// pageSize is the unit of memory protection: a page can be read as a whole or not at
// all.
const pageSize = 4096

// Want is a patch to install: the code that the caller decoded at At, as Original shows
// it, and the bytes to put over its beginning.
type Want struct {
	At          arch.Addr
	Expect      []byte // at least as long as Replacement
	Replacement []byte
}

// InstallError tells which patch of several failed.
type InstallError struct {
	At  arch.Addr
	Err error
}

func (e *InstallError) Error() string { return fmt.Sprintf("patch at %s: %v", e.At, e.Err) }

// Unwrap returns the cause: one of Install's errors.
func (e *InstallError) Unwrap() error { return e.Err }

// change is a patch whose bytes in memory are about to change.
type change struct {
	*Patch
	expect []byte // the bytes that memory must show before the write
}

// InstallAll installs all of wants or, after an error, none, and returns the patches in
// their order. It looks at memory page by page, before the first write and after the
// last. Each patch is still a write of its own. One write over a stretch of code would
// also store the bytes between two patches, and undo what the target itself writes
// there meanwhile.
//
// The error is an *InstallError, joined with the errors of patches that could not be
// taken back. Install says which errors it matches, and what memory holds then.
func (t *Text) InstallAll(wants []Want) ([]*Patch, error) {
	for _, w := range wants {
		if n := len(w.Replacement); n > oneStore {
			return nil, &InstallError{w.At, long(w.At, n)}
		}
	}
	return t.installAll(wants)
}

func (t *Text) installAll(wants []Want) ([]*Patch, error) {
	ps, err := t.claim(wants)
	todo := make([]change, len(ps))
	for i, p := range ps {
		todo[i] = change{p, wants[i].Expect}
	}
	slices.SortFunc(todo, func(a, b change) int { return cmp.Compare(a.at, b.at) })
	for _, step := range []func([]change) error{t.lookAll, t.recordAll, t.writeReplacements, t.verifyReplacements} {
		if err == nil {
			err = step(todo)
		}
	}
	if err != nil {
		return nil, errors.Join(err, t.retract(todo))
	}
	return ps, nil
}

// claim makes patches, not armed yet, that own their bytes. After an error it returns
// those made so far.
func (t *Text) claim(wants []Want) ([]*Patch, error) {
	ps := make([]*Patch, 0, len(wants))
	for _, w := range wants {
		n := len(w.Replacement)
		if n == 0 || len(w.Expect) < n || w.At+arch.Addr(n) < w.At {
			err := fmt.Errorf("% x in place of % x: %w", w.Replacement, w.Expect, ErrLength)
			return ps, &InstallError{w.At, err}
		}
		p := &Patch{at: w.At, original: bytes.Clone(w.Expect[:n]), replacement: bytes.Clone(w.Replacement), behind: bytes.Clone(w.Expect[n:])}
		if o := t.patches.first(p.Range()); o != nil {
			return ps, &InstallError{w.At, fmt.Errorf("%w, %s", ErrOverlap, o.Range())}
		}
		t.seq++
		p.seq = t.seq
		t.patches.add(p)
		ps = append(ps, p)
	}
	return ps, nil
}

// lookAll checks that memory still shows the code that was decoded.
func (t *Text) lookAll(todo []change) error {
	return t.pages(todo, func(run []change, start arch.Addr, b []byte) error {
		t.Overlay(start, b)
		raw := bytes.Clone(b)
		t.clear(start, b)
		for _, c := range run {
			got, stands := b[c.at-start:][:len(c.expect)], raw[c.at-start:][:len(c.replacement)]
			t.share(c.Patch, len(c.replacement) == 1 && bytes.Equal(stands, c.replacement))
			switch {
			case !bytes.Equal(got, c.expect):
				return &InstallError{c.at, changed(c.at, got, c.expect)}
			case !c.shared && !bytes.Equal(stands, c.original):
				return &InstallError{c.at, fmt.Errorf("%w: a breakpoint, or a call of a kernel uprobe's", changed(c.at, stands, c.original))}
			}
		}
		return nil
	})
}

func (t *Text) recordAll(todo []change) error {
	for _, c := range todo {
		if err := t.record(c.Patch); err != nil {
			return &InstallError{c.at, err}
		}
	}
	return nil
}

// writeReplacements leaves the patches torn until they are verified.
func (t *Text) writeReplacements(todo []change) error {
	for _, c := range todo {
		if c.shared {
			continue // it stands
		}
		c.torn = true
		if err := t.mem.WriteMemory(c.at, c.replacement); err != nil {
			return &InstallError{c.at, err}
		}
	}
	return nil
}

func (t *Text) verifyReplacements(todo []change) error {
	return t.pages(todo, func(run []change, start arch.Addr, b []byte) error {
		for _, c := range run {
			got := b[c.at-start:][:len(c.replacement)]
			switch {
			case bytes.Equal(got, c.replacement):
				c.armed, c.torn = true, false
			case c.shared && bytes.Equal(got, c.original):
				if err := t.set(c.Patch, true); err != nil { // it went meanwhile
					return &InstallError{c.at, err}
				}
			case mixture(got, c.original, c.replacement):
				return &InstallError{c.at, fmt.Errorf("code reads back as % x after writing % x", got, c.replacement)}
			default:
				return &InstallError{c.at, changed(c.at, got, c.replacement)}
			}
		}
		return nil
	})
}

// retract forgets patches that are not all installed. One whose bytes can't be put
// back stays known.
func (t *Text) retract(todo []change) error {
	var errs []error
	for _, c := range slices.Backward(todo) {
		if err := t.takeBack(c.Patch); err != nil {
			errs = append(errs, fmt.Errorf("taking back the patch at %s: %w: %w", c.at, ErrTorn, err))
			c.torn = true
			continue
		}
		t.patches.remove(c.Patch)
		errs = append(errs, t.erase(c.Patch))
	}
	return errors.Join(errs...)
}

// takeBack puts the original bytes of p back, as far as memory shows p's replacement:
// where nothing could be written, there is nothing to put back.
func (t *Text) takeBack(p *Patch) error {
	if !p.armed && !p.torn {
		return nil
	}
	if err := t.set(p, false); !errors.Is(err, ErrChanged) {
		return err
	}
	return nil
}

// DisarmAll disarms each of ps unless something prevents it. It looks at memory page by
// page, as InstallAll does. There is no error: for a patch that is still armed
// afterwards, Disarm or Remove tells why.
func (t *Text) DisarmAll(ps []*Patch) {
	t.disarmAll(slices.DeleteFunc(slices.Clone(ps), func(p *Patch) bool { return p.alone() != nil }))
}

func (t *Text) disarmAll(ps []*Patch) {
	var todo []change
	for _, p := range ps {
		if t.known(p) == nil && p.armed && !p.torn && !p.shared {
			todo = append(todo, change{p, p.replacement})
		}
	}
	slices.SortFunc(todo, func(a, b change) int { return cmp.Compare(a.at, b.at) })
	var written []change
	_ = t.pages(todo, func(run []change, start arch.Addr, b []byte) error {
		for _, c := range run {
			if !bytes.Equal(b[c.at-start:][:len(c.expect)], c.expect) || c.torn {
				continue
			}
			c.torn = true
			if t.mem.WriteMemory(c.at, c.original) == nil {
				written = append(written, c)
			}
		}
		return nil
	})
	_ = t.pages(written, func(run []change, start arch.Addr, b []byte) error {
		for _, c := range run {
			if bytes.Equal(b[c.at-start:][:len(c.original)], c.original) {
				c.armed, c.torn = false, false
			}
		}
		return nil
	})
}

// pages reads memory around the changes, one page at a time, and passes it to f until f
// fails. todo is in order of address. Where a page can't be read as a whole, f gets its
// changes one by one as far as they can.
func (t *Text) pages(todo []change, f func(run []change, start arch.Addr, b []byte) error) error {
	buf := make([]byte, 0, pageSize)
	var unreadable error
	for n := 0; len(todo) > 0; todo = todo[n:] {
		start, end := todo[0].at, arch.Addr(0)
		for n = 0; n < len(todo) && todo[n].at/pageSize == start/pageSize; n++ {
			end = max(end, todo[n].at+arch.Addr(len(todo[n].expect)))
		}
		b := slices.Grow(buf[:0], int(end-start))[:end-start]
		err := t.mem.ReadMemory(start, b)
		switch {
		case err == nil:
			err = f(todo[:n], start, b)
			if err != nil {
				return err
			}
		case n == 1:
			unreadable = cmp.Or(unreadable, error(&InstallError{start, err}))
		default:
			for i := range n {
				err := t.pages(todo[i:i+1], f)
				unreadable = cmp.Or(unreadable, err)
			}
		}
	}
	return unreadable
}
