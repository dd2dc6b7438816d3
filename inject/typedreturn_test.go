package inject

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/inject/fault"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

func TestResultsAreChangedAfterTheBodyRan(t *testing.T) {
	p := on(t, testprog.Build(t, "goerrors"))
	for _, c := range []struct {
		sym, call string
		r         Results
		want      string
	}{
		{"main.Many", "many", Results{Error: "io.EOF", Named: map[string]string{"f": "0.25", "s": `"changed"`}}, `0 "changed" 0.25 "" <nil> {0 0} false *errors.errorString "EOF" [EOF ==EOF]`},
		{"main.Spilled", "spilled", Results{Error: "ENOENT"}, `[0 0 0] 0 0 syscall.Errno "no such file or directory" [NotExist]`},
		{"main.deep", "deep", Results{Error: "fs.ErrPermission"}, `0 *errors.errorString "permission denied" [Permission ==Permission] ran 1`},
		{"main.Nothing", "nothing", Results{Value: "0"}, "1"},
	} {
		f, err := p.in.Add(t.Context(), Rule{Spec: c.sym, Attr: fault.Always(), Do: []Action{c.r}, After: true})
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Do("call "+c.call, "got "); got != "got "+c.want {
			t.Errorf("%s %+v:\n got %s\nwant %s", c.sym, c.r, got, c.want)
		}
		if err := f.Remove(); err != nil {
			t.Fatal(err)
		}
	}
	_, err := p.in.Add(t.Context(), Rule{Spec: "main.Many", Attr: fault.Always(), After: true, Do: []Action{Results{Named: map[string]string{"s": "name"}}}})
	if err == nil {
		t.Error("a parameter is known after the call")
	}
	p.leave(t)
}

// Whatever way a call comes to its handler, it returns the same.
func TestResultsAreTheSameByEveryMechanism(t *testing.T) {
	for _, optimize := range []bool{false, true} {
		p := on(t, testprog.Build(t, "goerrors"))
		if err := p.s.SetOptimization(optimize); err != nil {
			t.Fatal(err)
		}
		r := Results{Error: "io.EOF", Named: map[string]string{"f": "0.25", "s": "name", "a": "-3"}}
		f, err := p.in.Add(t.Context(), Rule{Spec: "main.Many", Attr: fault.Always(), Do: []Action{r}})
		if err != nil {
			t.Fatal(err)
		}
		p.s.WaitForOptimizer(t.Context())
		if m := f.Stats().Places[0]; (m.Mechanism == kprobes.Optimized) != optimize && !testprog.NoJumpHere(m.Reason) {
			t.Errorf("optimize %v: %s (%s)", optimize, m.Mechanism, m.Reason)
		}
		for range 100 {
			if got, want := p.Do("call many", "got "), `got -3 "name" 0.25 "" <nil> {0 0} false *errors.errorString "EOF" [EOF ==EOF]`; got != want {
				t.Fatalf("optimize %v:\n got %s\nwant %s", optimize, got, want)
			}
		}
		p.leave(t)
	}
}

