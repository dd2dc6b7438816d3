package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// wholeSummary is the summary of several processes.
type wholeSummary struct {
	Type   string `json:"type"`
	Probes []struct {
		Probe, Kind, Symbol string
		Hits, NMissed       uint64
	} `json:"probes"`
	Processes []processLine `json:"processes"`
	Lost      uint64        `json:"lost"`
}

type processLine struct {
	PID           int
	Comm          string
	Hits, NMissed uint64
	Probes        json.RawMessage
	Lost          uint64
}

// whole parses the output of attach with several processes.
func whole(t *testing.T, output string) (hits map[int]int, sum wholeSummary) {
	t.Helper()
	hits = map[int]int{}
	lines := strings.Split(strings.TrimSuffix(output, "\n"), "\n")
	strictly(t, lines[len(lines)-1], &sum)
	for _, line := range lines[:len(lines)-1] {
		var h hitLine
		strictly(t, line, &h)
		hits[h.PID]++
	}
	return hits, sum
}

// hitsOf is the hits of each process by the summary.
func (s wholeSummary) hitsOf(pid int) uint64 {
	if i := slices.IndexFunc(s.Processes, func(p processLine) bool { return p.PID == pid }); i >= 0 {
		return s.Processes[i].Hits
	}
	return 0
}

// renamed is the fixture prey under a name that no other process has, so that the tests of several runs do not meet.
func renamed(t *testing.T) (file, name string) {
	t.Helper()
	return renamedFixture(t, "prey")
}

// renamedFixture is renamed for any fixture.
func renamedFixture(t *testing.T, fixture string) (file, name string) {
	t.Helper()
	text, err := os.ReadFile(testprog.Build(t, fixture))
	if err != nil {
		t.Fatal(err)
	}
	name = "p" + strconv.Itoa(os.Getpid()) + "x"
	file = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, text, 0o755); err != nil {
		t.Fatal(err)
	}
	return file, name
}

// TestSeveralProcessesAreAttachedTo: by their numbers, their name, or a file that they map, and all come out as they were.
func TestSeveralProcessesAreAttachedTo(t *testing.T) {
	file, name := renamed(t)
	progs := []*testprog.Prog{testprog.Start(t, file), testprog.Start(t, file), testprog.Start(t, file)}
	for _, who := range [][]string{
		{"-p", pidOf(progs[0]), "-p", pidOf(progs[1]), "-p", pidOf(progs[2])},
		{"-p", name, "-all"},
		{"-p", pidOf(progs[1]), "-x", file},
		{"-x", file},
	} {
		l := start(t, append(append([]string{"attach"}, who...), "-sym", "foo", "-format", "json")...)
		for i, p := range progs {
			for range i + 1 {
				p.Do("call foo 3", "ret 7")
			}
		}
		r := l.interrupt()
		hits, sum := whole(t, r.stdout)
		for i, p := range progs {
			if n := i + 1; hits[p.PID()] != n || sum.hitsOf(p.PID()) != uint64(n) {
				t.Errorf("%v: process %d has %d lines and %d hits, want %d", who, i, hits[p.PID()], sum.hitsOf(p.PID()), n)
			}
			p.CheckClean()
		}
		if r.status != 0 || len(sum.Probes) != 1 || sum.Probes[0].Hits != 6 || sum.Lost != 0 || len(sum.Processes) != 3 {
			t.Errorf("%v: status %d, %+v", who, r.status, sum)
		}
	}
	l := start(t, "attach", "-p", name, "-all", "-sym", "foo", "-max-hits", "4", "-count")
	if !strings.Contains(l.said.String(), "armed: 3 probes in ") {
		t.Errorf("it says %q", l.said.String())
	}
	for range 2 {
		for _, p := range progs {
			p.Do("call foo 3", "ret 7")
		}
	}
	if r := l.end(); r.status != 0 || !strings.Contains(r.stdout, "PROCESS") || !regexp.MustCompile(`(?m)^ *4 +0 +foo `).MatchString(r.stdout) {
		t.Errorf("status %d, stdout %q", r.status, r.stdout)
	}
	for _, p := range progs {
		p.CheckClean()
	}
}

