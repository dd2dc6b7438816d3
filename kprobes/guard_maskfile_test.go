package kprobes

import (
	"context"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
)

// TestCodeIsItsFilesUntilSomebodyChangesIt: our own patches are no change, another byte is, and is none any more when it was put back.
func TestCodeIsItsFilesUntilSomebodyChangesIt(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "prey"))
	s, err := Attach(context.Background(), prog.PID(), Options{Log: func(text string) { t.Log(text) }})
	if err != nil {
		t.Fatal(err)
	}
	kp := &Kprobe{SymbolName: "libc.so.6:getppid"}
	if err := s.RegisterKprobe(kp); err != nil {
		t.Fatal(err)
	}
	err = s.do(func() error {
		d := s.mainDomain()
		defer d.look.anew()()
		m, err := d.look.surveyed().Mapping(kp.Addr)
		if err != nil {
			return err
		}
		code := d.look.backed(m)
		first := liesUnchanged(t, d, m, true)
		if key := first.key(); key == (codeKey{}) {
			t.Error("the code's key is not kept by its file")
		} else if now, err := d.masks.keyOfCode(code); now != key {
			t.Errorf("the key that is kept is %v, the code's %v, %v", key, now, err)
		}
		far := (kp.Addr + 64<<10) &^ 0xfff // a page without a patch
		b := make([]byte, 1)
		if err := d.space.ReadMemory(far, b); err != nil {
			return err
		}
		for _, changed := range []bool{true, false} {
			if b[0]++; !changed {
				b[0] -= 2
			}
			if err := d.space.Text().WriteMemory(far, b); err != nil {
				return err
			}
			if again := liesUnchanged(t, d, m, !changed); !changed && again != first {
				t.Errorf("it lies at %v, and lay at %v", again, first)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	testprog.CheckClean(t, prog.PID())
	prog.Quit()
}

func liesUnchanged(t *testing.T, d *domain, m *procfs.Mapping, want bool) fileCode {
	t.Helper()
	lies, unchanged := d.masks.liesIn(m, arch.Range{Start: m.Range.Start, End: d.look.backed(m).End})
	if unchanged != want {
		t.Errorf("the code is its file's: %v, want %v", unchanged, want)
	}
	return lies
}
