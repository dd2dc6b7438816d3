package inject_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/inject"
	"github.com/gokprobe/gokprobe/inject/fault"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// actions parses "kind text" lines.
func actions(t *testing.T, texts ...string) []inject.Action {
	t.Helper()
	var all []inject.Action
	for _, text := range texts {
		kind, rest, _ := strings.Cut(text, " ")
		a, err := inject.ParseAction(kind, rest)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, a)
	}
	return all
}

// combined is actions, as a command line has them.
func combined(t *testing.T, texts ...string) []inject.Action {
	t.Helper()
	all, err := inject.Combine(actions(t, texts...))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestWhatIsDoneToACall(t *testing.T) {
	for _, c := range []struct {
		spec  string
		after bool
		cond  string
		do    []string
		say   string
		want  string
		what  string // of the first event; empty: there is none
	}{
		{spec: "work", do: []string{"retval -1"}, say: "run 2", want: "failed 2: 1 2", what: "return -1"},
		{spec: "work", do: []string{"retval 0xffffffff"}, say: "run 1", want: "failed 1: 1", what: "return 0xffffffff"},
		{spec: "work", do: []string{"errno EAGAIN"}, say: "run 1", want: "failed 1: 1", what: "return -1 errno EAGAIN"},
		{spec: "work", do: []string{"set $arg1=-5"}, say: "many", want: "many 36"},
		{spec: "pointer", do: []string{"errno ENOENT"}, say: "types", want: "pointer 0 truth 1 small 9 real 2.5 both 5 -5 like 0 errno 2", what: "return 0 errno ENOENT"},
		{spec: "pointer", do: []string{"set $arg1=7"}, say: "types", want: "pointer 1 truth 1 small 9 real 2.5 both 5 -5 like 0 errno 0", what: "set $arg1=0x7"},
		{spec: "truth", do: []string{"errno EIO"}, say: "types", want: "pointer 1 truth 0 small 9 real 2.5 both 5 -5 like 0 errno 5", what: "return 0 errno EIO"},
		{spec: "small", do: []string{"errno EIO"}, say: "types", want: "pointer 1 truth 1 small 255 real 2.5 both 5 -5 like 0 errno 5", what: "return -1 errno EIO"},
		{spec: "small", do: []string{"retval 200"}, say: "types", want: "pointer 1 truth 1 small 200 real 2.5 both 5 -5 like 0 errno 0", what: "return 200"},
		{spec: "nothing", do: []string{"errno ENOENT"}, say: "types", want: "pointer 1 truth 1 small 9 real 2.5 both 5 -5 like 0 errno 2", what: "return 0 errno ENOENT"},
		{spec: "pthread_like", do: []string{"errno EBUSY"}, say: "types", want: "pointer 1 truth 1 small 9 real 2.5 both 5 -5 like 16 errno 0", what: "return 16"},
		{spec: "libc.so.6:open64", do: []string{"errno EMFILE"}, say: "open /etc/passwd", want: "open -1 errno 24", what: "return -1 errno EMFILE"},
		{spec: "libc.so.6:open64", after: true, cond: "r < 0", do: []string{"errno EMFILE"}, say: "open /etc/passwd", want: "open 0 errno 0"},
		{spec: "libc.so.6:open64", after: true, cond: "r < 0", do: []string{"errno EMFILE"}, say: "open /no/such", want: "open -1 errno 24", what: "return -1 errno EMFILE"},
		{spec: "many", do: []string{"set $arg1=11", "set %si=6", "set $arg8=2"}, say: "many", want: "many 64", what: "set $arg1=0xb, set %si=0x6, set $arg8=0x2"},
		{spec: "many", do: []string{"set rdi=$arg7"}, say: "many", want: "many 36", what: "set %rdi=0x1"},
		{spec: "fill", after: true, do: []string{"corrupt $arg1@3^0x10"}, say: "fill 9", want: "fill 9 wrong 1 first 3 is 0x13", what: "0x03 -> 0x13"},
		{spec: "fill", after: true, do: []string{"corrupt $arg1"}, say: "fill 9", want: "fill 9 wrong 1 first 0 is 0xff", what: "0x00 -> 0xff"},
		{spec: "fill", after: true, do: []string{"poke $arg1=0x000102ffee"}, say: "fill 9", want: "fill 9 wrong 2 first 3 is 0xff", what: "=0x000102ffee"},
		{spec: "fill", after: true, do: []string{`poke $arg1="\x00A"`}, say: "fill 9", want: "fill 9 wrong 1 first 1 is 0x41", what: "=0x0041"},
		{spec: "fill", after: true, do: []string{"retval 3"}, say: "fill 9", want: "fill 3 wrong 0 first -1 is 0", what: "return 3"},
		{spec: "fill", after: true, do: []string{"set %ax=4"}, say: "fill 9", want: "fill 4 wrong 0 first -1 is 0", what: "set %ax=0x4"},
		{spec: "fill", after: true, cond: "ret == 9 && n > 8", do: []string{"retval 3"}, say: "fill 9", want: "fill 3 wrong 0 first -1 is 0", what: "return 3"},
		{spec: "small", after: true, cond: "ret == 9", do: []string{"retval 200"}, say: "types", want: "pointer 1 truth 1 small 200 real 2.5 both 5 -5 like 0 errno 0", what: "return 200"},
		{spec: "work", do: []string{"retval -1", "errno EAGAIN"}, say: "errnos", want: "errnos 11", what: "return -1 errno EAGAIN"},
		{spec: "work", do: []string{"errno EIO"}, say: "errnos", want: "errnos 5", what: "return -1 errno EIO"},
		{spec: "work", do: []string{"retval -1"}, say: "errnos", want: "errnos 0", what: "return -1"},
		{spec: "fill", after: true, cond: "ret > 100", do: []string{"retval 3"}, say: "fill 9", want: "fill 9 wrong 0 first -1 is 0"},
		{spec: "fill", do: []string{"set $arg2=2"}, say: "fill 4", want: "fill 2 wrong 2 first 2 is 0", what: "set $arg2=0x2"},
		{spec: "fill", do: []string{"delay 1ms"}, say: "fill 4", want: "fill 4 wrong 0 first -1 is 0", what: "delay 1ms"},
		{spec: "fill", do: []string{"signal USR1"}, say: "fill 4", want: "fill 4 wrong 0 first -1 is 0", what: "signal SIGUSR1"},
		{spec: "fill", after: true, do: []string{"delay 1ms", "signal usr1"}, say: "fill 4", want: "fill 4 wrong 0 first -1 is 0", what: "delay 1ms, signal SIGUSR1"},
	} {
		name := fmt.Sprintf("%s %v (after %v, if %q)", c.spec, c.do, c.after, c.cond)
		for _, opts := range []kprobes.Options{{}, {NoOptimize: true}} {
			b := on(t, opts)
			f := b.add(inject.Rule{Spec: c.spec, After: c.after, If: c.cond, Attr: fault.Always(), Args: retArg(c.after), Do: combined(t, c.do...)})
			b.s.WaitForOptimizer(t.Context())
			first, _, _ := strings.Cut(c.want, " ")
			if got := b.Do(c.say, first); got != c.want && c.what != "" || c.what == "" && c.cond != "" && got != c.want {
				t.Errorf("%s: %s, want %s", name, got, c.want)
			}
			var what string
			if len(b.told()) > 0 {
				what = strings.Join(b.told()[0].What, ", ")
			}
			if !strings.Contains(what, c.what) || c.what == "" && c.spec != "work" && what != "" {
				t.Errorf("%s: %q, want %q", name, what, c.what)
			}
			for _, a := range f.Stats().Actions {
				if a.N != f.Stats().Injected || strings.HasPrefix(c.what, "return") && a.Action != c.what {
					t.Errorf("%s: %+v", name, f.Stats())
				}
			}
			if slices.ContainsFunc(c.do, func(s string) bool { return strings.HasPrefix(strings.ToLower(s), "signal") }) {
				if got := b.Do("usr1", "usr1"); got != "usr1 1" {
					t.Errorf("%s: %s", name, got)
				}
			}
		}
	}
}

// retArg makes a condition on what a function has returned possible.
func retArg(after bool) []string {
	if after {
		return []string{"r=$retval:s32"}
	}
	return nil
}

func TestADryRunDoesNothing(t *testing.T) {
	b := on(t, kprobes.Options{})
	f := b.add(inject.Rule{Spec: "work", Attr: attr(t, "interval=2"), Do: actions(t, "set $arg1=-9", "errno EIO"), DryRun: true, Args: []string{"n=$arg1"}})
	if got := b.Do("run 6", "failed"); got != "failed 0:" {
		t.Error(got)
	}
	if s := f.Stats(); s.Calls != 6 || s.Eligible != 6 || s.Injected != 3 || len(b.told()) != 3 {
		t.Errorf("%+v, %d events", s, len(b.told()))
	}
	for i, e := range b.told() {
		if !slices.Equal(e.What, []string{"set $arg1=-9", "return -1 errno EIO"}) || e.Values[0].U != uint64(2*i+2) {
			t.Errorf("%+v", e)
		}
	}
}

func TestAHandlerDecidesAndActs(t *testing.T) {
	b := on(t, kprobes.Options{})
	var asked []uint64
	b.add(inject.Rule{Spec: "work", Attr: attr(t, "interval=2"), Args: []string{"n=$arg1:s64"}, Handler: func(c *inject.Call) bool {
		_, v, ok := c.Value("n")
		n, err := c.Arg(1)
		if !ok || err != nil || v.U != n || c.AtReturn() || c.Place() != "work" {
			t.Errorf("%v, %v, %d, %d", ok, err, v.U, n)
		}
		asked = append(asked, n)
		if n%4 != 0 {
			return false
		}
		if err := errors.Join(c.Errno(unix.EIO), c.Return(^uint64(0))); err != nil || !c.Ended() {
			t.Error(err)
		}
		c.Note("number %d", n)
		return true
	}})
	if got := b.Do("run 12", "failed"); got != "failed 3: 4 8 12" || !slices.Equal(asked, []uint64{2, 4, 6, 8, 10, 12}) {
		t.Error(got, asked)
	}
	if len(b.told()) != 3 || b.told()[1].What[0] != "number 8" || b.told()[2].N != 3 {
		t.Errorf("%+v", b.told())
	}
}

func TestWhatCantBeDoneIsToldAndTheCallGoesOn(t *testing.T) {
	for _, do := range []string{"corrupt 8", "poke +0(+0($arg1))=0x00", "set $arg1=+0($arg1)"} {
		var warned []string
		b := on(t, kprobes.Options{})
		b.in = inject.New(b.s, inject.Options{Log: func(m string) { warned = append(warned, m) }, Injected: func(inject.Event) { t.Error("an event") }})
		f := b.add(inject.Rule{Spec: "work", Attr: fault.Always(), Do: actions(t, do)})
		if got := b.Do("run 3", "failed"); got != "failed 0:" {
			t.Errorf("%s: %s", do, got)
		}
		if s := f.Stats(); s.Injected != 0 || s.Refused != 3 || s.Actions[0].N != 0 {
			t.Errorf("%s: %+v", do, s)
		}
		if len(warned) != 1 || !strings.Contains(warned[0], "work: ") || !strings.Contains(warned[0], "was not done") {
			t.Errorf("%s: %q", do, warned)
		}
	}
}

func TestWarningsGoToTheDefaultLog(t *testing.T) {
	said := testprog.Slogged(t)
	b := on(t, kprobes.Options{})
	b.in = inject.New(b.s, inject.Options{})
	b.add(inject.Rule{Spec: "work", Attr: fault.Always(), Do: actions(t, "corrupt 8")})
	b.Do("run 3", "failed")
	if got := said(); len(got) != 1 || !strings.HasPrefix(got[0], "WARN work: ") {
		t.Errorf("%q", got)
	}
}
