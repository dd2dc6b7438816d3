package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/event"
	"github.com/gokprobe/gokprobe/kprobes"
	prog "github.com/gokprobe/gokprobe/program"
)

// compileFixture builds a program of package symbols' tests, whose functions have parameters of all kinds.
func compileFixture(t *testing.T, src string, flags ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "prog")
	file := filepath.Join("../../symbols/testdata", src)
	args := map[string][]string{".c": {"gcc"}, ".cc": {"g++"}, ".rs": {"rustc"}, ".go": {"go", "build"}}[filepath.Ext(src)]
	args = append(append(args, flags...), "-o", out, file)
	if msg, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, msg)
	}
	return out
}

// bothWays prints a hit's arguments from the stopped thread, and from a record that the interpreter has made.
func bothWays(t *testing.T, p *probe, regs *kprobes.Regs) (stopped, recorded []event.Arg, missed bool) {
	t.Helper()
	stopped = arguments(p.params, regs)
	c, err := newCapture(nil, p.params)
	if err != nil {
		return stopped, stopped, false
	}
	pr, err := c.program("test", prog.Map{Kind: prog.Ring, Size: 1 << 16})
	if err != nil {
		t.Fatal(err)
	}
	checked, err := prog.Check(pr)
	if err != nil {
		t.Fatal(err)
	}
	e := &prog.Env{Regs: regs, Memory: regs}
	for _, m := range pr.Maps {
		e.Maps = append(e.Maps, make([]uint64, m.Len()/8))
	}
	if err := checked.Run(e); err != nil {
		t.Fatal(err)
	}
	r, err := prog.NewRingReader(pr.Maps[0], e.Maps[0])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(func(rec prog.Record) {
		s := c.decode(pr, rec.Payload)
		recorded = argumentsFrom(p.params, s, s)
		missed = s.missed
	}); err != nil {
		t.Fatal(err)
	}
	return stopped, recorded, missed
}

func TestRecordsPrintWhatHandlersPrint(t *testing.T) {
	for _, c := range []struct {
		src, prefix string
		flags       []string
		least       int // functions that are hit
	}{
		{"params.c", "", []string{"-g", "-O1"}, 12},
		{"params.cc", "", []string{"-g", "-std=c++17"}, 4},
		{"params.go", "main.", nil, 8},
		{"params.rs", "params::", []string{"-g"}, 4},
	} {
		t.Run(c.src, func(t *testing.T) {
			bin := compileFixture(t, c.src, c.flags...)
			sess, err := kprobes.Launch(kprobes.Command{Path: bin, Args: []string{bin}}, kprobes.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer sess.Close()
			hit := map[string]bool{}
			for _, f := range sess.Symbols().Symbols("*") {
				name := f.Name
				if f.Module.Name != "prog" || !strings.HasPrefix(name, c.prefix) {
					continue
				}
				p := &probe{}
				if p.params, _ = sess.Symbols().Params(f.Addr); len(p.params) == 0 {
					continue
				}
				p.kp = &kprobes.Kprobe{Addr: f.Addr, PreHandler: func(_ *kprobes.Kprobe, regs *kprobes.Regs) int {
					hit[name] = true
					stopped, recorded, missed := bothWays(t, p, regs)
					for i := range stopped {
						if i >= len(recorded) || recorded[i].Text != stopped[i].Text {
							t.Errorf("%s: recorded %v, want %v", name, recorded, stopped)
							break
						}
					}
					if missed {
						t.Errorf("%s: something was not recorded", name)
					}
					return 0
				}}
				if err := sess.RegisterKprobe(p.kp); err != nil {
					t.Logf("%s: %v", name, err)
				}
			}
			if err := sess.Start(); err != nil {
				t.Fatal(err)
			}
			<-sess.Done()
			if len(hit) < c.least {
				t.Errorf("hits of %v only", hit)
			}
		})
	}
}
