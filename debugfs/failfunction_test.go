package debugfs_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/gokprobe/gokprobe/debugfs"
	"github.com/gokprobe/gokprobe/inject/fault"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

const failing = "fail_function/"

// attributes sets files of fail_function, as "name=value …".
func (t *tree) attributes(settings string) {
	t.t.Helper()
	for s := range strings.FieldsSeq(settings) {
		name, value, _ := strings.Cut(s, "=")
		t.must(t.set(failing+name, value))
	}
}

// returns has the fixture call a function, which is to return want each time.
func (t *tree) returns(function string, arg int, want ...int) {
	t.t.Helper()
	t.session.WaitForOptimizer(context.Background())
	for i, w := range want {
		if got := t.prog.Do(fmt.Sprintf("call %s %d", function, arg), "ret"); got != fmt.Sprintf("ret %d", w) {
			t.t.Errorf("call %d: %s(%d) is %q, want %d", i+1, function, arg, got, w)
		}
	}
}

// The attributes are FAULT_ATTR_INITIALIZER's, and shown as fault_create_debugfs_attr's files do.
func TestFailFunctionBeginsAsTheKernels(t *testing.T) {
	tr := open(t, "prey", kprobes.Options{})
	for name, want := range map[string]string{
		"probability": "0", "interval": "1", "times": "1", "space": "0", "verbose": "2", "verbose_ratelimit_interval_ms": "0", "verbose_ratelimit_burst": "10",
		"task-filter": "N", "stacktrace-depth": "32", "require-start": "0x0000000000000000", "require-end": "0xffffffffffffffff",
		"reject-start": "0x0000000000000000", "reject-end": "0x0000000000000000", "when": "", "rate": "", "for": "0s", "per-thread": "N",
	} {
		tr.is(failing+name, want+"\n")
	}
	tr.is(failing+"inject", "")
	tr.refused(tr.set(failing+"probability", "many"), errInvalid)
	tr.refused(tr.set(failing+"times", "-2"), errInvalid)
	tr.refused(tr.set(failing+"task-filter", "perhaps"), errInvalid)
	tr.must(tr.set(failing+"stacktrace-depth", "100"))
	tr.is(failing+"stacktrace-depth", "32\n")
}

func TestFunctionsFail(t *testing.T) {
	inAllModes(t, "prey", func(t *testing.T, tr *tree) {
		tr.must(tr.set(failing+"inject", "foo"))
		tr.is(failing+"inject", "foo\n")
		tr.is(failing+"foo/retval", "ffffffffffffffea\n") // -EINVAL
		tr.returns("foo", 5, 11, 11)                      // probability 0
		tr.attributes("probability=100")
		tr.returns("foo", 5, -22, 11, 11) // times 1
		tr.is(failing+"times", "0\n")
		tr.attributes("times=-1 interval=3")
		tr.must(tr.set(failing+"foo/retval", "0xfffffffffffffff4"))
		tr.is(failing+"foo/retval", "fffffffffffffff4\n")
		tr.returns("foo", 5, 11, 11, -12, 11, 11, -12)
		tr.attributes("interval=1 space=3")
		tr.returns("foo", 5, 11, 11, -12, -12)
		tr.is(failing+"space", "1\n")
		tr.attributes("times=2 when=2+")
		tr.returns("foo", 5, 11, -12, -12, 11)
		tr.is(failing+"times", "0\n")

		tr.must(tr.set(failing+"inject", "target"))
		tr.must(tr.set(failing+"inject", "target2"))
		tr.is(failing+"inject", "foo\ntarget\ntarget2\n")
		tr.attributes("when= times=-1 interval=2") // counts calls of all of them
		tr.returns("foo", 5, 11)
		tr.returns("target", 9, -22, 3)
		tr.returns("target2", 9, -22)
		tr.must(tr.set(failing+"inject", "!target"))
		tr.is(failing+"inject", "foo\ntarget2\n")
		tr.returns("target", 9, 3, 3)
		tr.returns("foo", 5, 11, -12)
		tr.must(tr.set(failing+"inject", "")) // blank
		tr.is(failing+"inject", "")
		tr.returns("foo", 5, 11, 11)
		if n := len(tr.session.Probes()); n != 0 {
			t.Errorf("%d probes are left", n)
		}
	})
}

