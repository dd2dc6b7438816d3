package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gokprobe/gokprobe/internal/escape"
	"github.com/gokprobe/gokprobe/internal/testprog"
)

// hostility is a name of ten bytes that is to harm who reads it, and how it is to be shown.
type hostility struct{ name, shown, json, quoted string }

var hostilities = []hostility{
	// It drives a terminal, turns what follows it round, and is no UTF-8.
	{"\x1b[1m\u202e\u009b\xff", `\x1b[1m\u202e\u009b\xff`, "\x1b[1m\u202e\u009b\ufffd", `\u001b[1m\u202e\u009b\ufffd`},
	// It begins a line of its own, and a column, and goes back to the line's beginning.
	{"\nforged:\t\r", `\nforged:\t\r`, "\nforged:\t\r", `\nforged:\t\r`},
}

// inProgram is what the fixture's strings are made of.
const inProgram = "\x1b[1m\u202e\u009b\xff"

// hostileProgram is the fixture shown with a hostile name for its file and its function.
func hostileProgram(t *testing.T, hostile string) string {
	t.Helper()
	b, err := os.ReadFile(testprog.Build(t, "shown"))
	if err != nil {
		t.Fatal(err)
	}
	b = bytes.ReplaceAll(b, []byte("ABCDEFGHIJ"), []byte(hostile))
	b = bytes.ReplaceAll(b, []byte(inProgram), []byte(hostile))
	name := filepath.Join(t.TempDir(), "p"+hostile)
	if err := os.WriteFile(name, b, 0o755); err != nil {
		t.Fatal(err)
	}
	return name
}

// harmless checks what is printed, and that it is of some use.
func harmless(t *testing.T, what, out string) {
	t.Helper()
	for i, r := range out {
		_, n := utf8.DecodeRuneInString(out[i:])
		if r != '\n' && r != '\t' && (!escape.Printable(r) || r == utf8.RuneError && n == 1) {
			t.Fatalf("%s prints %U: %q", what, r, out[max(0, i-60):min(len(out), i+60)])
		}
		if r == '\t' && strings.HasPrefix(out[:i], "forged:") || r == '\n' && strings.HasPrefix(out[i+1:], "forged:") {
			t.Fatalf("%s prints a forged line: %q", what, out[max(0, i-60):min(len(out), i+60)])
		}
	}
}

func harmlessResult(t *testing.T, what string, r result) {
	t.Helper()
	harmless(t, what+" on stdout", r.stdout)
	harmless(t, what+" on stderr", r.stderr)
}

// TestNoPrinterPassesOnWhatDrivesATerminal feeds all of them with hostile names of files, functions, threads, and strings.
func TestNoPrinterPassesOnWhatDrivesATerminal(t *testing.T) {
	for _, h := range hostilities {
		t.Run(h.shown, func(t *testing.T) { hostilePrinters(t, h) })
	}
}

func hostilePrinters(t *testing.T, h hostility) {
	bin, hostile := hostileProgram(t, h.name), h.name
	p := testprog.Start(t, bin)
	pid := pidOf(p)
	shown := "evil_" + h.shown
	scenario := filepath.Join(t.TempDir(), "s.star")
	if err := os.WriteFile(scenario, []byte(`
def pre(ctx):
    text = ctx.string(ctx.arg(0))
    print(ctx.comm, ctx.name, text)
    report(ctx.comm, where = ctx.name, text = text)
    expect(False, "comm is " + ctx.comm + text)
kprobe("evil_*", pre = pre)
`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"list", "-p", pid, "evil_*"}, {"list", "-x", bin, "evil_*"}, {"list", "-x", bin, "-format", "json", "evil_*"}, {"list", "-p", pid, "-lines", "evil_*+*"},
		{"list", "-x", bin, "evil_" + hostile + "+*"}, {"list", "-x", bin, hostile}, {"list", "-x", bin + hostile},
		{"check", "-p", pid}, {"recover", "-p", pid}, {"completion", "bash"}, {"attach", "-p", hostile, "-sym", "x"},
		{"attach", "-p", pid, "-sym", "evil_" + hostile + "x"}, {"attach", "-p", pid, "-sym", "evil_*", "-filter", hostile}, {"attach", "-p", pid, "-sym", "evil_*", "-arg", hostile},
		{"attach", "-p", pid, "-" + hostile}, {hostile}, {"debugfs", "-p", pid, "cat", "x"}, {"inject", "-p", pid, "-sym", "evil_*", "-errno", hostile},
		{"script", "-p", pid, scenario + hostile}, {"run", "-sym", "evil_*", "--", bin + hostile}, {"debugfs", "-p", pid, "cat", hostile},
	} {
		r := gokprobe(t, args...)
		harmlessResult(t, strings.Join(args, " "), r)
		if args[0] == "list" && strings.HasSuffix(args[len(args)-1], "evil_*") && r.status == 0 && args[2] != "json" {
			if !strings.Contains(r.stdout, shown) && !strings.Contains(r.stdout, `"evil_`+h.quoted+`"`) {
				t.Errorf("%v: status %d, %q", args, r.status, r.stdout)
			}
		}
	}
	for _, args := range [][]string{
		{"attach", "-sym", "evil_*", "-args", "-stack", "4"}, {"attach", "-sym", "evil_*", "-args", "-stack", "4", "-format", "json"},
		{"attach", "-sym", "evil_*", "-ret", "-args", "-no-optimize"}, {"attach", "-sym", "evil_*", "-count", "-all-rows", "-arg", "s=+0($arg1):string", "-filter", `s ~ "*x*"`},
		{"attach", "-sym", "evil_*", "-arg", "s=+0($arg1):string", "-arg", "c=$comm"}, {"attach", "-sym", "evil_*", "-arg", "s=+0($arg1):string", "-format", "json"},
		{"inject", "-sym", "evil_*", "-retval", "1", "-dry-run"}, {"inject", "-sym", "evil_*", "-retval", "1", "-dry-run", "-format", "json"},
	} {
		l := start(t, append([]string{args[0], "-p", pid}, args[1:]...)...)
		p.Do("call 2", "called")
		r := l.interrupt()
		what := strings.Join(args, " ")
		harmlessResult(t, what, r)
		if args[len(args)-1] != "json" {
			if !strings.Contains(r.stdout+r.stderr, shown) {
				t.Errorf("%s: %q, %q", what, r.stdout, r.stderr)
			}
			continue
		}
		for line := range strings.Lines(r.stdout) {
			var hit struct{ Comm, Symbol string }
			if err := json.Unmarshal([]byte(line), &hit); err != nil {
				t.Errorf("%s: %v in %q", what, err, line)
			}
			if hit.Comm != "" && (hit.Comm != h.json+"\a" || !strings.HasPrefix(hit.Symbol, "evil_"+h.json)) {
				t.Errorf("%s: %q", what, hit)
			}
		}
	}
	hostileFiles(t, p, h)
	hostileScenario(t, p, scenario, h)
	p.CheckClean()
	p.Quit()
}

