package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// scenarioFile stores a scenario.
func scenarioFile(t *testing.T, src string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "scenario.star")
	if err := os.WriteFile(file, []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestScriptTellsMistakesAndLeavesTheProcess as it was: the sentence, the line, a caret.
func TestScriptTellsMistakesAndLeavesTheProcess(t *testing.T) {
	p := prey(t)
	for _, c := range []struct {
		src    string
		status int
		want   string
	}{
		{"x = (1,\ny z", 2, ":2:3: got identifier, want ')'\n  y z\n    ^\n"},
		{"kprobe('foo', pre = nothing)", 2, ":1:21: undefined: nothing\n  kprobe('foo', pre = nothing)\n                      ^\n"},
		{"kprobe('foo')\nkprobe('no_such')", 4, ":2:1: kprobe: unknown symbol: \"no_such\"\n  kprobe('no_such')\n  ^\n"},
		{"kprobe('foo')\nkprobe('foo+1')", 4, ":2:1: cannot place probe foo+1: the address is not the start of an instruction"},
		{"kprobe('foo', pre = 1)", 2, `:1:1: kprobe: for parameter "pre": got int, want a function`},
		{"while True: pass", 2, ":1:1: cut off after 20000000 steps; an endless loop? -steps allows more\n  while True: pass\n  ^\n"},
		{"inject('foo', errno = 'EX')", 2, `:1:1: inject: for parameter errno: errno "EX": there is no error of this name`},
		{"inject('no_such', retval = 1)", 4, ":1:1: cannot inject into no_such: unknown symbol"},
	} {
		file := scenarioFile(t, c.src)
		r := gokprobe(t, "script", "-p", pidOf(p), file)
		if r.status != c.status || r.stdout != "" || !strings.HasPrefix(r.stderr, "gokprobe: "+file+c.want) {
			t.Errorf("%s\nstatus %d, stdout %q, stderr:\n%s", c.src, r.status, r.stdout, r.stderr)
		}
		p.CheckClean()
	}
}

// TestScriptRunsToItsEnd: output, summary and status, by stop(), by -duration and by a signal.
func TestScriptRunsToItsEnd(t *testing.T) {
	p := prey(t)
	file := scenarioFile(t, `
def pre(ctx):
    report("foo", n = ctx.arg(0), seed = random.seed)
    if ctx.arg(0) == 3:
        stop()
kprobe("foo", pre = pre)
print("args", args)
expect(len(args) == 2)
counter("c").add(4)
`)
	l := start(t, "script", "-p", pidOf(p), "-seed", "5", file, "--", "a", "-b")
	for _, n := range []string{"1", "2", "3", "4"} {
		p.Do("call foo "+n, "ret")
	}
	r := l.end()
	if r.status != 0 || r.stdout != "foo n=1 seed=5\nfoo n=2 seed=5\nfoo n=3 seed=5\n" {
		t.Errorf("status %d, stdout %q", r.status, r.stdout)
	}
	for _, want := range []string{"args [\"a\", \"-b\"]\n", "seed: 5\n", "kprobe foo: 3 hits", "counter c: 4\n", "passed: 2 checks, seed 5\n"} {
		if !strings.Contains(r.stderr, want) {
			t.Errorf("%q is not in\n%s", want, r.stderr)
		}
	}
	p.CheckClean()
	if r := lasting(t, "script", "-p", pidOf(p), file); r.status != 1 || !strings.Contains(r.stderr, "failed: 1 of 2 checks") {
		t.Errorf("status %d, stderr %s", r.status, r.stderr)
	}
	l = start(t, "script", "-p", pidOf(p), file, "--", "a", "b")
	if r := l.interrupt(); r.status != 0 || !strings.Contains(r.stderr, "passed: ") {
		t.Errorf("after Ctrl-C: status %d, stderr %s", r.status, r.stderr)
	}
	p.CheckClean()
}

// TestScriptPrintsJSON: each line is an object, the last one the summary.
func TestScriptPrintsJSON(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "fails"))
	file := scenarioFile(t, `
phase("only")
inject("work", errno = "EIO", when = "2..3")
kprobe("pthread_like", pre = lambda ctx: [report("done", x = {"a": [1, None, True, 0.5, "s"]}), stop()])
`)
	l := start(t, "script", "-p", pidOf(p), "-format", "json", "-injected", "-seed", "1", file)
	if got := p.Do("run 5", "failed"); got != "failed 2: 2 3" {
		t.Error(got)
	}
	p.Do("types", "pointer")
	r := l.end()
	var kinds []string
	for _, line := range strings.Split(strings.TrimSpace(r.stdout), "\n") {
		var object map[string]any
		if err := json.Unmarshal([]byte(line), &object); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		kinds = append(kinds, object["type"].(string))
	}
	if strings.Join(kinds, " ") != "injected injected report summary" || r.status != 0 {
		t.Errorf("status %d: %s", r.status, r.stdout)
	}
	for _, want := range []string{`"phase":"only","text":"done"`, `"values":{"x":{"a":[1,null,true,0.5,"s"]}}`, `"injected":2`, `"failed":false`} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("%s is not in\n%s", want, r.stdout)
		}
	}
}

