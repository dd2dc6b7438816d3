package main

import (
	"errors"
	"os/exec"
	"strings"
	"testing"
)

func TestWrongUsageIsOneSentenceAndStatus2(t *testing.T) {
	for _, c := range []struct {
		args string
		want string
	}{
		{"atach -p 1", `unknown command "atach" (did you mean attach?)`},
		{"zebra", `unknown command "zebra"; gokprobe -h lists`},
		{"-frob", "unknown flag -frob"},
		{"attach -sim foo", "unknown flag -sim (did you mean -sym?)"},
		{"attach -p 1 --retro foo", "unknown flag -retro"},
		{"attach -p", "flag -p needs a value"},
		{"attach -p 1", "no probes given"},
		{"attach -sym foo", "no process given"},
		{"attach -p -3 -sym foo", "-p -3 is no process ID"},
		{"attach -p 1 -sym foo sleep 1", `unexpected argument "sleep"`},
		{"attach 1 -sym foo", `unexpected argument "1"; a process is named with -p, write -p 1`},
		{"attach redis-server -sym foo", `unexpected argument "redis-server"`},
		{"recover 1", "write -p 1"},
		{"check 1", "write -p 1"},
		{"attach -p 1 -sym foo -format xml", `unknown format "xml"`},
		{"attach -p 1 -sym foo -max-hits 0", "-max-hits must be at least 1"},
		{"attach -p 1 -sym foo -max-hits many", `invalid value "many" for flag -max-hits`},
		{"attach -p 1 -ret -sym foo -maxactive 0", "-maxactive must be at least 1"},
		{"attach -p 1 -sym foo -maxactive 5", "add -ret or name the function as SPEC%return"},
		{"attach -p 1 -sym foo -duration -1s", "-duration must be more than 0"},
		{"attach -p 1 -sym foo -stack -1", "-stack is a number of frames"},
		{"attach -p 1 -sym foo -count -args", "-count prints no hits"},
		{"attach -p 1 -sym foo -all-rows", "-all-rows is about the rows that -count prints, add -count"},
		{"attach -p 1 -hold -arg n=%di", "-arg, -globals and -filter are for probes"},
		{"attach -p 1 -sym f -if n==1 -filter n==2", "-if is another name of -filter, give one of them"},
		{"attach -p 1 -sym f -depth 0", "-depth must be from 1 to 16"},
		{"run -sym f -items 1025 -- true", "-items must be from 1 to 1024"},
		{"log -p 1 -bytes 5000 f", "-bytes must be from 1 to 4096"},
		{"attach -p 1 -hold -filter n==1", "-arg, -globals and -filter are for probes"},
		{"attach -p 1 -addr here", `"here" is no address`},
		{"attach -p 1 -sym foo -o /nonexistent/file", "cannot write to /nonexistent/file: no such file"},
		{"run -p 1 -sym foo -- true", "unknown flag -p"},
		{"run -sym foo", "no command given"},
		{"inject -p 1 -retval 0", "name the calls that shall fail"},
		{"inject -sym foo -retval 0", "no process given"},
		{"inject -p 1 -sym foo", "say how to change a call"},
		{"inject -p 1 -sym foo -retval 0 -- true", "not both"},
		{"inject -p 1 -sym foo -retval 0 -retval=1", "-retval is given twice"},
		{"inject -p 1 -sym foo --errno EIO -delay 1ms -errno EIO", "-errno is given twice"},
		{"attach -p 1 -o a -o b -sym foo", "-o is given twice"},
		{"inject -sym foo -retval 0 -thread 5 -- true", "-thread is for a process that runs"},
		{"inject -p 1 -sym foo -syscall read -retval 0", "-sym and -syscall can't be combined"},
		{"inject -p 1 -sym foo -errno EWHAT", "there is no error of this name"},
		{"inject -p 1 -sym foo -errno 0", "error numbers are 1 to 4095"},
		{"inject -p 1 -sym foo -signal SIGWHAT", "there is no signal of this name"},
		{"inject -p 1 -sym foo -delay soon", "a delay is written as"},
		{"inject -p 1 -sym foo -delay 0s", "a delay must be more than 0"},
		{"inject -p 1 -sym foo -delay 5ms..1ms", "a range of delays"},
		{"inject -p 1 -sym foo -set rdi", "write REGISTER=VALUE"},
		{"inject -p 1 -sym foo -set $arg0=1", "arguments are counted from 1"},
		{"inject -p 1 -sym foo -poke $arg1=xyz", "pairs of hexadecimal digits"},
		{"inject -p 1 -sym foo -corrupt $arg1^0x100", "the bits of a byte"},
		{"inject -p 1 -sym foo -retval 0 -probability 200%", "-probability"},
		{"inject -p 1 -sym foo -retval 0 -when 0", "-when"},
		{"inject -p 1 -sym foo -retval 0 -times -2", "-times"},
		{"inject -p 1 -sym foo -retval 0 -rate 5", "-rate"},
		{"inject -p 1 -sym foo -retval 0 -attr 1,2", "-attr"},
		{"inject -p 1 -sym foo -retval 0 -size $arg1", "-size says how much of -space a call uses up"},
		{"inject -p 1 -sym foo -retval 0 -maxactive 5", "add -after"},
		{"inject -p 1 -sym foo -retval 0 -duration 0s", "-duration must be more than 0"},
		{"inject -p 1 -sym foo -retval 0 -format xml", "unknown format"},
		{"inject -p 1 -addr here -retval 0", "is no address"},
		{"list", "name either a process"},
		{"list -p 1 -x /bin/true", "name either a process"},
		{"list -x /bin/true a b", "one PATTERN at a time"},
		{"list -x /bin/true a -lines", "flags such as -lines come before PATTERN"},
		{"list -x /nonexistent", "cannot list /nonexistent: no such file"},
		{"list -x /proc/self/status", "not a regular file"},
		{"check now", `unexpected argument "now"`},
		{"check -attach", "-attach needs a process"},
		{"demo -duration 0s", "-duration must be more than 0"},
		{"debugfs -p 1", "say what to do with the files: ls, cat, write or mount"},
		{"debugfs -p 1 lls", `unknown command "lls" (did you mean ls?)`},
		{"debugfs -p 1 rm x", `unknown command "rm", choose ls, cat, write or mount`},
		{"debugfs ls", "no process given"},
		{"debugfs -p 1 cat", "no file given"},
		{"debugfs -p 1 write", "no file given"},
		{"debugfs -p 1 write -z x", "unknown flag -z; gokprobe debugfs write -h lists the flags"},
		{"debugfs -p 1 ls a b", `unexpected argument "b"`},
		{"debugfs -p 1 mount", "name one directory"},
		{"completion", "name one shell"},
		{"completion tcsh", `no completion for "tcsh"`},
		{"help atach", `no command or topic is named "atach" (did you mean attach?)`},
		{"help spec", `no command or topic is named "spec" (did you mean specs?)`},
		{"help specs now", `no command or topic is named "specs"`},
		{"help debugfs wrte", `no command or topic is named "debugfs wrte" (did you mean write?)`},
		{"man", "name one directory"},
	} {
		r := gokprobe(t, strings.Fields(c.args)...)
		if r.status != 2 || r.stdout != "" || !strings.Contains(r.stderr, c.want) {
			t.Errorf("%s: status %d, stdout %q, stderr %q", c.args, r.status, r.stdout, r.stderr)
		}
		oneSentence(t, r)
	}
}

