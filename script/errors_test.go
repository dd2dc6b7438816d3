package script

import (
	"errors"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/symbols"
)

// mistakes are files that can't be run, and what is told of them.
var mistakes = []struct {
	name, src string
	want      string // the sentence, from the line on
	picture   string // what the caret is below, and on
	is        error
}{
	{"syntax", "x = (1,\ny z\n", `2:3: got identifier, want ')'`, "z", nil},
	{"an operator too many", "x = 1 + * 2", "1:9: got '*', want primary expression", "* 2", nil},
	{"indentation", "def f():\nreturn 1", "2:1: got return, want indent", "return", nil},
	{"a string without an end", `x = "abc`, `1:5: unexpected EOF in string`, `"abc`, nil},
	{"unknown name", "kprobe('foo', prex)", "1:15: undefined: prex", "prex)", nil},
	{"two unknown names", "a\nb", "1:1: undefined: a (and 1 more)", "a", nil},
	{"unknown symbol", "x = 1\nk = kprobe('no_such_function')", `2:5: kprobe: unknown symbol: "no_such_function"`, "kprobe(", symbols.ErrUnknownSymbol},
	{"unknown symbol of symbol()", "symbol('nope_nope')", `1:1: symbol: unknown symbol: "nope_nope"`, "symbol(", symbols.ErrUnknownSymbol},
	{"unknown symbol of a fault", "inject('no_such_function', retval = 1)", `1:1: cannot inject into no_such_function: unknown symbol: "no_such_function"`, "inject(", symbols.ErrUnknownSymbol},
	{"unknown parameter", "kprobe('foo', pro = len)", `1:1: kprobe: unexpected keyword argument "pro"`, "kprobe(", nil},
	{"unknown parameter of a fault", "inject('foo', erno = 1)", "1:1: inject: for parameter erno: there is no such parameter (did you mean errno?)", "inject(", nil},
	{"a fault that does nothing", "inject('foo')", "1:1: cannot inject into foo: the rule does nothing to a call", "inject(", nil},
	{"unknown way of system calls", "inject(syscall = 'read', retval = 1, syscall_by = 'magic')", `1:1: inject: for parameter syscall_by: "magic" is unknown, choose auto, sites or ptrace`, "inject(", nil},
	{"a way without system calls", "inject('foo', retval = 1, syscall_by = 'sites')", "1:1: inject: syscall_by is about system calls, name some with syscall", "inject(", nil},
	{"a filter of no threads", "inject('foo', retval = 1, task_filter = True)", "1:1: inject: task_filter marks no threads", "inject(", nil},
	{"unknown errno", "inject('foo', errno = 'EWHAT')", `1:1: inject: for parameter errno: errno "EWHAT": there is no error of this name`, "inject(", nil},
	{"bad probability", "inject('foo', retval = 1, probability = 'often')", `1:1: inject: for parameter probability: "often" is not a probability`, "inject(", nil},
	{"too many arguments", "stop(1)", "1:1: stop: got 1 arguments, want at most 0", "stop(", nil},
	{"missing argument", "after('1s')", "1:1: after: missing argument for f", "after(", nil},
	{"bad type", "kprobe('foo', pre = 5)", `1:1: kprobe: for parameter "pre": got int, want a function`, "kprobe(", nil},
	{"bad type of a duration", "after(5, stop)", `1:1: after: for parameter duration: got int, want a duration such as "50ms"`, "after(", nil},
	{"no duration", "every('soon', stop)", `1:1: every: for parameter duration: "soon" is no duration`, "every(", nil},
	{"too often", "every('1us', stop)", "1:1: every: 1µs is too often", "every(", nil},
	{"bad operands", "x = 1\ny = x + 'a'", "2:7: unknown binary op: int + string", "+ 'a'", nil},
	{"unknown attribute", "x = [1]\nx.push(2)", "2:3: list has no .push field or method", "push(", nil},
	{"unknown attribute of ours", "counter('a').added", "1:14: counter has no .added field or method (did you mean .add?)", "added", nil},
	{"division by zero", "x = 0\ny = 1 // x", "2:7: floored division by zero", "// x", nil},
	{"calls", "def f(x):\n\treturn x[3]\ndef g():\n\treturn f([])\ng()", "2:13: index 3 out of range: empty list", "[3]\n  called from, the last one first:\n    FILE:4:12: in g\n    FILE:5:1: in scenario.star", nil},
	{"recursion", "def f(): f()\nf()", "1:10: function f called recursively", "f()", nil},
	{"endless", "x = 1\nwhile True:\n\tpass", "2:1: cut off after 20000 steps", "while", nil},
	{"endless in a function", "def f():\n\tfor i in range(1 << 60):\n\t\tpass\nf()", "2:5: cut off after 20000 steps", "for", nil},
	{"huge", "x = 'x' * 10000000000", "1:9: repeat count 10000000000 too large", "* 1000", nil},
	{"huge but possible", "x = 'x' * 1000000000", "1:9: cut off: this takes more than what is left of 20000 steps", "* 1000", nil},
	{"bad fetch argument", "kprobe('foo', args = ['n=$argz'])", "1:1: kprobe: argument n=$argz: Invalid $-variable specified (BAD_VAR): at the ^ in n=^$argz", "kprobe(", nil},
	{"bad filter", "kprobe('foo', filter = 'v >')", "1:1: kprobe: filter v >: ", "kprobe(", nil},
	{"address of nothing", "kprobe(4096)", "1:1: ", "kprobe(", nil},
	{"in the middle of an instruction", "x = 1\nkprobe('foo+1')\nkprobe('target')", "2:1: cannot place probe foo+1", "kprobe('foo", kprobes.ErrNotBoundary},
	{"no entry", "kprobe('target')\nkretprobe('foo+3')", "2:1: cannot place probe foo+3", "kretprobe(", kprobes.ErrNotBoundary},
	{"every instruction", "kprobe('foo+*')", "1:1: kprobe: +* stands for every instruction", "kprobe(", nil},
	{"a file that is not there", "load('nothing.star', 'x')", "1:1: cannot load nothing.star:", "load(", nil},
	{"a file of another kind", "load('/etc/passwd', 'x')", "1:1: cannot load /etc/passwd: only files whose names end in .star", "load(", nil},
	{"a file's circle", "load('scenario.star', 'x')", "1:1: cannot load scenario.star:", "load(", nil},
	{"a maxactive of none", "kretprobe('foo', maxactive = 0)", "1:1: kretprobe: maxactive must be at least 1", "kretprobe(", nil},
	{"multiplication of who knows what", "def f(): return [1]\nf()[0] *= 2", "2:8: *= needs a variable", "*= 2", nil},
}

