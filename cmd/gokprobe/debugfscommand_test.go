package main

import (
	"bufio"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// filesOf runs gokprobe debugfs on a target's session.
func filesOf(t *testing.T, p *testprog.Prog, args ...string) result {
	t.Helper()
	return gokprobe(t, append([]string{"debugfs", "-p", pidOf(p)}, args...)...)
}

// must is filesOf where nothing may go wrong; it returns stdout.
func must(t *testing.T, p *testprog.Prog, args ...string) string {
	t.Helper()
	r := filesOf(t, p, args...)
	if r.status != 0 || r.stderr != "" {
		t.Errorf("debugfs %q: status %d, stderr %q", args, r.status, r.stderr)
	}
	return r.stdout
}

// hold is a session without probes.
func hold(t *testing.T, p *testprog.Prog, args ...string) *live {
	t.Helper()
	l := attachTo(t, p, append([]string{"-hold"}, args...)...)
	l.waitFor("held: gokprobe debugfs -p " + pidOf(p) + " ls")
	return l
}

func TestAnEventIsDefinedEnabledAndReadThroughDebugfs(t *testing.T) {
	p := prey(t)
	before := testprog.TakeSnapshot(t, p.PID())
	l := hold(t, p)
	if said := l.said.String(); !strings.HasPrefix(said, "armed: 0 probes in "+pidOf(p)+" (prey") {
		t.Errorf("stderr is %q", said)
	}
	must(t, p, "write", "tracing/kprobe_events", "p:first", "foo", "x=%di:s32")
	must(t, p, "write", "-a", "/tracing/kprobe_events", "r:second foo ret=$retval:s32")
	if got := must(t, p, "cat", "tracing/kprobe_events"); !regexp.MustCompile(`^p:kprobes/first foo x=%di:s32\nr\d*:kprobes/second foo ret=\$retval:s32\n$`).MatchString(got) {
		t.Errorf("kprobe_events is %q", got)
	}
	if got := must(t, p, "ls", "tracing/events/kprobes"); got != "-rw-r-----  enable\n-rw-r-----  filter\ndrwxr-xr-x  first/\ndrwxr-xr-x  second/\n" {
		t.Errorf("ls is %q", got)
	}
	if got := must(t, p, "ls", "kprobes/list"); got != "-r--------  list\n" {
		t.Errorf("ls is %q", got)
	}
	pipe := openPipe(t, p)
	must(t, p, "write", "tracing/events/kprobes/enable", "1")
	p.Do("call foo 3", "ret")
	for _, want := range []string{`first: \(foo\+0x0/0x[0-9a-f]+\) x=3$`, `second: \(.* <- foo\) ret=7$`} {
		if line := pipe.line(); !regexp.MustCompile(`^ +prey[^ ]*-` + pidOf(p) + ` .*: ` + want).MatchString(line) {
			t.Errorf("trace_pipe says %q, want %s", line, want)
		}
	}
	if r := pipe.interrupt(); r.status != 0 || r.stdout != "" || r.stderr != "" {
		t.Errorf("Ctrl-C: %+v", r)
	}
	if r := l.interrupt(); r.status != 0 || r.stdout != "" || strings.Contains(r.stderr, "PROBE") {
		t.Errorf("%+v", r)
	}
	before.Compare(t, p.PID())
	p.CheckClean()
	p.Quit()
}

// openPipe prints trace_pipe, which has said something.
func openPipe(t *testing.T, p *testprog.Prog) *live {
	t.Helper()
	l := begin(t, "debugfs", "-p", pidOf(p), "cat", "tracing/trace_pipe")
	must(t, p, "write", "-a", "tracing/kprobe_events", "p:probe/open foo")
	must(t, p, "write", "tracing/events/probe/open/enable", "1")
	p.Do("call foo 0", "ret")
	if line := l.line(); !strings.Contains(line, ": open: (foo+0x0/") {
		t.Errorf("%q", line)
	}
	must(t, p, "write", "tracing/events/probe/open/enable", "0")
	return l
}

func TestTracePipeEndsQuietlyWithTheSession(t *testing.T) {
	p := prey(t)
	l := hold(t, p)
	pipe := openPipe(t, p)
	l.interrupt()
	if r := pipe.end(); r.status != 0 || r.stdout != "" || r.stderr != "" {
		t.Errorf("%+v", r)
	}
	p.CheckClean()
	p.Quit()
}

func TestDebugfsSaysWhatIsWrong(t *testing.T) {
	p := prey(t)
	l := hold(t, p)
	must(t, p, "write", "tracing/kprobe_events", "p:e foo")
	must(t, p, "write", "tracing/events/kprobes/e/enable", "1")
	big := filepath.Join(t.TempDir(), "big")
	if err := os.WriteFile(big, make([]byte, 64<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, want string }{
		{"write tracing/kprobe_events p:f foo", "cannot write tracing/kprobe_events: device or resource busy"},
		{"write -a tracing/kprobe_events p:f nosuch", "cannot write tracing/kprobe_events: "},
		{"write -a tracing/kprobe_events -:f", "cannot write tracing/kprobe_events: "},
		{"write tracing/events/kprobes/e/enable 7", "cannot write tracing/events/kprobes/e/enable: "},
		{"write kprobes/list 1", "cannot write kprobes/list: permission denied"},
		{"write tracing/nothing 1", "cannot write tracing/nothing: no such file or directory"},
		{"cat nothing", "cannot read nothing: no such file or directory"},
		{"cat tracing", "cannot read tracing: "},
		{"ls tracing/nothing", "cannot list tracing/nothing: no such file or directory"},
		{"mount /nonexistent", "cannot mount on /nonexistent: no such file or directory"},
	} {
		r := filesOf(t, p, strings.Fields(c.args)...)
		if r.status != 1 || !strings.Contains(r.stderr, c.want) {
			t.Errorf("%s: %+v", c.args, r)
		}
		if !strings.HasPrefix(c.args, "cat tracing") && r.stdout != "" {
			t.Errorf("%s: prints %q", c.args, r.stdout)
		}
		oneSentence(t, r)
	}
	cmd := command(t, "debugfs", "-p", pidOf(p), "write", "-a", "tracing/kprobe_events", "-")
	in, err := os.Open(big)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	cmd.Stdin = in
	if r := finish(t, cmd); r.status != 1 || !strings.Contains(r.stderr, "more than 1048576 bytes") {
		t.Errorf("64 MB: %+v", r)
	}
	if got := must(t, p, "cat", "tracing/kprobe_events"); got != "p:kprobes/e foo\n" {
		t.Errorf("kprobe_events is %q", got)
	}
	l.interrupt()
	p.CheckClean()
	p.Quit()
}

func TestWithoutASessionDebugfsEndsWithStatus3(t *testing.T) {
	p := prey(t)
	r := filesOf(t, p, "ls")
	if want := fmt.Sprintf("process %s: no session of yours holds the process; gokprobe attach -p %[1]s -hold makes one\n", pidOf(p)); r.status != 3 || !strings.HasSuffix(r.stderr, want) {
		t.Errorf("%+v", r)
	}
	oneSentence(t, r)
	p.Quit()
}

func TestProbesOfAttachAreInTheList(t *testing.T) {
	p := prey(t)
	l := attachTo(t, p, "-sym", "foo", "-format", "json")
	if got := must(t, p, "cat", "kprobes/list"); !regexp.MustCompile(`^[0-9a-f]{16}  k  foo\+0x0    \[OPTIMIZED\]\n$`).MatchString(got) {
		t.Errorf("list is %q", got)
	}
	must(t, p, "write", "kprobes/enabled", "0")
	p.Do("call foo 3", "ret")
	must(t, p, "write", "kprobes/enabled", "1")
	p.Do("call foo 3", "ret")
	hits, sum := records(t, l.interrupt().stdout)
	if len(hits) != 1 || sum.Probes[0].Hits != 1 {
		t.Errorf("%d hits, %+v", len(hits), sum)
	}
	p.CheckClean()
	p.Quit()
}

func TestAttachMountsItsFiles(t *testing.T) {
	p, dir := prey(t), t.TempDir()
	l := hold(t, p, "-mount", dir)
	script := `cd "$1"/tracing && echo 'p:e foo x=%di:s32' > kprobe_events && echo 'x > 3' > events/kprobes/e/filter &&
		echo 1 > events/kprobes/e/enable && cat events/kprobes/e/filter && ls ../kprobes`
	out, err := exec.Command("sh", "-c", script, "sh", dir).CombinedOutput()
	if err != nil || string(out) != "x > 3\nblacklist\nenabled\nlist\n" {
		t.Errorf("%s %v", out, err)
	}
	for _, n := range []string{"3", "4", "5"} {
		p.Do("call foo "+n, "ret")
	}
	trace, err := os.ReadFile(filepath.Join(dir, "tracing/trace"))
	if err != nil || strings.Contains(string(trace), "x=3\n") || !strings.Contains(string(trace), "x=4\n") || !strings.Contains(string(trace), "x=5\n") {
		t.Errorf("%s %v", trace, err)
	}
	p.Quit() // ends the session
	if r := l.end(); r.status != 0 {
		t.Errorf("%+v", r)
	}
	unmounted(t, dir)
}

func unmounted(t *testing.T, dir string) {
	t.Helper()
	if entries, err := os.ReadDir(dir); len(entries) != 0 || err != nil {
		t.Errorf("%s is still mounted: %v %v", dir, entries, err)
	}
}

func TestAMountThatFailsEndsAttach(t *testing.T) {
	p := prey(t)
	r := gokprobe(t, "attach", "-p", pidOf(p), "-sym", "foo", "-mount", "/nonexistent")
	if r.status != 1 || !strings.Contains(r.stderr, "cannot mount on /nonexistent: no such file or directory") {
		t.Errorf("%+v", r)
	}
	oneSentence(t, r)
	p.CheckClean()
	p.Quit()
}

func TestDebugfsMountsUntilTheSessionEnds(t *testing.T) {
	p, dir := prey(t), t.TempDir()
	l := hold(t, p)
	m := begin(t, "debugfs", "-p", pidOf(p), "mount", dir)
	m.waitFor("mounted: " + dir)
	cat := exec.Command("cat", filepath.Join(dir, "tracing/trace_pipe"))
	out, err := cat.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cat.Start(); err != nil {
		t.Fatal(err)
	}
	must(t, p, "write", "tracing/kprobe_events", "p:e foo")
	must(t, p, "write", "tracing/events/kprobes/e/enable", "1")
	p.Do("call foo 3", "ret")
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || !strings.Contains(line, ": e: (foo+0x0/") {
		t.Errorf("%q %v", line, err)
	}
	p.Quit()
	for name, l := range map[string]*live{"attach": l, "mount": m} {
		if r := l.end(); r.status != 0 {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if err := cat.Wait(); err != nil {
		t.Error(err)
	}
	unmounted(t, dir)
}

func TestAKilledSessionEndsItsReadersAndItsMounts(t *testing.T) {
	p, dir := prey(t), t.TempDir()
	l := hold(t, p)
	m := begin(t, "debugfs", "-p", pidOf(p), "mount", dir)
	m.waitFor("mounted: " + dir)
	pipe := openPipe(t, p)
	l.signal(syscall.SIGKILL)
	if r := m.end(); r.status != 0 {
		t.Errorf("mount: %+v", r)
	}
	if r := pipe.end(); r.status != 1 || !strings.Contains(r.stderr, "cannot read tracing/trace_pipe: the session does not answer") {
		t.Errorf("cat: %+v", r)
	}
	unmounted(t, dir)
	l.end()
	if r := filesOf(t, p, "ls"); r.status != 3 {
		t.Errorf("%+v", r)
	}
	hold(t, p).interrupt() // the socket's name is free again
	if n := len(sockets(t, p)); n != 0 {
		t.Errorf("%d sockets are left", n)
	}
	p.Quit()
}

// sockets are those of a target's sessions.
func sockets(t *testing.T, p *testprog.Prog) map[string]fs.FileMode {
	t.Helper()
	found := map[string]fs.FileMode{}
	for _, dir := range []string{os.Getenv("XDG_RUNTIME_DIR"), "/run", fmt.Sprintf("/run/user/%d", os.Geteuid()), fmt.Sprintf("/tmp/gokprobe-%d", os.Geteuid())} {
		names, err := filepath.Glob(filepath.Join(dir, "gokprobe", pidOf(p)+".sock"))
		more, _ := filepath.Glob(filepath.Join(dir, pidOf(p)+".sock"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range append(names, more...) {
			if fi, err := os.Lstat(name); err == nil {
				found[name] = fi.Mode()
			}
		}
	}
	return found
}

func TestRunServesItsFiles(t *testing.T) {
	dir := t.TempDir()
	l := begin(t, "run", "-hold", "-mount", dir, "--", "sh", "-c", "read line < "+filepath.Join(dir, "kprobes/enabled")+"; echo $line; exit 3")
	l.waitFor("armed: 0 probes in ")
	if line := l.line(); line != "1" { // the target reads its own files
		t.Errorf("the target says %q", line)
	}
	if r := l.end(); r.status != 3 {
		t.Errorf("%+v", r)
	}
	unmounted(t, dir)
}

// TestWhereTheNameOfTheSocketsDirectoryIsTakenAttachGoesOn: with a socket in the next one, if there is one, else without, and says so.
func TestWhereTheNameOfTheSocketsDirectoryIsTakenAttachGoesOn(t *testing.T) {
	p := prey(t)
	run := t.TempDir()
	if err := os.WriteFile(filepath.Join(run, "gokprobe"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_RUNTIME_DIR", run)
	l := attachTo(t, p, "-sym", "foo", "-count", "-hold")
	r := gokprobe(t, "debugfs", "-p", pidOf(p), "ls")
	told := strings.Contains(l.said.String(), "gokprobe: gokprobe debugfs won't find this session: ")
	if r.status == 0 == told {
		t.Errorf("%+v, stderr is %q", r, l.said.String())
	}
	if r := l.interrupt(); r.status != 0 || r.stdout != "1 probe was not hit; -all-rows prints all\n" {
		t.Errorf("%+v", r)
	}
	p.Quit()
}

// Events that are there before the target's first instruction.
func TestEventsOfTheCommandLine(t *testing.T) {
	dir, fifo := t.TempDir(), filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	l := begin(t, "run", "-kprobe-event", "p:begin,libc.so.6:setlocale,me=$comm;r:end,libc.so.6:setlocale", "-mount", dir, "--", "cat", fifo)
	l.waitFor("held: ")
	pipe, err := os.Open(filepath.Join(dir, "tracing/trace_pipe"))
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(pipe)
	for _, want := range []string{`: begin: \(setlocale\+0x0/0x[0-9a-f]+[^\n]*\) me="cat"\n$`, `: end: \(.* <- setlocale[^\n]*\)\n$`} {
		if line, err := lines.ReadString('\n'); err != nil || !regexp.MustCompile(want).MatchString(line) {
			t.Errorf("trace_pipe says %q, %v, want %s", line, err, want)
		}
	}
	if on, err := os.ReadFile(filepath.Join(dir, "tracing/events/enable")); err != nil || string(on) != "1\n" {
		t.Errorf("enable is %q, %v", on, err)
	}
	_ = pipe.Close()
	if err := os.WriteFile(fifo, []byte("the end\n"), 0); err != nil {
		t.Fatal(err)
	}
	if r := l.end(); r.status != 0 || r.stdout != "the end\n" {
		t.Errorf("%+v", r)
	}
	r := gokprobe(t, "run", "-kprobe-event", "p:begin,libc.so.6:setlocale;p:end,gone", "--", "cat", "/etc/hostname")
	if r.status != 4 || r.stdout != "" || !strings.Contains(r.stderr, "-kprobe-event: Invalid probed address or symbol (BAD_PROBE_ADDR)\n  p:end gone\n        ^\n") {
		t.Errorf("%+v", r)
	}
}

// TestTheProbedProgramMayLookAtItsFiles while they are written, though all its threads stop for each change. It can't
// write them.
func TestTheProbedProgramMayLookAtItsFiles(t *testing.T) {
	dir := t.TempDir()
	shell := exec.Command("sh", "-c", `while read -r line; do eval "$line"; done`)
	in, err := shell.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := shell.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	l := start(t, "attach", "-p", fmt.Sprint(shell.Process.Pid), "-hold", "-mount", dir)
	lines := bufio.NewReader(out)
	tell := func(script string) { fmt.Fprintln(in, script) }
	hear := func() string { s, _ := lines.ReadString('\n'); return strings.TrimSpace(s) }

	tell("cd " + dir + "/tracing; echo ready")
	hear()
	// What a stop interrupts fails with EINTR.
	tell(`bad=0; until [ "$1" = events/last/e/enable ]; do more=1; read -r more < tracing_on || more=1; [ "$more" = 1 ] || bad=1; set -- events/*/*/*; done 2>/dev/null; echo bad=$bad`)
	for i := range 40 {
		group := "some"
		if i == 39 {
			group = "last"
		}
		script := fmt.Sprintf(`cd %s/tracing && > kprobe_events && echo 'p:%s/e libc.so.6:write' > kprobe_events && echo 1 > events/%[2]s/enable && sleep 0.01 && echo 0 > events/%[2]s/enable`, dir, group)
		if out, err := exec.Command("sh", "-c", script).CombinedOutput(); err != nil {
			t.Fatalf("%s %v", out, err)
		}
	}
	if said := hear(); said != "bad=0" {
		t.Errorf("the probed shell says %q", said)
	}
	tell("if echo 1 > tracing_on; then echo written; else echo refused; fi 2>/dev/null")
	if said := hear(); said != "refused" {
		t.Errorf("the probed shell says %q", said)
	}
	tell("cd /; exit 7")
	_ = in.Close()
	if r := l.end(); r.status != 0 {
		t.Errorf("%+v", r)
	}
	unmounted(t, dir)
	_ = shell.Wait()
}
