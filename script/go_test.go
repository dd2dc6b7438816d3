package script

import (
	"testing"

	"github.com/gokprobe/gokprobe/kprobes"
)

// TestGoFunctionsFailWithErrors of their own types, by kprobes, at returns, and by the handlers of faults.
func TestGoFunctionsFailWithErrors(t *testing.T) {
	l := attach(t, "goerrors", kprobes.Options{}).run(`
	kprobe("main.Many", pre = lambda ctx: ctx.fail(error = "io.EOF"))
	kprobe("main.Nothing", pre = lambda ctx: ctx.skip(0))
	kprobe("main.Number", pre = lambda ctx: ctx.fail(16))
	kretprobe("main.deep", ret = lambda ctx: ctx.fail(error = "ENOENT"))
	inject("main.Spilled", handler = lambda ctx: ctx.fail(error = "ENOENT"))
	`)
	for _, c := range [][2]string{
		{"many", `0 "" 0 "" <nil> {0 0} false *errors.errorString "EOF" [EOF ==EOF]`},
		{"nothing", "0"},
		{"number", "16"},
		{"deep", `0 syscall.Errno "no such file or directory" [NotExist] ran 1`},
		{"spilled", `[0 0 0] 0 0 syscall.Errno "no such file or directory" [NotExist]`},
	} {
		if got := l.Do("call "+c[0], "got "); got != "got "+c[1] {
			t.Errorf("%s:\n got %s\nwant %s", c[0], got, c[1])
		}
	}
	r := l.passes()
	if len(r.Faults) != 1 || r.Faults[0].Stats.Injected != 1 {
		t.Errorf("told is %v", r.Faults)
	}
}

// TestCFunctionsFailWithValuesOfTheirTypes where debug information tells those.
func TestCFunctionsFailWithValuesOfTheirTypes(t *testing.T) {
	l := attach(t, "fails", kprobes.Options{}).run(`
	kprobe("pointer", pre = lambda ctx: ctx.fail(errno = "ENOMEM"))
	kprobe("truth", pre = lambda ctx: ctx.fail(False))
	kprobe("real", pre = lambda ctx: ctx.fail(0.25))
	kprobe("small", pre = lambda ctx: ctx.skip(200))
	kprobe("work", pre = lambda ctx: ctx.fail(errno = "EIO"), filter = "n == 2")
	def delayed(ctx):
		ctx.delay("20ms")
		ctx.signal("SIGUSR1")
	kprobe("pthread_like", pre = delayed)
	`)
	if got := l.Do("types", "pointer"); got != "pointer 0 truth 0 small 200 real 0.25 both 5 -5 like 0 errno 12" {
		t.Error(got)
	}
	if got := l.Do("run 3", "failed"); got != "failed 1: 2" {
		t.Error(got)
	}
	if got := l.Do("usr1", "usr1"); got != "usr1 1" {
		t.Error(got)
	}
	l.passes()
}
