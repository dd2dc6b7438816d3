package inject

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/inject/fault"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// patient is a target whose functions return the results that the test wants.
type patient struct {
	*testprog.Prog
	s  *kprobes.Session
	in *Injector
}

func on(t *testing.T, bin string, env ...string) *patient {
	t.Helper()
	p := &patient{Prog: testprog.StartWith(t, testprog.Options{Env: env}, bin)}
	log := func(m string) { t.Errorf("warning: %s", m) }
	var err error
	if p.s, err = kprobes.Attach(context.Background(), p.PID(), kprobes.Options{Log: log, Follow: true}); err != nil {
		t.Fatal(err)
	}
	p.in = New(p.s, Options{Log: log})
	t.Cleanup(func() { p.s.Close() })
	return p
}

// returns makes a function return r until the end of f.
func (p *patient) returns(t *testing.T, spec string, r Results, f func()) Stats {
	t.Helper()
	rule := Rule{Spec: spec, Attr: fault.Always(), Do: []Action{r}}
	fl, err := p.in.Add(t.Context(), rule)
	if err != nil {
		t.Fatal(err)
	}
	f()
	if err := fl.Remove(); err != nil {
		t.Fatal(err)
	}
	return fl.Stats()
}

// leave ends the session and then the target, which must be undisturbed.
func (p *patient) leave(t *testing.T) {
	t.Helper()
	if err := p.s.Close(); err != nil {
		t.Error(err)
	}
	p.CheckClean()
	if got := p.Quit(); got != "right" {
		t.Error(got)
	}
}

func TestAGoFunctionReturnsTheErrorThatWasAskedFor(t *testing.T) {
	p := on(t, testprog.Build(t, "goerrors"))
	for _, c := range []struct{ error, want string }{
		{"ENOENT", `syscall.Errno "no such file or directory" [NotExist]`},
		{"syscall.EACCES", `syscall.Errno "permission denied" [Permission]`},
		{"syscall.Errno(28)", `syscall.Errno "no space left on device" [ENOSPC ==ENOSPC]`},
		{"io.EOF", `*errors.errorString "EOF" [EOF ==EOF]`},
		{"main.ErrMine", `*errors.errorString "an error of mine" [Mine ==Mine]`},
		{"io/fs.ErrPermission", `*errors.errorString "permission denied" [Permission ==Permission]`},
		{"os.ErrDeadlineExceeded", `*poll.DeadlineExceededError "i/o timeout" [Timeout ==Timeout]`},
		{"the disk is full", `*errors.errorString "the disk is full" []`},
		{`"quoted"`, `*errors.errorString "quoted" []`},
		{`errors.New("new \x41")`, `*errors.errorString "new A" []`},
		{`fmt.Errorf("no verb")`, `*errors.errorString "no verb" []`},
		{`fmt.Errorf("reading: %w", EACCES)`, `*fmt.wrapError "reading: permission denied" [Permission]`},
		{`fmt.Errorf("a: %w", fmt.Errorf("b: %w", ENOSPC))`, `*fmt.wrapError "a: b: no space left on device" [ENOSPC]`},
		{`&fs.PathError{Op: "open", Path: name, Err: ENOENT}`, `*fs.PathError "open /dev/null: no such file or directory" [NotExist op=open path=/dev/null]`},
		{`&io/fs.PathError{"stat", "", io.EOF}`, `*fs.PathError "stat : EOF" [EOF op=stat path=]`},
		{`&fs.PathError{Op: name, Err: errors.New("/a/b.c")}`, `*fs.PathError "/dev/null : /a/b.c" [op=/dev/null path=]`},
		{`main.Code{Number: -7, Why: "why", Inner: io.EOF}`, `main.Code "code -7: why (EOF)" []`},
		{`&main.Code{Number: flag, Inner: main.Level(-3)}`, `*main.Code "code 0:  (level -3)" []`},
		{`main.Level(-128)`, `main.Level "level -128" []`},
		{`main.Words("of " )`, `main.Words "words of " []`},
		{`&net.OpError{Op: "dial", Err: ENOENT}`, `*net.OpError "dial: no such file or directory" [NotExist]`},
	} {
		p.returns(t, "os.OpenFile", Results{Error: c.error}, func() {
			if got := p.Do("open /dev/null", "got "); got != "got "+c.want {
				t.Errorf("-error %s:\n got %s\nwant %s", c.error, got, c.want)
			}
		})
	}
	p.leave(t)
}

