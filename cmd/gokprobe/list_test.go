package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

func rows(t *testing.T, args ...string) []row {
	t.Helper()
	r := gokprobe(t, append([]string{"list", "-format", "json"}, args...)...)
	if r.status != 0 || r.stderr != "" {
		t.Fatalf("list %v: status %d, stderr %q", args, r.status, r.stderr)
	}
	var all []row
	for line := range strings.Lines(r.stdout) {
		var x row
		strictly(t, line, &x)
		all = append(all, x)
	}
	return all
}

func TestListShowsTheFunctionsThatNmShows(t *testing.T) {
	bin := testprog.Build(t, "prey")
	out, err := exec.Command("nm", "--defined-only", bin).Output()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^0*([0-9a-f]+) [tT] (\S+)$`).FindAllStringSubmatch(string(out), -1) {
		want["0x"+m[1]+" "+m[2]] = true
	}
	got := map[string]bool{}
	var last uint64
	for _, r := range rows(t, "-x", bin) {
		addr, err := strconv.ParseUint(r.Addr, 0, 64)
		if err != nil || addr < last {
			t.Errorf("%s is not sorted: %v", r.Addr, err)
		}
		last = addr
		switch {
		case r.Kind == "func" && r.Probe:
			got[r.Addr+" "+r.Linkage] = true
		case r.Kind == "data" && (r.Probe || r.Reason != "data"):
			t.Errorf("data: %+v", r)
		}
	}
	for name := range want {
		if !got[name] {
			t.Errorf("%s is missing", name)
		}
	}
	for name := range got {
		if !want[name] {
			t.Errorf("%s is not in nm's list", name)
		}
	}
}

func TestListShowsTheInstructionsThatObjdumpShows(t *testing.T) {
	bin := testprog.Build(t, "prey")
	out, err := exec.Command("objdump", "-d", "--no-show-raw-insn", "--disassemble=stack_driver", bin).Output()
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, m := range regexp.MustCompile(`(?m)^ +([0-9a-f]+):\t(\S+)`).FindAllStringSubmatch(string(out), -1) {
		if m[2] != "endbr64" { // stays in place
			want = append(want, "0x"+m[1])
		}
	}
	var got []string
	for _, r := range rows(t, "-x", bin, "-lines", "stack_driver+*") {
		got = append(got, r.Addr)
		if r.Type != "place" || r.Insn == "" || !r.Probe || !strings.HasSuffix(r.File, "/prey.c") {
			t.Errorf("%+v", r)
		}
	}
	if len(want) == 0 || !slices.Equal(got, want) {
		t.Errorf("the instructions are\n%v\nnot\n%v", got, want)
	}
}

func TestListShowsALiveProcessAndItsIndirectFunctions(t *testing.T) {
	p := prey(t)
	before := testprog.TakeSnapshot(t, p.PID())
	pid := strconv.Itoa(p.PID())
	if found := rows(t, "-p", pid, "foo"); len(found) != 1 || !found[0].Probe || found[0].Mechanism == "" {
		t.Errorf("foo: %+v", found)
	}
	found := rows(t, "-p", pid, "libc.so.6:memcpy")
	if i := slices.IndexFunc(found, func(r row) bool { return r.Kind == "ifunc" }); i >= 0 &&
		(!found[i].Probe || !strings.HasPrefix(found[i].Reason, "stands for ")) {
		t.Errorf("memcpy: %+v", found[i])
	}
	before.Compare(t, p.PID())
	l := start(t, "attach", "-p", pid, "-hold")
	if r := gokprobe(t, "list", "-p", pid, "foo"); r.status != 0 || !strings.Contains(r.stdout, ":foo\n") || !strings.Contains(r.stderr, "is traced by process") {
		t.Errorf("beside another tracer: status %d: %s%s", r.status, r.stdout, r.stderr)
	}
	l.interrupt()
	p.CheckClean()
	p.Quit()
}

func TestListSuggestsAndExitsWith4(t *testing.T) {
	r := gokprobe(t, "list", "-x", testprog.Build(t, "prey"), "stack_drivr")
	refused(t, r, 4, "nothing to list", "did you mean stack_driver")
}

func TestListEndsQuietlyWithItsReader(t *testing.T) {
	out, err := exec.Command("bash", "-c", `set -o pipefail; "$0" list -x "$0" | head -1`, program).CombinedOutput()
	if err != nil || strings.Count(string(out), "\n") != 1 {
		t.Errorf("%v: %s", err, out)
	}
}

func TestCheckTriesEverythingOnAChild(t *testing.T) {
	r := gokprobe(t, "check")
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	for _, line := range lines {
		if !strings.HasPrefix(line, "ok: ") && !strings.HasPrefix(line, "no: ") {
			t.Errorf("%q", line)
		}
	}
	if last := lines[len(lines)-1]; r.status != 0 || !strings.HasPrefix(last, "ok: attached to a child") || r.stderr != "" {
		t.Errorf("status %d, last line %q, stderr %q", r.status, last, r.stderr)
	}
}

func TestCheckSaysWhatAttachWouldSay(t *testing.T) {
	p := prey(t)
	before := testprog.TakeSnapshot(t, p.PID())
	pid := strconv.Itoa(p.PID())
	for _, flags := range [][]string{{"-p", pid}, {"-p", pid, "-attach"}} {
		r := gokprobe(t, append([]string{"check"}, flags...)...)
		if r.status != 0 || r.stderr != "" || !strings.Contains(r.stdout, "ok: it has a symbol table") {
			t.Errorf("%v: status %d, stdout %q, stderr %q", flags, r.status, r.stdout, r.stderr)
		}
	}
	l := attachTo(t, p, "-sym", "foo")
	r := gokprobe(t, "check", "-p", pid)
	want := fmt.Sprintf("\nno: cannot attach to process %s: it is already traced by process %d (gokprobe)", pid, l.cmd.Process.Pid)
	if r.status != 3 || r.stderr != "" || !strings.Contains(r.stdout, want) {
		t.Errorf("traced: status %d, stdout %q, stderr %q", r.status, r.stdout, r.stderr)
	}
	l.interrupt()
	before.Compare(t, p.PID())
	p.Quit()
}

// TestCheckIsNotSilentlyGood where nobody can read what it says.
func TestCheckIsNotSilentlyGood(t *testing.T) {
	p := prey(t)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	check := func(status int, want string) {
		t.Helper()
		var said strings.Builder
		cmd := command(t, "check", "-p", pidOf(p))
		cmd.Stdout, cmd.Stderr = full, &said
		_ = cmd.Run()
		if got := cmd.ProcessState.ExitCode(); got != status || !strings.HasPrefix(said.String(), want) {
			t.Errorf("status %d, stderr %q, want %d, %q", got, said.String(), status, want)
		}
	}
	check(1, "gokprobe: cannot write to stdout: no space left on device\n")
	l := attachTo(t, p, "-sym", "foo")
	check(3, "gokprobe: cannot attach to process "+pidOf(p)+": it is already traced")
	l.interrupt()
	p.CheckClean()
	p.Quit()
}

// TestAProcessWhoseFirstThreadHasEnded is as any other: the files in /proc of that thread show nothing any more.
func TestAProcessWhoseFirstThreadHasEnded(t *testing.T) {
	bin, _ := renamedFixture(t, "leader")
	p := testprog.Start(t, bin)
	before, pid := testprog.TakeSnapshot(t, p.PID()), pidOf(p)
	if all := rows(t, "-p", pid, "foo"); len(all) != 1 || !all[0].Probe {
		t.Errorf("foo: %+v", all)
	}
	insns := rows(t, "-p", pid, "foo+*")
	if len(insns) < 2 {
		t.Errorf("foo+*: %+v", insns)
	}
	if r := gokprobe(t, "check", "-p", pid); r.status != 0 || !strings.Contains(r.stdout, "ok: it has a symbol table") {
		t.Errorf("check: status %d, stdout %q", r.status, r.stdout)
	}
	for _, c := range []struct{ whom, sym string }{{"-p", "foo+*"}, {"-x", "foo"}} {
		l := start(t, "attach", c.whom, map[string]string{"-p": pid, "-x": bin}[c.whom], "-sym", c.sym, "-count")
		if r := gokprobe(t, "check", "-p", pid); r.status != 3 || !strings.Contains(r.stdout, "it is already traced by process "+strconv.Itoa(l.cmd.Process.Pid)) {
			t.Errorf("%s: traced: status %d, stdout %q", c.whom, r.status, r.stdout)
		}
		if got := p.Do("call 3", "ret"); got != "ret 52" {
			t.Errorf("%s: the program says %q", c.whom, got)
		}
		if r := l.interrupt(); r.status != 0 || !strings.Contains(l.said.String(), "in "+pid+" (") || strings.Contains(l.said.String(), "not probed") {
			t.Errorf("%s: status %d, stdout %q, stderr %q", c.whom, r.status, r.stdout, l.said.String())
		}
	}
	before.Compare(t, p.PID())
	p.Quit()
}

func TestTheDemoShowsHitsAndAnUndisturbedSample(t *testing.T) {
	var r result
	var hits []hitLine
	var sum summaryLine
	for d := time.Second; len(hits) == 0 && d < time.Minute; d *= 2 { // in that time the probe may not be armed yet, or the sample have had no processor
		if r = gokprobe(t, "demo", "-duration", d.String(), "-format", "json"); r.stdout != "" {
			hits, sum = records(t, r.stdout)
		}
	}
	if r.status != 0 || len(hits) == 0 || sum.Lost != 0 {
		t.Errorf("status %d, %d hits, stderr %q", r.status, len(hits), r.stderr)
	}
	for _, h := range hits {
		var args map[string]any
		if err := json.Unmarshal(h.Args, &args); err != nil || args["amount"] == nil || args["id"] == nil {
			t.Errorf("arguments %s: %v", h.Args, err)
		}
	}
	for _, want := range []string{"every result was right", "byte for byte", "nothing is left in my memory", "nobody traces me"} {
		if !strings.Contains(r.stderr, "\nsample: "+want) && !strings.Contains(r.stderr, want) {
			t.Errorf("the sample does not say %q: %s", want, r.stderr)
		}
	}
}