func TestWhatCanNotBeInjected(t *testing.T) {
	tr := open(t, "prey", kprobes.Options{})
	inject := failing + "inject"
	tr.refused(tr.set(inject, "nosuch"), errInvalid)
	tr.refused(tr.set(inject, "nosuch.so:f"), errInvalid)
	tr.refused(tr.set(inject, "foo+4"), syscall.ERANGE)
	tr.refused(tr.set(inject, "target*"), errInvalid)
	tr.refused(tr.set(inject, "!foo"), syscall.ENOENT)
	tr.must(tr.session.Blacklist("target"))
	tr.refused(tr.set(inject, "target"), errInvalid) // register_kprobe's
	tr.is(inject, "")
	tr.must(tr.set(inject, "  foo \n"))
	tr.refused(tr.set(inject, "foo"), syscall.EBUSY)
	tr.must(tr.Truncate(inject)) // which changes nothing
	tr.is(inject, "foo\n")

	retval := failing + "foo/retval"
	for _, v := range []string{"0", "-4096", "1", "0x1_0", "x", "", "0x1ffffffffffffffff"} {
		tr.refused(tr.set(retval, v), errInvalid)
	}
	tr.must(tr.set(retval, "-4095"))
	tr.is(retval, "fffffffffffff001\n")
	tr.must(tr.set(inject, "!foo"))
	tr.refused(tr.set(retval, "-1"), syscall.ENOENT)
	if _, err := tr.Open(retval); err == nil {
		t.Error("the directory of a function that is not injected any more")
	}
	tr.must(tr.set(inject, "libc.so.6:times")) // is called like an attribute
	tr.must(tr.set(failing+"libc.so.6:times/retval", "-1"))
	tr.is(failing+"times", "1\n")
}

// A pointer may be null or an error's number, what returns nothing can return nothing else, an integer is an error's number.
func TestTypesOfErrors(t *testing.T) {
	tr := open(t, "typed", kprobes.Options{})
	inject := func(name string) { tr.must(tr.set(failing+"inject", name)) }
	inject("handle")
	inject("done")
	tr.is(failing+"handle/retval", "0\n")
	tr.must(tr.set(failing+"handle/retval", "-12"))
	tr.refused(tr.set(failing+"handle/retval", "0x1000"), errInvalid)
	tr.is(failing+"done/retval", "0\n")
	tr.refused(tr.set(failing+"done/retval", "-1"), errInvalid)
	for _, file := range []string{failing + "injectable", "error_injection/list"} {
		list := tr.cat(file)
		for _, line := range []string{"handle\tERRNO_NULL\n", "done\tNULL\n", "main\tERRNO\n", "\nlibc.so.6:malloc\t"} {
			if !strings.Contains(list, line) {
				t.Errorf("%s does not say %q", file, line)
			}
		}
	}
	tr.refused(tr.set("error_injection/list", "foo"), syscall.EACCES)
}

// In Go the number is the first result, and the others are zero: no register is taken for what it held. A slash in a function's
// name is none in its directory's.
func TestGoFunctionsFail(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "goerrors"))
	var mu sync.Mutex
	var log []string
	s, err := kprobes.Attach(context.Background(), p.PID(), kprobes.Options{})
	if err != nil {
		t.Fatal(err)
	}
	tr := &tree{Tree: debugfs.New(s, debugfs.Options{Log: func(m string) {
		mu.Lock()
		defer mu.Unlock()
		log = append(log, m)
	}}), t: t, session: s, prog: p}
	if list := tr.cat("error_injection/list"); !strings.Contains(list, "main.main\tANY\n") {
		t.Error("main.main is not listed as ANY")
	}
	before := map[string]string{}
	for _, f := range []string{"NoError", "Number"} {
		before[f] = p.Do("call "+strings.ToLower(f), "got")
		tr.must(tr.set(failing+"inject", "main."+f))
		tr.must(tr.set(failing+"main."+f+"/retval", "2"))
	}
	tr.must(tr.set(failing+"inject", "internal/poll.(*FD).Init"))
	tr.must(tr.set(failing+"internal!poll.(*FD).Init/retval", "0x123456789"))
	tr.attributes("probability=100 times=-1 verbose=0")
	for f, want := range map[string]string{"NoError": `got 2 ""`, "Number": "got 2"} {
		if got := p.Do("call "+strings.ToLower(f), "got"); got != want {
			t.Errorf("%s was %q and is %q, want %q", f, before[f], got, want)
		}
	}
	tr.must(tr.Close())
	tr.must(s.Close())
	mu.Lock()
	defer mu.Unlock()
	if len(log) != 0 {
		t.Errorf("log %q", log)
	}
}