func TestTypedResultsOfGoFunctions(t *testing.T) {
	p := on(t, testprog.Build(t, "goerrors"))
	for _, c := range []struct {
		sym, call string
		r         Results
		want      string
	}{
		{"main.Many", "many", Results{Error: "io.EOF"}, `0 "" 0 "" <nil> {0 0} false *errors.errorString "EOF" [EOF ==EOF]`},
		{"main.Many", "many", Results{Value: "-5"}, `-5 "" 0 "" <nil> {0 0} false nil`},
		{"main.Many", "many", Results{Error: "x", Named: map[string]string{"a": "127", "s": `"sé"`, "f": "2.5", "b": `[]byte("raw")`,
			"p": "&main.Pair{A: 8, B: -0.5}", "at": "main.Pair{n, 9}", "6": "true"}},
			`127 "sé" 2.5 "raw" &{8 -0.5} {3 9} true *errors.errorString "x" []`},
		{"main.Many", "many", Results{Named: map[string]string{"s": "name", "b": "nil", "p": "nil", "at": "0", "ok": "false", "7": "nil"}},
			`0 "name" 0 "" <nil> {0 0} false nil`},
		{"main.Spilled", "spilled", Results{Error: "ENOENT", Named: map[string]string{"last": "0xffff", "f": "-1e3"}},
			`[0 0 0] -1000 65535 syscall.Errno "no such file or directory" [NotExist]`},
		{"main.Number", "number", Results{Error: "ENOSPC"}, "28"},
		{"main.Number", "number", Results{Value: "0x10"}, "16"},
		{"main.Concrete", "concrete", Results{Error: `&fs.PathError{Op: "o", Err: EACCES}`}, `*fs.PathError "o : permission denied" [Permission op=o path=]`},
		{"main.NetError", "neterror", Results{Error: `&net.OpError{Op: "dial", Err: EAGAIN}`}, `true *net.OpError "dial: resource temporarily unavailable" []`},
		{"main.NoError", "noerror", Results{Value: "-9"}, `-9 ""`},
		{"main.NoError", "noerror", Results{Value: "n", Named: map[string]string{"~r1": `"x"`}}, `5 "x"`},
		{"main.Nothing", "nothing", Results{Value: "0"}, "0"},
		{"main.(*Pair).Method", "method", Results{Value: "k", Error: "main.ErrMine"}, `4 *errors.errorString "an error of mine" [Mine ==Mine]`},
		{"main.(*Pair).Method", "method", Results{Error: "ENOENT"}, `0 syscall.Errno "no such file or directory" [NotExist]`},
		{"main.deep", "deep", Results{Error: "ENOENT"}, `0 syscall.Errno "no such file or directory" [NotExist] ran 0`},
		{"main.Generic[go.shape.string]", "generic", Results{Value: "v", Error: "ENOENT"}, `{1 2} nil "s" syscall.Errno "no such file or directory" [NotExist]`},
	} {
		p.returns(t, c.sym, c.r, func() {
			if got := p.Do("call "+c.call, "got "); got != "got "+c.want {
				t.Errorf("%s %+v:\n got %s\nwant %s", c.sym, c.r, got, c.want)
			}
		})
	}
	p.leave(t)
}

