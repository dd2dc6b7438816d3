package inject_test

import (
	"context"
	"errors"
	"testing"

	"github.com/gokprobe/gokprobe/inject"
	"github.com/gokprobe/gokprobe/inject/fault"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// Whatever is asked of a closed injector, or of one whose session is closed, says so; counts stay.
func TestAClosedInjectorSaysSo(t *testing.T) {
	ctx := context.Background()
	for name, closes := range map[string]func(*kprobes.Session, *inject.Injector) error{
		"injector": func(_ *kprobes.Session, in *inject.Injector) error { return in.Close() },
		"session":  func(s *kprobes.Session, _ *inject.Injector) error { return s.Close() },
	} {
		s, err := kprobes.Launch(ctx, kprobes.Command{Path: testprog.MustBuild("shop"), Args: []string{"shop"}}, kprobes.Options{})
		if err != nil {
			t.Fatal(err)
		}
		in := inject.New(s, inject.Options{})
		rule, unknown := inject.Rule{Spec: "deliver", Attr: fault.Always(), Do: enoent}, inject.Rule{Spec: "nosuch", Attr: fault.Always(), Do: enoent}
		f, err := in.Add(ctx, rule)
		if err != nil {
			t.Fatal(err)
		}
		if err := closes(s, in); err != nil {
			t.Fatal(err)
		}
		for call, err := range map[string]error{
			"Add": failed(in.Add(ctx, rule)), "Add unknown": failed(in.Add(ctx, unknown)), "Replace": failed(in.Replace(ctx, f, rule)),
			"Start": f.Start(), "Stop": f.Stop(),
		} {
			if !errors.Is(err, kprobes.ErrClosed) || name == "injector" && !errors.Is(err, inject.ErrClosed) {
				t.Errorf("%s closed: %s: %v", name, call, err)
			}
		}
		if err := errors.Join(f.Remove(), in.Remove(f), in.Close(), s.Close()); err != nil {
			t.Errorf("%s closed: %v", name, err)
		}
		if st := f.Stats(); len(st.Places) != 1 || f.Name() != "deliver" || f.Armed() {
			t.Errorf("%s closed: %+v", name, st)
		}
	}
}

func failed(_ *inject.Fault, err error) error { return err }
