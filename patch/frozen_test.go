package patch

import (
	"bytes"
	"errors"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
)

// held is a Frozen that holds or not.
type held bool

func (h held) Holds() bool { return bool(h) }

// still is a Text in which no thread runs, with all that a Text can do to patches of any length.
type still struct{ FrozenText }

func newStill(m arch.Memory, j Journal) still { return still{NewText(m, j).While(held(true))} }

func (s still) Install(at arch.Addr, expect, replacement []byte) (*Patch, error) {
	if len(replacement) <= 1 || len(replacement) != len(expect) {
		return s.Text.Install(at, expect, replacement)
	}
	ps, err := s.InstallAll([]Want{{at, expect, replacement}})
	if err != nil {
		return nil, err
	}
	return ps[0], nil
}

func (s still) Arm(p *Patch) error {
	if s.known(p) != nil || p.armed && !p.torn {
		return s.Text.Arm(p)
	}
	return s.arm(p)
}

func (s still) Disarm(p *Patch) error {
	if s.known(p) != nil || p.alone() == nil {
		return s.Text.Disarm(p)
	}
	return s.disarm(p)
}

// TestWhileThreadsRunOnlySingleBytesChange asks a Text, and one whose Frozen is over, for changes of five bytes.
func TestWhileThreadsRunOnlySingleBytesChange(t *testing.T) {
	x, m, j, before := setup(t)
	jump := []byte{0xe9, 1, 2, 3, 4}
	armed, silent := install(t, x, base+32, jump), install(t, x, base+64, jump)
	if err := x.Disarm(silent); err != nil {
		t.Fatal(err)
	}
	over, none := x.While(held(false)), x.While(nil)
	wants := []Want{{base + 8, before[8:13], jump}}
	seen := bytes.Clone(m.b)
	m.inject()
	for name, do := range map[string]func() error{
		"Install":                 func() error { _, err := x.Text.Install(base+8, before[8:13], jump); return err },
		"InstallAll":              func() error { _, err := x.Text.InstallAll(wants); return err },
		"InstallAll when over":    func() error { _, err := over.InstallAll(wants); return err },
		"InstallAll for nothing":  func() error { _, err := none.InstallAll(wants); return err },
		"Remove":                  func() error { return x.Text.Remove(armed) },
		"Remove when over":        func() error { return over.Remove(armed) },
		"Disarm":                  func() error { return x.Text.Disarm(armed) },
		"Arm":                     func() error { return x.Text.Arm(silent) },
		"RestoreAll when over":    func() error { return over.RestoreAll(nil) },
		"Restore when over":       func() error { return Restore(held(false), m, Judge{}, x.Entries()) },
		"Restore without a proof": func() error { return Restore(nil, m, Judge{}, x.Entries()) },
	} {
		if err := do(); !errors.Is(err, ErrRunning) {
			t.Errorf("%s: %v", name, err)
		}
	}
	x.Text.DisarmAll([]*Patch{armed, silent})
	over.DisarmAll([]*Patch{armed})
	if !bytes.Equal(m.b, seen) || m.access != 0 || len(x.Patches()) != 2 || len(j.records) != 2 || !armed.Armed() {
		t.Errorf("%d accesses to memory, %d patches, %d records", m.access, len(x.Patches()), len(j.records))
	}
	if err := errors.Join(x.Text.Arm(armed), x.Text.Disarm(silent), x.Text.Remove(silent)); err != nil {
		t.Errorf("what writes nothing: %v", err)
	}
	p, err := x.Text.Install(base+100, before[100:101], int3)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(x.Text.Disarm(p), x.Text.Arm(p), x.Text.Remove(p)); err != nil {
		t.Error(err)
	}
}