// TestProcessesJoinThatMapAFileLater, and leave when they end.
func TestProcessesJoinThatMapAFileLater(t *testing.T) {
	file, _ := renamed(t)
	l := start(t, "attach", "-x", file, "-sym", "foo", "-format", "json")
	if got := l.said.String(); !strings.Contains(got, "armed: nothing yet, and in whatever maps "+file) {
		t.Errorf("it says %q", got)
	}
	var pids []int
	var stays *testprog.Prog
	for i := range 3 {
		p := testprog.Start(t, file)
		l.waitFor("joined: " + pidOf(p))
		p.Do("call foo 3", "ret 7")
		p.Do("call foo 4", "ret 9")
		pids = append(pids, p.PID())
		if i == 1 {
			stays = p
		} else {
			p.Quit()
		}
	}
	r := l.interrupt()
	stays.CheckClean()
	hits, sum := whole(t, r.stdout)
	for _, pid := range pids {
		if hits[pid] != 2 || sum.hitsOf(pid) != 2 {
			t.Errorf("process %d has %d lines and %d hits, want 2", pid, hits[pid], sum.hitsOf(pid))
		}
	}
	if r.status != 0 || len(sum.Processes) != 3 {
		t.Errorf("status %d, %+v", r.status, sum)
	}
}

// TestSeveralProcessesOrNone: what is wrong with one of them leaves all as they were, and is told in a sentence.
func TestSeveralProcessesOrNone(t *testing.T) {
	file, name := renamed(t)
	one, two := testprog.Start(t, file), testprog.Start(t, testprog.Build(t, "threads"), "1")
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args   []string
		status int
		said   string
	}{
		{[]string{"-p", pidOf(one), "-p", pidOf(two), "-sym", "sum6"}, exitPlace, `process ` + pidOf(two)},
		{[]string{"-p", pidOf(one), "-p", strconv.Itoa(gone.Process.Pid), "-sym", "foo"}, exitAttach, "no such process"},
		{[]string{"-p", strconv.Itoa(gone.Process.Pid), "-p", "4194301", "-p", pidOf(one), "-sym", "foo"}, exitAttach, "no such process"},
		{[]string{"-p", strconv.Itoa(gone.Process.Pid), "-p", strconv.Itoa(gone.Process.Pid), "-sym", "foo"}, exitUsage, "twice"},
		{[]string{"-p", pidOf(one), "-p", pidOf(one), "-sym", "foo"}, exitUsage, "twice"},
		{[]string{"-p", pidOf(one), "-all", "-sym", "foo"}, exitUsage, "-p name"},
		{[]string{"-p", "nobody-has-that", "-all", "-sym", "foo"}, exitAttach, "no process has this name"},
		{[]string{"-x", "/nothing/there", "-sym", "foo"}, exitUsage, "-x /nothing/there"},
		{[]string{"-x", "/", "-sym", "foo"}, exitUsage, "not a regular file"},
		{[]string{"-p", name, "-all", "-x", file, "-sym", "foo", "-mount", "/nonexistent"}, exitFailed, "cannot mount on /nonexistent: no such file or directory"},
	} {
		r := gokprobe(t, append([]string{"attach"}, c.args...)...)
		if r.status != c.status || !strings.Contains(strings.ToLower(r.stderr), c.said) {
			t.Errorf("%v: status %d, %q; want %d and %q", c.args, r.status, r.stderr, c.status, c.said)
		}
		oneSentence(t, r)
		one.CheckClean()
		two.CheckClean()
	}
}

// TestProcessesThatExecuteOtherProgramsAreLetGo, and join again if they map the file.
func TestProcessesThatExecuteOtherProgramsAreLetGo(t *testing.T) {
	bin := testprog.Build(t, "execer")
	one, two := testprog.Start(t, bin), testprog.Start(t, bin)
	l := start(t, "attach", "-p", pidOf(one), "-p", pidOf(two), "-sym", "foo", "-count")
	one.Do("exec", "ready 1")
	two.Do("exec", "ready 1")
	if r := l.end(); r.status != 0 || strings.Count(r.stderr, "so all its probes are gone") != 2 {
		t.Errorf("status %d, stderr %q", r.status, r.stderr)
	}
	one.CheckClean()
	l = start(t, "attach", "-x", bin, "-sym", "foo", "-format", "json")
	one.Do("exec", "ready 2")
	l.waitFor("joined: " + pidOf(one))
	one.Do("call 2", "ret 27")
	r := l.interrupt()
	if hits, _ := whole(t, r.stdout); r.status != 0 || hits[one.PID()] != 1 {
		t.Errorf("status %d, hits %v, stderr %q", r.status, hits, r.stderr)
	}
	one.CheckClean()
	two.CheckClean()
}