func TestHelpAndVersionGoToStdout(t *testing.T) {
	for _, args := range []string{"-h", "--help", "help", "help attach", "help debugfs write", "help specs", "help help", "attach -h", "run --help", "inject -h", "list -h", "check -h", "demo -h", "debugfs -h", "debugfs cat -h", "debugfs write -h", "-version", "--version"} {
		r := gokprobe(t, strings.Fields(args)...)
		if r.status != 0 || r.stderr != "" || !strings.Contains(r.stdout, "gokprobe") {
			t.Errorf("%s: status %d, stdout %q, stderr %q", args, r.status, r.stdout, r.stderr)
		}
	}
	for _, command := range []string{"attach", "run", "inject", "list"} {
		if r := gokprobe(t, command, "-h"); !strings.Contains(r.stdout, "EXAMPLES\n") {
			t.Errorf("%s -h has no examples", command)
		}
	}
}

func TestTheHelpOfAttachSaysWhyHitsMayExceedCalls(t *testing.T) {
	help := strings.Join(strings.Fields(gokprobe(t, "attach", "-h").stdout), " ")
	if !strings.Contains(help, "runtime.morestack, so its hits may exceed its calls.") {
		t.Errorf("attach -h: %s", help)
	}
}

func TestWithoutACommandTheHelpIsShownAndTheStatusIs2(t *testing.T) {
	r := gokprobe(t)
	if r.status != 2 || r.stdout != "" || !strings.Contains(r.stderr, "COMMANDS\n") {
		t.Errorf("status %d, stdout %q, stderr %q", r.status, r.stdout, r.stderr)
	}
}

func TestCompletionScriptsAreThere(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		r := gokprobe(t, "completion", shell)
		if r.status != 0 || r.stderr != "" || !strings.Contains(r.stdout, "gokprobe") {
			t.Errorf("%s: %+v", shell, r)
		}
	}
	script := gokprobe(t, "completion", "bash").stdout +
		`COMP_WORDS=("$1" attach "$2"); COMP_CWORD=2; _gokprobe; echo "${COMPREPLY[@]}"`
	for word, want := range map[string]string{"-max-": "-max-hits", "--no-b": "--no-boost"} {
		out, err := exec.Command("bash", "-c", script, "bash", program, word).CombinedOutput()
		if err != nil || strings.TrimSpace(string(out)) != want {
			t.Errorf("bash completes %s to %q: %v", word, out, err)
		}
	}
}

func TestSentencesStayOnOneLine(t *testing.T) {
	err := errors.Join(errors.New("one"), errors.New("t\x1bwo"))
	if got := oneLine(err.Error()); got != `one; t\x1bwo` {
		t.Errorf("%q", got)
	}
}

func TestAddressesBecomeSpecifications(t *testing.T) {
	for in, want := range map[string]string{
		"0x10": "0x10", "16": "0x10", "libc.so.6:0x1f": "libc.so.6:0x1f", "libc.so.6:16": "libc.so.6:0x10",
		"": "", "foo": "", "0": "", "0x": "", "-1": "", "0x1ffffffffffffffff": "",
	} {
		if got, ok := addrSpec(in); got != want || ok != (want != "") {
			t.Errorf("addrSpec(%q) is %q, %v", in, got, ok)
		}
	}
}

func TestAHalfGoExpressionIsShownWithACaret(t *testing.T) {
	r := gokprobe(t, "inject", "-p", "1", "-sym", "foo", "-error", "&fs.PathError{Op 1}")
	want := `gokprobe: -error "&fs.PathError{Op 1}": no Go expression, column 18: `
	if r.status != 2 || r.stdout != "" || !strings.HasPrefix(r.stderr, want) || !strings.HasSuffix(r.stderr, "\n  &fs.PathError{Op 1}\n                   ^\n") {
		t.Errorf("status %d, stdout %q, stderr %q", r.status, r.stdout, r.stderr)
	}
}