func TestErrorsOfErrors(t *testing.T) {
	p := on(t, testprog.Build(t, "goerrors"))
	for _, c := range []struct {
		sym  string
		r    Results
		want string
	}{
		{"main.NoError", Results{Error: "EIO"}, "cannot inject into main.NoError: error EIO: it returns (int, string), which is no error"},
		{"main.Nothing", Results{Error: "EIO"}, "it returns nothing, which is no error"},
		{"main.Nothing", Results{Value: "1"}, "the value can only be 0"},
		{"os.OpenFile", Results{Error: "io.EOFF"}, `the target has no variable io.EOFF; for an error of that text write errors.New("io.EOFF")`},
		{"os.OpenFile", Results{Error: "main.calls"}, "is no error"},
		{"os.OpenFile", Results{Error: "&fs.PathErr{}"}, "the target never makes an error of a value of type *fs.PathErr: it does of "},
		{"os.OpenFile", Results{Error: "&fs.PathError{Opp: 1}"}, "io/fs.PathError has no field Opp"},
		{"os.OpenFile", Results{Error: "&fs.PathError{Op: 1}"}, `io/fs.PathError.Op: `},
		{"os.OpenFile", Results{Error: "&fs.PathError{Op: flag}"}, `the parameter flag has the type int, not string`},
		{"os.OpenFile", Results{Error: "&fs.PathError{1,2,3,4}"}, "io/fs.PathError"},
		{"os.OpenFile", Results{Error: `fmt.Errorf("%d: %w", EIO)`}, "no other verb"},
		{"os.OpenFile", Results{Error: `fmt.Errorf("x: %w", io.EOF)`}, "the text of the error that it wraps is not known"},
		{"os.OpenFile", Results{Error: "main.Level(200)"}, "it does not fit into 8 bits"},
		{"os.OpenFile", Results{Error: " "}, "an error needs a text"},
		{"main.Many", Results{Named: map[string]string{"nope": "1"}}, "it has no result nope: it returns (int8, string, float64, []uint8, *main.Pair, main.Pair, bool, error)"},
		{"main.Many", Results{Value: "1", Named: map[string]string{"a": "1"}}, "the result a has been given two values"},
		{"main.Many", Results{Value: "300"}, "300 is no value for the type int8: it does not fit into 8 bits"},
		{"main.Many", Results{Value: "2.5"}, "2.5 is no value for the type int8"},
		{"main.Many", Results{Named: map[string]string{"f": "x"}}, "write a number such as 2.5"},
		{"main.Many", Results{Named: map[string]string{"ok": "2"}}, "write true or false"},
		{"main.Many", Results{Named: map[string]string{"s": "5"}}, "write it in quotes"},
		{"main.Many", Results{Named: map[string]string{"b": "name"}}, "the parameter name has the type string, not []uint8"},
		{"main.Spilled", Results{Named: map[string]string{"big": "1"}}, "only 0, for all its bytes"},
		{"runtime.memclrNoHeapPointers", Results{Error: "EIO"}, "Go's integer results are in rax"},
	} {
		if _, err := p.in.Add(t.Context(), Rule{Spec: c.sym, Attr: fault.Always(), Do: []Action{c.r}}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %+v:\n got %v\nwant %s", c.sym, c.r, err, c.want)
		}
	}
}

// The target keeps errors of ours in its heap, wraps them, changes them, collects garbage, and prints them when we have gone.
func TestErrorsOutliveTheSession(t *testing.T) {
	p := on(t, testprog.Build(t, "goerrors"))
	var want []string
	for _, c := range []struct{ error, how, want string }{
		{"ENOENT", "keep", `syscall.Errno "no such file or directory" [NotExist]`},
		{`&fs.PathError{Op: "open", Path: name, Err: ENOENT}`, "keep", `*fs.PathError "open /dev/null: no such file or directory" [NotExist op=open path=/dev/null]`},
		{"made of text", "wrap", `*fmt.wrapError "wrapped: made of text" []`},
		{"io.EOF", "wrap", `*fmt.wrapError "wrapped: EOF" [EOF]`},
	} {
		p.returns(t, "os.OpenFile", Results{Error: c.error}, func() { p.Do("open /dev/null", "got ") })
		p.Do(c.how, "done")
		want = append([]string{c.want}, want...)
	}
	if err := p.s.Close(); err != nil {
		t.Error(err)
	}
	p.CheckClean()
	p.Do("collect", "done")
	p.Send("kept")
	for _, w := range want {
		if got := p.Line(); got != "kept "+w {
			t.Errorf("got %s\nwant kept %s", got, w)
		}
	}
	p.Expect("done")
	if got := p.Quit(); got != "right" {
		t.Error(got)
	}
}