func TestStackFilters(t *testing.T) {
	inAllModes(t, "prey", func(t *testing.T, tr *tree) {
		inside := func(f string) (start, end string) {
			found, err := tr.session.Symbols().Resolve(t.Context(), f)
			tr.must(err)
			at := uint64(found[0].Addr)
			return fmt.Sprintf("%#x", at), fmt.Sprintf("%#x", at+found[0].Symbol.Size)
		}
		tr.must(tr.set(failing+"inject", "stack_internal"))
		tr.must(tr.set(failing+"stack_internal/retval", "-100"))
		tr.attributes("probability=100 times=-1")
		tr.returns("stack_driver", 9, -100)
		start, end := inside("stack_target")
		tr.attributes("require-start=" + start + " require-end=" + end)
		tr.returns("stack_driver", 9, -100)
		start, end = inside("target2")
		tr.attributes("require-start=" + start + " require-end=" + end)
		tr.returns("stack_driver", 9, 3)
		tr.attributes("require-start=0 require-end=0xffffffffffffffff")
		start, end = inside("stack_driver") // the caller's caller
		tr.attributes("reject-start=" + start + " reject-end=" + end)
		tr.returns("stack_driver", 9, 3)
		tr.attributes("stacktrace-depth=1")
		tr.returns("stack_driver", 9, -100)
	})
}

// sums has the fixture call foo in 40 threads, 5 times each with 0 to 4: 25 by its results, less what fails with -100 in place of 1 to 9.
func (t *tree) sums(want int) {
	t.t.Helper()
	if got := t.prog.Do("threads 40 5 foo", "sum"); got != fmt.Sprintf("sum %d count 200", want) {
		t.t.Errorf("%q, want sum %d", got, want)
	}
}

func TestTaskFilter(t *testing.T) {
	inAllModes(t, "prey", func(t *testing.T, tr *tree) {
		mine := fmt.Sprintf("%stasks/%d/", failing, tr.prog.PID())
		tr.is(mine+"make-it-fail", "0\n")
		tr.must(tr.set(failing+"inject", "foo"))
		tr.must(tr.set(failing+"foo/retval", "-100"))
		tr.attributes("probability=100 times=-1 task-filter=Y")
		tr.sums(40 * 25)
		tr.must(tr.set(mine+"make-it-fail", "1"))
		tr.is(mine+"make-it-fail", "1\n")
		tr.returns("foo", 1, -100)
		tr.sums(40 * 5 * -100) // it is inherited
		tr.must(tr.set(mine+"make-it-fail", "0"))
		tr.returns("foo", 1, 3)
		tr.sums(40 * 25)
		tr.refused(tr.set(mine+"make-it-fail", "2"), errInvalid)
		tr.refused(tr.set(failing+"tasks/1/make-it-fail", "1"), syscall.ENOENT)
		tr.refused(tr.set(failing+"tasks/0/make-it-fail", "1"), syscall.ENOENT)
	})
}