// What fails is decided by the numbers of the calls: a stack that grows, which has a function's beginning executed
// again, does not count.
func TestOneCallInThreeFailsOnNewStacks(t *testing.T) {
	p := on(t, testprog.Build(t, "goerrors"))
	attr := fault.Always()
	if err := attr.Set("interval", "3"); err != nil {
		t.Fatal(err)
	}
	f, err := p.in.Add(t.Context(), Rule{Spec: "main.deep", Attr: attr, Do: []Action{Results{Error: "ENOENT"}}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 30 {
		want := `got 1 nil ran 1`
		if i%3 == 2 {
			want = `got 0 syscall.Errno "no such file or directory" [NotExist] ran 0`
		}
		if got := p.Do("call deep", "got "); got != want {
			t.Errorf("call %d: got %s\nwant %s", i, got, want)
		}
	}
	if st := f.Stats(); st.Injected != 10 || st.Calls != 30 {
		t.Errorf("%+v", st)
	}
	p.leave(t)
}

func TestAPlainValueLeavesNoGarbageInGosOtherResults(t *testing.T) {
	p := on(t, testprog.Build(t, "goerrors"))
	for name, r := range map[string]Rule{
		"action":  {Do: []Action{Return{Value: 7}}},
		"handler": {Handler: func(c *Call) bool { return c.Return(7) == nil }},
		"after":   {Do: []Action{Return{Value: 7}}, After: true},
	} {
		r.Spec, r.Attr = "main.Many", fault.Always()
		f, err := p.in.Add(t.Context(), r)
		if err != nil {
			t.Fatal(name, err)
		}
		if got, want := p.Do("call many", "got "), `got 7 "" 0 "" <nil> {0 0} false nil`; got != want {
			t.Errorf("%s: got %s\nwant %s", name, got, want)
		}
		if err := f.Remove(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.in.Add(t.Context(), Rule{Spec: "main.Many", Attr: fault.Always(), Do: []Action{Return{Value: 1000}}}); err == nil {
		t.Error("an int8 is 1000")
	}
	if _, err := p.in.Add(t.Context(), Rule{Spec: "main.Many", Attr: fault.Always(), Do: []Action{Results{Value: "1", Errno: unix.EIO}}}); err == nil {
		t.Error("a Go function has an errno")
	}
	p.leave(t)
}

func TestHandlersMakeUpResults(t *testing.T) {
	p := on(t, testprog.Build(t, "goerrors"))
	n := 0
	var wrong error
	_, err := p.in.Add(t.Context(), Rule{Spec: "os.OpenFile", Attr: fault.Always(), Handler: func(c *Call) bool {
		n++
		if c.ReturnResults(Results{Error: "io.EOFF"}) == nil || c.Ended() {
			wrong = errors.New("there is an io.EOFF")
		}
		return n%2 == 1 || c.ReturnResults(Results{Error: fmt.Sprintf("number %d", n)}) == nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i < 200; i++ {
		want := "got nil"
		if i%2 == 0 {
			want = fmt.Sprintf(`got *errors.errorString "number %d" []`, i)
		}
		if got := p.Do("open /dev/null", "got "); got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
	}
	p.leave(t)
	if wrong != nil {
		t.Error(wrong)
	}
}

// A double that gets an integer, which raw registers would leave as it is.
func TestAPlainValueIsOneOfTheFunctionsType(t *testing.T) {
	p := on(t, testprog.Build(t, "cvalues"))
	for _, c := range []struct {
		fn    string
		value int64
		want  string
	}{{"half", -3, "half -3"}, {"half", 1 << 40, "half 1.09951e+12"}, {"negative", -1, "negative -1"}, {"negative", 0xfffffffe, "negative -2"}, {"small", -1, "small 65535"},
		{"truth", 1, "truth true"}, {"color", 2, "color BLUE"}} {
		f, err := p.in.Add(t.Context(), Rule{Spec: c.fn, Attr: fault.Always(), Do: []Action{Return{Value: c.value}}})
		if err != nil {
			t.Fatal(err)
		}
		p.callWants(t, c.fn, c.want)
		if err := f.Remove(); err != nil {
			t.Fatal(err)
		}
	}
	for spec, want := range map[string]string{
		"in_memory": "it is returned in memory of the caller", "eighth": "it is returned in the x87 registers", "nothing": "the value can only be 0",
		"two_ints": "only 0, for all its bytes", "text": "write an address or NULL",
	} {
		_, err := p.in.Add(t.Context(), Rule{Spec: spec, Attr: fault.Always(), Do: []Action{Results{Value: "x"}}})
		if spec == "in_memory" || spec == "eighth" {
			_, err = p.in.Add(t.Context(), Rule{Spec: spec, Attr: fault.Always(), Do: []Action{Results{Value: "0"}}})
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", spec, err, want)
		}
	}
	p.leave(t)
}

func TestFunctionsWithoutDebugInformationReturnWholeNumbers(t *testing.T) {
	p := on(t, testprog.Build(t, "cvalues", "-g0"))
	for _, c := range []struct{ fn, value, want string }{
		{"negative", "-5", "negative -5"}, {"negative", "NULL", "negative 0"}, {"truth", "true", "truth true"}, {"negative", "0x10", "negative 16"},
	} {
		p.returns(t, c.fn, Results{Value: c.value}, func() { p.callWants(t, c.fn, c.want) })
	}
	for _, r := range []Results{{Value: "2.5"}, {Value: "BLUE"}, {Error: "EIO"}, {Named: map[string]string{"0": "1"}}} {
		if _, err := p.in.Add(t.Context(), Rule{Spec: "half", Attr: fault.Always(), Do: []Action{r}}); err == nil || !strings.Contains(err.Error(), "debug information") {
			t.Errorf("%+v: %v", r, err)
		}
	}
	p.leave(t)
}

func TestGoFunctionsWithoutDebugInformationAreRefused(t *testing.T) {
	for _, flags := range []string{"-ldflags=-w", "-ldflags=-s -w"} {
		p := on(t, testprog.Build(t, "goerrors", flags))
		for _, a := range []Action{Results{Error: "EIO"}, Results{Value: "1"}, Return{Value: 1}} {
			_, err := p.in.Add(t.Context(), Rule{Spec: "os.OpenFile", Attr: fault.Always(), Do: []Action{a}})
			if err == nil || !strings.Contains(err.Error(), "build the target with debug information") {
				t.Errorf("%s: %s: %v", flags, a, err)
			}
		}
		p.leave(t)
	}
}

func TestInlinedCallsAreWarnedOf(t *testing.T) {
	p := on(t, testprog.Build(t, "goerrors"))
	for spec, want := range map[string][]string{
		"main.Many": nil, "main.Inlined": {"main.Inlined: the compiler has inlined 1 call of it, which is not seen"},
		"main.Inlined+1": nil,
	} {
		var warned []string
		in := New(p.s, Options{Log: func(m string) { warned = append(warned, m) }})
		if _, err := in.Add(t.Context(), Rule{Spec: spec, Attr: fault.Always(), Handler: func(*Call) bool { return false }}); err != nil && spec != "main.Inlined+1" {
			t.Error(err)
		}
		if !slices.Equal(warned, want) {
			t.Errorf("%s: %q", spec, warned)
		}
		if err := in.Close(); err != nil {
			t.Error(err)
		}
	}
	p.leave(t)
}

func TestActionsThatEndACallAreCombined(t *testing.T) {
	delay := Delay{D: 1}
	parse := func(kind, text string) Action {
		a, err := ParseAction(kind, text)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	for _, c := range []struct {
		do   []Action
		want string
	}{
		{[]Action{delay}, "delay 1ns"},
		{[]Action{parse("errno", "ENOENT")}, "errno ENOENT"},
		{[]Action{parse("errno", "ENOENT"), delay, parse("retval", "-1")}, "return -1 errno ENOENT, delay 1ns"},
		{[]Action{parse("retval", "NULL"), parse("errno", "ENOMEM")}, "return NULL errno ENOMEM"},
		{[]Action{Return{Value: 5}, Return{Errno: unix.EIO, Fails: true}}, "return 5 errno EIO"},
		{[]Action{parse("error", "io.EOF"), parse("result", "n=5"), parse("result", "1=2"), parse("retval", "3")}, "error io.EOF result 1=2 result n=5 return 3"},
		{[]Action{parse("retval", "1"), parse("retval", "2")}, "!"},
		{[]Action{parse("error", "x"), parse("error", "x")}, "!"},
		{[]Action{parse("error", "x"), parse("errno", "EIO")}, "!"},
		{[]Action{parse("result", "n=1"), parse("result", "n=2")}, "!"},
		{[]Action{parse("errno", "EIO"), parse("errno", "EIO")}, "!"},
	} {
		out, err := Combine(c.do)
		var got []string
		for _, a := range out {
			got = append(got, a.String())
		}
		if err != nil {
			got = []string{"!"}
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("%v is %q, %v, want %q", c.do, got, err, c.want)
		}
	}
	for kind, text := range map[string]string{"error": " ", "retval": "", "result": "5"} {
		if a, err := ParseAction(kind, text); err == nil {
			t.Errorf("%s %q is %v", kind, text, a)
		}
	}
}

func TestProcessesKeepWhatIsTheirs(t *testing.T) {
	in := NewReturner(nil)
	a, b := in.keeperOf(1), in.keeperOf(2)
	if a == b || in.keeperOf(1) != a {
		t.Error("processes share what is kept")
	}
	if in.forget(1); in.keeperOf(1) == a || in.keeperOf(2) != b {
		t.Error("what a process had is kept for the next one of its ID, or that of another is not")
	}
}

// Whoever has probes of his own ends calls in the same way.
func TestAReturnerServesOtherProbes(t *testing.T) {
	p := on(t, testprog.Build(t, "goerrors"))
	x := NewReturner(p.s)
	loc, err := p.s.Symbols().Resolve(t.Context(), "main.Many")
	if err != nil {
		t.Fatal(err)
	}
	at, err := p.s.Entry(loc[0].Addr)
	if err != nil {
		t.Fatal(err)
	}
	var errs []error
	calls := 0
	kp := &kprobes.Kprobe{Addr: at, PreHandler: func(kp *kprobes.Kprobe, r *kprobes.Regs) int {
		if calls++; calls == 1 {
			errs = append(errs, x.ReturnNumber(r, kp.Addr, 9))
			return 1
		}
		if err := x.Return(r, kp.Addr, Results{Value: "1000"}); err == nil {
			errs = append(errs, errors.New("an int8 is 1000"))
		}
		errs = append(errs, x.Return(r, kp.Addr, Results{Error: "io.EOF"}))
		return 1
	}}
	rp := &kprobes.Kretprobe{KP: kprobes.Kprobe{SymbolName: "main.NoError"}, Handler: func(ri *kprobes.KretprobeInstance, r *kprobes.Regs) int {
		errs = append(errs, x.Change(r, loc[0].Addr, Results{Value: "x"}), x.ChangeNumber(r, ri.Kretprobe().KP.Addr, -3))
		return 0
	}}
	if err := errors.Join(p.s.RegisterKprobe(kp), p.s.RegisterKretprobe(rp)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`9 "" 0 "" <nil> {0 0} false nil`, `0 "" 0 "" <nil> {0 0} false *errors.errorString "EOF" [EOF ==EOF]`} {
		if got := p.Do("call many", "got "); got != "got "+want {
			t.Errorf("got %s\nwant %s", got, want)
		}
	}
	if got := p.Do("call noerror", "got "); got != `got -3 ""` {
		t.Error(got)
	}
	p.leave(t)
	if len(errs) != 4 || errs[0] != nil || errs[1] != nil || errs[2] == nil || errs[3] != nil {
		t.Errorf("%q", errs)
	}
}