func TestErrorsUnderTheCollectorAndStacksThatGrow(t *testing.T) {
	for _, flags := range [][]string{nil, {"-race"}, {"-gcflags=all=-d=checkptr"}} {
		p := on(t, testprog.Build(t, "goerrors", flags...), "GODEBUG=invalidptr=1", "GOGC=1")
		for _, e := range []string{"ENOENT", `&fs.PathError{Op: "open", Path: name, Err: ENOENT}`, "fs.ErrNotExist", `fmt.Errorf("w: %w", ENOENT)`} {
			st := p.returns(t, "os.OpenFile", Results{Error: e}, func() {
				if got := p.Do("storm 8 300", "opened "); got != "opened 0 failed 2400" {
					t.Errorf("%s: %s", e, got)
				}
			})
			if st.Injected != 2400 || st.Calls != 2400 {
				t.Errorf("%d calls, %d injected", st.Calls, st.Injected)
			}
		}
		p.leave(t)
	}
}

// A target that has changed an error which it was given gets a new one the next time.
func TestAnErrorThatWasChangedIsNotGivenAgain(t *testing.T) {
	p := on(t, testprog.Build(t, "goerrors"))
	p.returns(t, "os.OpenFile", Results{Error: `&fs.PathError{Op: "open", Path: name, Err: ENOENT}`}, func() {
		want := p.Do("open /dev/null", "got ")
		p.Do("change", "done")
		if got := p.Do("open /dev/null", "got "); got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
	})
	p.leave(t)
}

// The new program lies elsewhere, and what the old one's memory kept has gone.
func TestErrorsAreThoseOfTheProgramThatRuns(t *testing.T) {
	p := on(t, testprog.Build(t, "goerrors", "-buildmode=pie"))
	if _, err := p.in.Add(t.Context(), Rule{Spec: "os.OpenFile", Attr: fault.Always(), Do: []Action{Results{Error: `&fs.PathError{Op: "open", Path: name, Err: main.ErrMine}`}}}); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if got, want := p.Do("open /dev/null", "got "), `got *fs.PathError "open /dev/null: an error of mine" [Mine op=open path=/dev/null]`; got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
		p.Do("exec", "ready")
	}
	p.leave(t)
}

// Threads are everywhere in the function, its callers and the handler when the session comes and goes.
func TestComingAndGoingInTheMiddleOfAStorm(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "goerrors"))
	for i := range 20 {
		s, err := kprobes.Attach(context.Background(), p.PID(), kprobes.Options{Log: testprog.NoWarnings(t)})
		if err != nil {
			t.Fatal(err)
		}
		enough, injected := make(chan bool), 0
		in := New(s, Options{Injected: func(e Event) {
			if injected++; e.N == 50 {
				close(enough)
			}
		}})
		attr := fault.Always()
		attr.Probability, attr.Seed = 0.5, uint64(i)
		if _, err := in.Add(t.Context(), Rule{Spec: "os.OpenFile", Attr: attr, Do: []Action{Results{Error: `&fs.PathError{Op: "open", Path: name, Err: ENOENT}`}}}); err != nil {
			t.Fatal(err)
		}
		p.Send("storm 8 200")
		<-enough
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		p.CheckClean()
		if got, want := p.Line(), fmt.Sprintf("opened %d failed %d", 1600-injected, injected); got != want {
			t.Errorf("round %d: %s, want %s", i, got, want)
		}
	}
	if got := p.Quit(); got != "right" {
		t.Error(got)
	}
}