func TestFailNth(t *testing.T) {
	inAllModes(t, "prey", func(t *testing.T, tr *tree) {
		nth := fmt.Sprintf("%stasks/%d/fail-nth", failing, tr.prog.PID())
		tr.must(tr.set(failing+"inject", "foo"))
		tr.must(tr.set(nth, "3")) // with probability 0
		tr.is(nth, "3\n")
		tr.returns("foo", 5, 11, 11)
		tr.is(nth, "1\n")
		tr.sums(40 * 25) // it is not inherited
		tr.returns("foo", 5, -22, 11)
		tr.is(nth, "0\n")
		tr.attributes("probability=100 times=-1")
		tr.returns("foo", 5, -22)
		tr.must(tr.set(nth, "2"))
		tr.returns("foo", 5, 11, -22, -22)
		tr.refused(tr.set(nth, "-1"), errInvalid)
	})
}

// Which calls fail by a probability is said by the seed, whoever decides; and calls that pass do not stop where the target does.
func TestProbabilityOfAFunction(t *testing.T) {
	var want []int
	for n := range 200 {
		result := 3
		if fault.Mix(77, uint64(n)) < math.MaxUint64/100*10 {
			result = -22
		}
		want = append(want, result)
	}
	inAllModes(t, "prey", func(t *testing.T, tr *tree) {
		tr.must(tr.set(failing+"inject", "foo"))
		tr.attributes("seed=77 probability=10 times=-1")
		tr.is(failing+"probability", "10\n")
		tr.returns("foo", 1, want...)
		if optimized := strings.Contains(tr.cat("kprobes/list"), "[OPTIMIZED]"); optimized != strings.HasSuffix(t.Name(), "/optimized") {
			t.Errorf("optimized: %v", optimized)
		}
		tr.attributes("probability=0")
		if list := tr.cat("kprobes/list"); !strings.Contains(list, "[DISABLED]") { // and costs nothing
			t.Errorf("with probability 0 the probe is %s", list)
		}
	})
}

func TestFailuresAreReported(t *testing.T) {
	var mu sync.Mutex
	var log []string
	p := testprog.Start(t, testprog.Build(t, "prey"))
	s, err := kprobes.Attach(context.Background(), p.PID(), kprobes.Options{})
	if err != nil {
		t.Fatal(err)
	}
	tr := &tree{Tree: debugfs.New(s, debugfs.Options{Log: func(m string) {
		mu.Lock()
		defer mu.Unlock()
		log = append(log, m)
	}}), t: t, session: s, prog: p}
	tr.must(tr.set(failing+"inject", "stack_internal"))
	tr.attributes("times=3 probability=100")
	tr.returns("stack_driver", 9, -22, -22)
	tr.attributes("verbose=0")
	tr.returns("stack_driver", 9, -22)
	tr.attributes("verbose=1 times=3")
	tr.returns("stack_driver", 9, -22)
	tr.must(tr.Close())
	tr.must(s.Close())
	mu.Lock()
	defer mu.Unlock()
	if len(log) != 3 {
		t.Fatalf("%d messages: %q", len(log), log)
	}
	head := "FAULT_INJECTION: forcing a failure.\nname fail_function, interval 1, probability 100, space 0, times %d\nstack_internal returns 0xffffffffffffffea, PID: %d Comm: prey"
	if want := fmt.Sprintf(head+"\nCall Trace:\n stack_target+0x", 3, p.PID()); !strings.HasPrefix(log[0], want) || !strings.Contains(log[0], "\n stack_driver+0x") {
		t.Errorf("%s\nwant\n%s", log[0], want)
	}
	if !strings.Contains(log[1], "times 2\n") {
		t.Errorf("%s\nwant times 2", log[1])
	}
	if want := fmt.Sprintf(head, 3, p.PID()); log[2] != want {
		t.Errorf("%s\nwant\n%s", log[2], want)
	}
}

func TestFailuresAreReportedToTheDefaultLog(t *testing.T) {
	said := testprog.Slogged(t)
	tr := open(t, "prey", kprobes.Options{})
	tr.must(tr.set(failing+"inject", "foo"))
	tr.attributes("times=1 probability=100 verbose=1")
	tr.returns("foo", 5, -22, 11)
	if got := said(); len(got) != 1 || !strings.HasPrefix(got[0], "WARN FAULT_INJECTION: forcing a failure.\n") {
		t.Errorf("%q", got)
	}
}
