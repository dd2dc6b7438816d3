package inject_test

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/inject"
)

func TestActionsAreParsed(t *testing.T) {
	for _, c := range []struct{ kind, text, want string }{
		{"errno", "ENOENT", "errno ENOENT"},
		{"errno", "enoent", "errno ENOENT"},
		{"errno", "2", "errno ENOENT"},
		{"errno", "-2", "errno ENOENT"},
		{"errno", "EWOULDBLOCK", "errno EAGAIN"},
		{"errno", "4000", "errno 4000"},
		{"set", "%di=5", "set %di=5"},
		{"set", "rdi = $arg2", "set %rdi=$arg2"},
		{"set", "$arg12=+8(%sp):u32", "set $arg12=+8(%sp):u32"},
		{"set", "$retval=-3", "return -3"},
		{"poke", "$arg2=0x00fF", "poke $arg2=0x00ff"},
		{"poke", `+0($arg1)="a=\n"`, "poke +0($arg1)=0x613d0a"},
		{"corrupt", "$arg2", "corrupt $arg2@0^0xff"},
		{"corrupt", "$arg2@7", "corrupt $arg2@7^0xff"},
		{"corrupt", "$arg2^1", "corrupt $arg2@0^0x1"},
		{"corrupt", "@sym+4@7^0x80", "corrupt @sym+4@7^0x80"},
		{"delay", "50ms", "delay 50ms"},
		{"delay", "10ms..20ms", "delay 10ms..20ms"},
		{"delay", "0s..1s", "delay 0s..1s"},
		{"signal", "term", "signal SIGTERM"},
		{"signal", "SIGUSR1", "signal SIGUSR1"},
		{"signal", "9", "signal SIGKILL"},
		{"signal", "40", "signal 40"},
	} {
		a, err := inject.ParseAction(c.kind, c.text)
		if err != nil || a.String() != c.want {
			t.Errorf("%s %q: %v, %v; want %s", c.kind, c.text, a, err, c.want)
		}
	}
	for _, c := range []struct{ kind, text, want string }{
		{"explode", "", "unknown action"},
		{"errno", "", "no error of this name"},
		{"errno", "4096", "1 to 4095"},
		{"errno", "0", "1 to 4095"},
		{"set", "rdi", "REGISTER=VALUE"},
		{"set", "=5", "REGISTER=VALUE"},
		{"set", "rdi=", "REGISTER=VALUE"},
		{"set", "$arg0=1", "counted from 1"},
		{"set", "$arg99999999999999999999=1", "counted from 1"},
		{"poke", "$arg1", "ADDRESS="},
		{"poke", "$arg1=0x0", "pairs of"},
		{"poke", `$arg1="x`, "invalid syntax"},
		{"corrupt", "", "write ADDRESS"},
		{"corrupt", "$arg1^0", "bits of a byte"},
		{"corrupt", "$arg1^256", "bits of a byte"},
		{"corrupt", "$arg1@99999999999999999999", "too large"},
		{"delay", "5", "a delay is written"},
		{"delay", "-5ms", "a delay is written"},
		{"delay", "0s", "more than 0"},
		{"delay", "2s..1s", "range of delays"},
		{"signal", "0", "1 to 64"},
		{"signal", "65", "1 to 64"},
		{"signal", "SIGNOPE", "no signal of this name"},
	} {
		a, err := inject.ParseAction(c.kind, c.text)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %q: %v, %v; want %s", c.kind, c.text, a, err, c.want)
		}
	}
}

func TestEveryErrorNumberReadsBack(t *testing.T) {
	for e := unix.Errno(1); e <= 133; e++ {
		name := unix.ErrnoName(e)
		if name == "" {
			continue
		}
		if got, err := inject.ParseErrno(name); err != nil || got != e {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// What an action says is parsed as the same action.
func FuzzParseAction(f *testing.F) {
	for _, s := range []string{"retval\x00-1", "errno\x00EIO", "set\x00%di=5", "set\x00$arg2=3", "poke\x00$arg1=0x00", "poke\x00x=\"y\"", "corrupt\x00$arg2@7^0x01",
		"delay\x0010ms..20ms", "signal\x00TERM", "error\x00io.EOF", "result\x00n=5"} {
		kind, text, _ := strings.Cut(s, "\x00")
		f.Add(kind, text)
	}
	f.Fuzz(func(t *testing.T, kind, text string) {
		a, err := inject.ParseAction(kind, text)
		if err != nil {
			if a != nil {
				t.Errorf("%v with %v", a, err)
			}
			return
		}
		said := a.String()
		again, rest, _ := strings.Cut(said, " ")
		if again != kind { // a result that is written in another way
			return
		}
		if b, err := inject.ParseAction(kind, rest); err != nil || b.String() != said {
			t.Errorf("%s %q says %q, which is %v, %v", kind, text, said, b, err)
		}
	})
}