// TestMistakesAreToldWithTheirPlace and nothing is armed: the good probe in front of them
// is not either, and the program is as it was.
func TestMistakesAreToldWithTheirPlace(t *testing.T) {
	l := attach(t, "prey", kprobes.Options{})
	for _, m := range mistakes {
		t.Run(m.name, func(t *testing.T) {
			file := write(t, "scenario.star", m.src)
			o := l.options()
			o.Session, o.Steps = l.s, 1000
			sc, err := Load(file, o)
			if err == nil {
				err = sc.Arm()
			}
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("the error is %v", err)
			}
			if text := e.Error(); !strings.HasPrefix(text, file+":"+m.want) {
				t.Errorf("told is  %s\nwant     …:%s", text, m.want)
			}
			want := strings.ReplaceAll(m.picture, "FILE", file)
			if picture := e.Picture(); !pointsTo(picture, want) {
				t.Errorf("the caret is not below %q:\n%s", want, picture)
			}
			if m.is != nil && !errors.Is(err, m.is) {
				t.Errorf("%v does not match %v", err, m.is)
			}
			if n := len(l.s.Probes()); n != 0 {
				t.Errorf("%d probes are left", n)
			}
			if got := l.Do("call foo 7", "ret"); got != "ret 15" {
				t.Errorf("foo(7) gives %q", got)
			}
		})
	}
	l.close()
}

// pointsTo tells whether the caret in a picture is below want's first line, and the rest of
// want follows.
func pointsTo(picture, want string) bool {
	lines := strings.SplitN(picture, "\n", 3)
	first, rest, _ := strings.Cut(want, "\n")
	if len(lines) < 3 || !strings.HasSuffix(lines[1], "^") {
		return false
	}
	col := len(lines[1]) - 1
	return col <= len(lines[0]) && strings.HasPrefix(lines[0][col:], first) && strings.HasPrefix(lines[2], rest)
}

func TestMistakesInALoadedFileAreToldThere(t *testing.T) {
	other := write(t, "other.star", "def f():\n\treturn 1 +\n")
	_, _, e := loaded(t, "load('"+other+"', 'f')")
	if e == nil || e.File != other || e.Line != 2 || !e.Syntax {
		t.Errorf("told is %+v", e)
	}
	other = write(t, "other.star", "x = 1\nboom = [][x]\n")
	_, _, e = loaded(t, "load('"+other+"', 'boom')")
	if e == nil || e.File != other || e.Line != 2 || e.Syntax || !strings.Contains(e.Message, "out of range") {
		t.Errorf("told is %+v", e)
	}
}

// TestTabsAndWideLettersKeepTheCaret below what is wrong.
func TestTabsAndWideLettersKeepTheCaret(t *testing.T) {
	e := &Error{File: "x", Line: 1, Col: 4, Source: "\tüb+c", Message: "m"}
	if got, want := e.Picture(), "  \tüb+c\n  \t  ^\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := (&Error{File: "x", Line: 1, Col: 1, Source: "a\x1b[2Jb"}).Picture(); strings.Contains(got, "\x1b") {
		t.Errorf("%q drives a terminal", got)
	}
}