// hostileFiles reads a session's files, all that are text.
func hostileFiles(t *testing.T, p *testprog.Prog, h hostility) {
	t.Helper()
	hostile := h.name
	pid := pidOf(p)
	l := start(t, "attach", "-p", pid, "-hold", "-sym", "evil_*")
	for _, w := range [][2]string{
		{"tracing/kprobe_events", "p:evil evil_" + hostile + ` s=+0($arg1):string c=$comm`}, {"tracing/kprobe_events", "p:bad " + hostile},
		{"tracing/events/kprobes/evil/trigger", "hist:keys=s,c"}, {"tracing/events/kprobes/evil/filter", hostile}, {"tracing/events/kprobes/evil/enable", "1"},
		{"fail_function/inject", hostile},
	} {
		harmlessResult(t, "debugfs write "+w[0], gokprobe(t, "debugfs", "-p", pid, "write", "-a", w[0], w[1]))
	}
	p.Do("call 2", "called")
	seen := 0
	for _, file := range []string{"kprobes/list", "kprobes/blacklist", "tracing/kprobe_events", "tracing/kprobe_profile", "tracing/trace", "tracing/events/kprobes/evil/hist",
		"tracing/events/kprobes/evil/format", "tracing/events/kprobes/evil/trigger", "tracing/events/kprobes/evil/filter", "tracing/error_log", "tracing/README", "fail_function/injectable",
		"tracing/saved_cmdlines", "tracing/available_filter_functions"} {
		r := gokprobe(t, "debugfs", "-p", pid, "cat", file)
		harmlessResult(t, "debugfs cat "+file, r)
		if strings.Contains(r.stdout, h.shown) {
			seen++
		}
	}
	if seen < 3 {
		t.Errorf("%d files have it", seen)
	}
	harmlessResult(t, "attach -hold", l.interrupt())
}

// hostileScenario prints and reports names and strings of the target, in all forms.
func hostileScenario(t *testing.T, p *testprog.Prog, file string, h hostility) {
	t.Helper()
	for _, format := range []string{"text", "json"} {
		dir := t.TempDir()
		tap, junit := filepath.Join(dir, "tap"), filepath.Join(dir, "xml")
		l := start(t, "script", "-p", pidOf(p), "-format", format, "-report", "tap:"+tap, "-report", "junit:"+junit, file)
		p.Do("call 2", "called")
		r := l.interrupt()
		harmlessResult(t, "script -format "+format, r)
		if !strings.Contains(r.stdout+r.stderr, h.shown[3:7]) {
			t.Errorf("%q, %q", r.stdout, r.stderr)
		}
		for _, name := range []string{tap, junit} {
			b, err := os.ReadFile(name)
			if err != nil || len(b) == 0 {
				t.Error(err)
			}
			harmless(t, name, string(b))
			if name == junit {
				d := xml.NewDecoder(bytes.NewReader(b))
				for err == nil {
					_, err = d.Token()
				}
				if !errors.Is(err, io.EOF) {
					t.Error(err)
				}
			}
		}
	}
}
