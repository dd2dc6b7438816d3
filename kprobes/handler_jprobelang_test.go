package kprobes_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// TestJprobesInAssembly: the assembler's debug information says nothing of parameters.
func TestJprobesInAssembly(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "nolibc", "-static", "-nostdlib"))
	s := attach(t, prog.PID(), kprobes.Options{})
	var got []any
	jp := &kprobes.Jprobe{KP: kprobes.Kprobe{SymbolName: "answer"}, Entry: func(fd int32, line kprobes.Ptr, n uint64) {
		got = append(got, fd, line != 0, n)
	}}
	if err := s.RegisterJprobe(jp); err != nil {
		t.Fatal(err)
	}
	prog.Do("x", "ret 42")
	if want := []any{int32(0), true, uint64(64)}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestJprobesOnCodeWithoutSymbols: whether an address is an entry is known to the caller only.
func TestJprobesOnCodeWithoutSymbols(t *testing.T) {
	prog := start(t, "conform")
	s := attach(t, prog.PID(), kprobes.Options{})
	page := number(t, prog.Do("page", "at"), "at")
	got := 0
	jp := &kprobes.Jprobe{KP: kprobes.Kprobe{Addr: arch.Addr(page)}, Entry: func(v int) { got = v }}
	if err := s.RegisterJprobe(jp); err != nil {
		t.Fatal(err)
	}
	if ret := prog.Do("run 30", "ret"); ret != "ret 39" || got != 30 {
		t.Errorf("%s, the argument is %d; want ret 39 and 30", ret, got)
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestJprobesInGo: the arguments are where Go passes them, and a function that is entered
// again since its stack had to grow is one call.
func TestJprobesInGo(t *testing.T) {
	prog := start(t, "gosrv")
	s := attach(t, prog.PID(), kprobes.Options{})
	var got []string
	note := func(args ...any) { got = append(got, fmt.Sprint(args...)) }
	deep, last := 0, int64(-1)
	jps := []*kprobes.Jprobe{
		{KP: kprobes.Kprobe{SymbolName: "main.target"}, Entry: func(v int64) { note("target ", v) }},
		{KP: kprobes.Kprobe{SymbolName: "main.(*T).Add"}, Entry: func(regs *kprobes.Regs, this kprobes.Ptr, v int64) {
			n, err := regs.ReadUint64(this)
			note("Add ", n, " ", v, " ", err)
			regs.Set("rax", 0)
		}},
		{KP: kprobes.Kprobe{SymbolName: "main.pair"}, Entry: func(v int64, s string) { note("pair ", v, " ", s) }},
		{KP: kprobes.Kprobe{SymbolName: "main.deep"}, Entry: func(v int64) { deep, last = deep+1, v }},
	}
	if err := s.RegisterJprobes(t.Context(), jps); err != nil {
		t.Fatal(err)
	}
	if ret := prog.Do("call 30", "ret"); ret != "ret 10" {
		t.Errorf("got %q", ret)
	}
	if want := "pair 30 four, Add 1 30 <nil>, target 30"; strings.Join(got, ", ") != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if ret := prog.Do("deep 5000", "ret"); ret != "ret 5000" || deep != 5001 || last != 0 {
		t.Errorf("%s, %d calls, the last with %d; want ret 5000, 5001, 0", ret, deep, last)
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestJprobesAfterExec: they are placed again in a followed program, unless its function
// has other parameters.
func TestJprobesAfterExec(t *testing.T) {
	for _, c := range []struct {
		flags []string
		sum   string
		runs  int
		warns string
	}{
		{[]string{"-O2"}, sumIs, 2, ""},
		{[]string{"-g0", "-O2"}, sumIs, 2, ""},
		{[]string{"-DOTHER"}, sumIs, 1, "the number of its parameters is 1, not 10"},
	} {
		t.Run(strings.Join(c.flags, " "), func(t *testing.T) {
			prog := start(t, "jprobe")
			var log []string
			s := attach(t, prog.PID(), kprobes.Options{Follow: true, Log: testprog.ButUprobes(func(m string) { log = append(log, m) })})
			runs, wrong := 0, 0
			jp := sumProbe(func(_ *kprobes.Regs, j int) {
				if runs++; j != 8 {
					wrong++
				}
			})
			if err := s.RegisterJprobe(jp); err != nil {
				t.Fatal(err)
			}
			prog.Do("sum", "ret")
			prog.Do("exec "+testprog.Build(t, "jprobe", c.flags...), "ready")
			got := prog.Do("sum", "ret")
			if got != c.sum || runs != c.runs || wrong > 0 || !strings.Contains(strings.Join(log, "\n"), c.warns) || c.warns == "" && len(log) > 0 {
				t.Errorf("%s, %d runs, %d wrong, log %q; want %s, %d runs, log %q", got, runs, wrong, log, c.sum, c.runs, c.warns)
			}
			closeSession(t, s)
			prog.CheckClean()
			wantRight(t, prog)
		})
	}
}