// TestRunScript exits with the program's status, unless the scenario fails.
func TestRunScript(t *testing.T) {
	for _, c := range []struct {
		src, code string
		status    int
		want      string
	}{
		{"test('end', lambda: expect(target.exit_status == 3))", "exit 3", 3, "passed: 2 checks"},
		{"test('end', lambda: expect(target.exit_status == 0))", "exit 3", 1, "failed: 1 of 2 checks"},
		{"", "kill -TERM $$", 143, "passed: 1 check"},
		{"expect(False, 'no')", "exit 0", 1, ":1:1: no\n"},
		{"after('1ms', stop)\nat_end(lambda: print('end', target.exit_status))", "sleep 0.1; exit 4", 4, "end 4\n"},
		{"kprobe('nothing_there')", "echo never", 4, "unknown symbol"},
		{"syntax error", "echo never", 2, ":1:8: got identifier"},
	} {
		r := gokprobe(t, "run", "-script", scenarioFile(t, c.src), "--", "sh", "-c", c.code)
		if r.status != c.status || !strings.Contains(r.stderr, c.want) || r.stdout != "" {
			t.Errorf("%s\n%s: status %d, stdout %q, stderr\n%s", c.src, c.code, r.status, r.stdout, r.stderr)
		}
	}
}

// TestScriptReportsAreWritten where they are wanted.
func TestScriptReportsAreWritten(t *testing.T) {
	dir := t.TempDir()
	xml := filepath.Join(dir, "r.xml")
	file := scenarioFile(t, "expect(True, 'fine')\nexpect(args == ['x'], 'args')")
	r := gokprobe(t, "run", "-script", file, "-script-arg", "x", "-report", "junit:"+xml, "-report", "tap:-", "--", "true")
	if r.status != 0 || r.stdout != "TAP version 14\n1..3\nok 1 - the scenario runs without an error\nok 2 - fine\nok 3 - args\n" {
		t.Errorf("status %d, stdout %q, stderr %q", r.status, r.stdout, r.stderr)
	}
	b, err := os.ReadFile(xml)
	if err != nil || !strings.Contains(string(b), `<testsuite name="scenario" tests="3" failures="0"`) {
		t.Errorf("%v: %s", err, b)
	}
	r = gokprobe(t, "run", "-script", file, "-script-arg", "x", "-report", "junit:"+dir+"/no/r.xml", "--", "true")
	if !strings.Contains(r.stderr, "cannot write the report "+dir+"/no/r.xml: no such file or directory") || r.status != 1 {
		t.Errorf("status %d, stderr %q", r.status, r.stderr)
	}
}

func TestWrongUsageOfScripts(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"script -p 1", "no scenario given"},
		{"script x.star", "no process given"},
		{"script -p 1 /nonexistent.star", "cannot read the scenario /nonexistent.star: no such file"},
		{"script -p 1 x.star more", `unexpected argument "more"; flags come before the scenario`},
		{"script -p 1 -report xml:y x.star", "-report xml:y: write junit:FILE or tap:FILE"},
		{"script -p 1 -steps 0 x.star", "-steps must be at least 1"},
		{"script -p 1 -duration 0s x.star", "-duration must be more than 0"},
		{"run -script x.star", "no program given"},
		{"run -script x.star -sym foo -- true", "-sym does not go with -script"},
		{"run -seed 1 -sym foo -- true", "-seed is about scenarios"},
	} {
		r := gokprobe(t, strings.Fields(c.args)...)
		if r.status != 2 || r.stdout != "" || !strings.Contains(r.stderr, c.want) {
			t.Errorf("%s: status %d, stdout %q, stderr %q", c.args, r.status, r.stdout, r.stderr)
		}
		oneSentence(t, r)
	}
	if r := gokprobe(t, "script", "-h"); r.status != 0 || !strings.Contains(r.stdout, "EXAMPLES\n") {
		t.Errorf("script -h: status %d, %s", r.status, r.stderr)
	}
}

// TestAScenariosSessionHasFiles, as that of attach, until its end.
func TestAScenariosSessionHasFiles(t *testing.T) {
	p := prey(t)
	file := scenarioFile(t, "kprobe('foo', pre = lambda ctx: ctx.arg(0) == 3 and stop())")
	l := start(t, "script", "-p", pidOf(p), file)
	if got := must(t, p, "cat", "kprobes/list"); !strings.Contains(got, "foo+0x0") {
		t.Errorf("kprobes/list is %q", got)
	}
	must(t, p, "write", "tracing/kprobe_events", "p:mine", "foo")
	must(t, p, "write", "tracing/events/kprobes/mine/enable", "1")
	p.Do("call foo 1", "ret")
	if got := must(t, p, "cat", "tracing/trace"); strings.Count(got, "mine: ") != 1 {
		t.Errorf("trace is %q", got)
	}
	p.Do("call foo 3", "ret")
	if r := l.end(); r.status != 0 || !strings.Contains(r.stderr, "kprobe foo: 2 hits") {
		t.Errorf("%+v", r)
	}
	if r := filesOf(t, p, "ls"); r.status != 3 {
		t.Errorf("%+v", r)
	}
	p.CheckClean()
	p.Quit()
}