// TestOfAFoundProcessIsToldWhatHelps: not what went with it when it ended, nor that we trace a child that shares the memory of another one.
func TestOfAFoundProcessIsToldWhatHelps(t *testing.T) {
	lives, ends := testprog.Start(t, testprog.Build(t, "prey")), exec.Command("true")
	if err := ends.Start(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Waitid(unix.P_PID, ends.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	for pid, want := range map[int]string{lives.PID(): "process " + pidOf(lives) + " is not probed: unknown symbol", ends.Process.Pid: ""} {
		var said strings.Builder
		s := several{std: stdio{err: &said}}
		_ = s.leftOut(target{pid: pid, found: true}, errors.New("unknown symbol"))
		if !strings.Contains(said.String(), want) || want == "" && said.Len() > 0 {
			t.Errorf("it says %q, want %q", said.String(), want)
		}
	}
	if err := ends.Wait(); err != nil {
		t.Error(err)
	}

	file := filepath.Join(t.TempDir(), "parent")
	if err := os.Link(testprog.Build(t, "family"), file); err != nil {
		t.Fatal(err)
	}
	p := testprog.Start(t, file)
	p.Do("vfork", "child")
	l := start(t, "attach", "-x", file, "-sym", "foo", "-count")
	p.Do("", "back")
	if r := l.interrupt(); r.status != 0 || strings.Contains(r.stderr, "not probed") || !strings.Contains(r.stdout, pidOf(p)) {
		t.Errorf("status %d, stdout %q, stderr %q", r.status, r.stdout, r.stderr)
	}
	p.CheckClean()
}

// joins is a joint that only notes who joins.
type joins struct {
	joint
	pids []int
}

func (j *joins) join(_ context.Context, h *holding) error {
	j.pids = append(j.pids, h.sess.PID())
	return nil
}

func (*joins) leave([]*holding) {}

// TestWhoIsForkedBehindTheListingIsTaken: processes of the name that were not listed, as they were forked meanwhile, are taken with -follow until there are no more; those that are
// held are not listed again.
func TestWhoIsForkedBehindTheListingIsTaken(t *testing.T) {
	file, name := renamed(t)
	progs := []*testprog.Prog{testprog.Start(t, file), testprog.Start(t, file), testprog.Start(t, file)}
	for _, follow := range []bool{true, false} {
		does := &joins{}
		s := &several{std: stdio{err: io.Discard}, does: does, ended: make(chan struct{}, 1)}
		who := whom{names: []string{name}, all: true, follow: follow}
		listed := slices.DeleteFunc(named(name), func(d target) bool { return d.pid != progs[0].PID() })
		if _, err := s.takeAll(t.Context(), listed); err != nil {
			t.Fatal(err)
		}
		if _, err := s.takeForked(t.Context(), who, listed); err != nil {
			t.Fatal(err)
		}
		want := []int{progs[0].PID()}
		if follow {
			want = append(want, progs[1].PID(), progs[2].PID())
			if more := who.forked(map[int]bool{}); len(more) != 0 {
				t.Errorf("of those that are held %v are listed again", more)
			}
		}
		var said strings.Builder
		if who.warnForked(stdio{err: &said}, progs[0].PID()); said.Len() > 0 {
			t.Errorf("when all are taken, or none is to be followed, it says %q", said.String())
		}
		slices.Sort(does.pids)
		slices.Sort(want)
		if !slices.Equal(does.pids, want) {
			t.Errorf("follow %v: %v are taken, want %v", follow, does.pids, want)
		}
		for _, h := range s.all() {
			if err := errors.Join(h.files.close(), h.sess.Close()); err != nil {
				t.Error(err)
			}
		}
		for _, p := range progs {
			p.CheckClean()
		}
	}
	var said strings.Builder
	whom{names: []string{name}, all: true, follow: true}.warnForked(stdio{err: &said}, progs[0].PID())
	if !strings.Contains(said.String(), "2 processes of the name came") {
		t.Errorf("of two that nobody follows it says %q", said.String())
	}
	for _, p := range progs {
		p.Quit()
	}
}
