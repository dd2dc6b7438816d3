package trace

import (
	"context"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
	prog "github.com/gokprobe/gokprobe/program"
	"github.com/gokprobe/gokprobe/symbols"
)

// compileFixture builds a program of package symbols' tests, whose functions have parameters of all kinds.
func compileFixture(t *testing.T, src string, flags ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "prog")
	file := filepath.Join("../symbols/testdata", src)
	args := map[string][]string{".c": {"gcc"}, ".cc": {"g++"}, ".rs": {"rustc"}, ".go": {"go", "build"}}[filepath.Ext(src)]
	args = append(append(args, flags...), "-o", out, file)
	if msg, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, msg)
	}
	return out
}

// bothWays prints a hit's arguments from the stopped thread, and from a record that the interpreter has made.
func bothWays(t *testing.T, params []symbols.Param, regs *kprobes.Regs) (stopped, recorded []Arg, missed bool) {
	t.Helper()
	stopped = arguments(params, regs)
	c, err := newCapture(nil, params, true)
	if err != nil {
		return stopped, stopped, false
	}
	if err := c.build("test", prog.Map{Kind: prog.Ring, Size: 1 << 16}); err != nil {
		t.Fatal(err)
	}
	pr := c.made
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
		s := c.decode(rec.Payload)
		recorded = argumentsFrom(params, s, s)
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
			sess, err := kprobes.Launch(context.Background(), kprobes.Command{Path: bin, Args: []string{bin}}, kprobes.Options{})
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
				params, _ := sess.Symbols().Params(f.Addr)
				if len(params) == 0 {
					continue
				}
				kp := &kprobes.Kprobe{Addr: f.Addr, PreHandler: func(_ *kprobes.Kprobe, regs *kprobes.Regs) int {
					hit[name] = true
					stopped, recorded, missed := bothWays(t, params, regs)
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
				if err := sess.RegisterKprobe(kp); err != nil {
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

// printed is the arguments of one hit, or of many, as lines show them.
func printed(name string, args []Arg) string {
	s := name
	for _, a := range args {
		s += " " + a.Name + "=" + a.Text
	}
	return s
}

// What optimized hits record prints as handlers print it.
func TestOptimizedHitsPrintWhatHandlersPrint(t *testing.T) {
	for _, c := range []struct {
		fixture string
		flags   []string
		least   int // functions whose hits the target records
	}{
		{"cvalues", nil, 8},
		{"cxxvalues", nil, 6},
		{"govalues", nil, 8},
	} {
		p := testprog.Start(t, testprog.Build(t, c.fixture, c.flags...))
		dry := said(p, "call 1")
		sess, err := kprobes.Attach(context.Background(), p.PID(), kprobes.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var want, got []string
		optimized := 0
		for name := range dry {
			found, err := sess.Symbols().Resolve(t.Context(), name)
			if err != nil {
				continue
			}
			params, err := sess.Symbols().Params(found[0].Addr)
			if err != nil {
				continue
			}
			capt, err := newCapture(nil, params, true)
			if err == nil {
				err = capt.build(name, prog.Map{Kind: prog.Ring, Size: 1 << 16})
			}
			if err != nil {
				continue
			}
			calls := func(kp *kprobes.Kprobe) {
				kp.Addr = found[0].Addr
				if err := sess.RegisterKprobe(kp); err != nil {
					t.Fatal(err)
				}
				sess.WaitForOptimizer(t.Context())
				if sess.Status(kp).Mechanism == kprobes.Optimized {
					optimized++
				}
				for v := range 5 {
					said(p, "call "+strconv.Itoa(v))
				}
				if err := sess.DisableKprobe(kp); err != nil {
					t.Fatal(err)
				}
				sess.WaitForOptimizer(t.Context())
				if err := sess.UnregisterKprobe(kp); err != nil {
					t.Fatal(err)
				}
			}
			calls(&kprobes.Kprobe{PreHandler: func(_ *kprobes.Kprobe, regs *kprobes.Regs) int {
				want = append(want, printed(name, arguments(params, regs)))
				return 0
			}})
			calls(&kprobes.Kprobe{Program: capt.made, RecordHandler: func(_ *kprobes.Kprobe, r *kprobes.HitRecord) {
				s := capt.decode(r.Payload)
				got = append(got, printed(name, argumentsFrom(params, s, s)))
				if s.missed || r.TID != p.PID() && c.fixture != "govalues" {
					t.Errorf("%s: record %+v", name, s)
				}
			}})
		}
		if err := sess.Close(); err != nil {
			t.Error(err)
		}
		// A Go function begins again after its stack has grown.
		got, want = slices.Compact(got), slices.Compact(want)
		if len(want) == 0 || strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s: got\n%s\nwant\n%s", c.fixture, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if optimized < c.least {
			t.Errorf("%s: %d functions optimized", c.fixture, optimized)
		}
		p.CheckClean()
		p.Quit()
	}
}

// said sends a command to a program that answers with lines "name value" up to "ret", and returns them.
func said(p *testprog.Prog, command string) map[string]string {
	out := map[string]string{}
	p.Send(command)
	for {
		line := p.Line()
		// A C++ or Go name may hold anything but a blank.
		name, value, _ := strings.Cut(line, " ")
		if name == "ret" {
			return out
		}
		out[name] = value
	}
}

// What debug information computes at a line, also from what the caller knows, records show as a stop does.
func TestRecordsPrintComputedValues(t *testing.T) {
	bin := compileFixture(t, "computed.c", "-g", "-O2", "-fno-ipa-ra")
	sess, err := kprobes.Launch(context.Background(), kprobes.Command{Path: bin, Args: []string{bin}}, kprobes.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer sess.Close()
	hits := map[string][]string{}
	for _, line := range []string{"computed.c:16", "computed.c:26"} {
		found, err := sess.Symbols().Resolve(t.Context(), line)
		if err != nil {
			t.Fatal(err)
		}
		seen, err := sess.Symbols().Variables(found[0].Addr)
		if err != nil {
			t.Fatal(err)
		}
		all := slices.Concat(seen.Params, seen.Locals)
		if err := sess.RegisterKprobe(&kprobes.Kprobe{Addr: found[0].Addr, PreHandler: func(_ *kprobes.Kprobe, regs *kprobes.Regs) int {
			if _, err := newCapture(nil, all, true); err != nil {
				t.Errorf("%s: %v", line, err)
			}
			stopped, recorded, _ := bothWays(t, all, regs)
			if got, want := printed(line, recorded), printed(line, stopped); got != want {
				t.Errorf("recorded %s, want %s", got, want)
			}
			hits[line] = append(hits[line], printed("", stopped[:2]))
			// Without what is spare, nothing that is told is something else.
			c, _ := newCapture(nil, all, false)
			if slices.ContainsFunc(c.reads, func(r symbols.Read) bool { return r.IsSpare }) {
				t.Errorf("%s: %+v", line, c.reads)
			}
			return 0
		}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := sess.Start(); err != nil {
		t.Fatal(err)
	}
	<-sess.Done()
	if got := strings.Join(slices.Concat(hits["computed.c:16"], hits["computed.c:26"]), ";"); strings.Count(got, "a=20") != 1 || strings.Count(got, "a=?") != 3 || strings.Count(got, "b=1000") != 3 {
		t.Errorf("hits: %s", got)
	}
}

// TestARecordAnswersForWhatItHasAlone, at any address, also where a sum would begin again at 0; of a text what lies behind its zero is nobody's but its reader's.
func TestARecordAnswersForWhatItHasAlone(t *testing.T) {
	s := &snapshot{ranges: []recorded{
		{at: 0x1000, bytes: []byte("abc\x00"), padded: []byte("abc\x00????"), want: 8},
		{at: 0x7000, bytes: nil, want: 16},
	}}
	for _, c := range []struct {
		at   arch.Addr
		n    int
		want string // empty for a fault
	}{
		{0x1000, 4, "abc\x00"}, {0x1001, 2, "bc"}, {0x1000, 8, "abc\x00????"}, {0x1000, 5, ""}, {0x1004, 4, ""}, {0x1002, 3, ""}, {0xfff, 1, ""}, {0x1000, 9, ""},
		{0x7000, 1, ""}, {^arch.Addr(0), 1, ""}, {^arch.Addr(0), 257, ""}, {^arch.Addr(0) - 7, 8, ""}, {^arch.Addr(0) - 0xfff, 0x2000, ""}, {0, 0x1004, ""},
	} {
		p := make([]byte, c.n)
		if err := s.ReadMemory(c.at, p); (err == nil) != (c.want != "") || err == nil && string(p) != c.want {
			t.Errorf("%d bytes at %s are %q, %v", c.n, c.at, p, err)
		}
	}
}
