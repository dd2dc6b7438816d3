package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// shell runs a script whose $1 is dir, and returns what it prints.
func shell(t *testing.T, dir, script string) string {
	t.Helper()
	out, err := exec.Command("sh", "-c", script, "sh", dir).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %s %v", script, out, err)
	}
	return string(out)
}

// reader is a cat of a file, in which something comes at some time.
func reader(t *testing.T, name string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	cat := exec.Command("cat", name)
	out, err := cat.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cat.Start(); err != nil {
		t.Fatal(err)
	}
	return cat, bufio.NewReader(out)
}

// defineFoo defines and enables an event in the folders of a mount that a pattern of the shell names.
func defineFoo(t *testing.T, dir, pattern string) {
	t.Helper()
	shell(t, dir, `for d in "$1"/`+pattern+`; do echo 'p:e foo x=%di:s32' > $d/tracing/kprobe_events && echo 1 > $d/tracing/events/kprobes/e/enable || exit; done`)
}

// TestSeveralProcessesAreMounted: each has its folder, with its files and its hits, whatever names them.
func TestSeveralProcessesAreMounted(t *testing.T) {
	file, name := renamed(t)
	progs := []*testprog.Prog{testprog.Start(t, file), testprog.Start(t, file), testprog.Start(t, file)}
	for _, who := range [][]string{
		{"-p", pidOf(progs[0]), "-p", pidOf(progs[1]), "-p", pidOf(progs[2])},
		{"-p", name, "-all"},
		{"-x", file},
	} {
		dir := t.TempDir()
		l := start(t, append(append([]string{"attach"}, who...), "-hold", "-mount", dir)...)
		if got := strings.Fields(shell(t, dir, `ls "$1"`)); len(got) != len(progs) {
			t.Errorf("%v: there are %v", who, got)
		}
		defineFoo(t, dir, "*")
		var cats []*exec.Cmd
		for i, p := range progs {
			cat, out := reader(t, filepath.Join(dir, pidOf(p), "tracing/trace_pipe"))
			cats = append(cats, cat)
			p.Do(fmt.Sprintf("call foo %d", i+3), "ret")
			if line, err := out.ReadString('\n'); err != nil || !strings.Contains(line, fmt.Sprintf("-%d ", p.PID())) || !strings.HasSuffix(line, fmt.Sprintf(" x=%d\n", i+3)) {
				t.Errorf("%v: process %d tells %q, %v", who, i, line, err)
			}
		}
		if got := shell(t, dir, `cat "$1"/*/tracing/kprobe_profile`); got != strings.Repeat(got[:len(got)/3], 3) {
			t.Errorf("%v: the profiles are %q", who, got)
		}
		if r := l.interrupt(); r.status != 0 {
			t.Errorf("%v: %+v", who, r)
		}
		unmounted(t, dir)
		for i, p := range progs {
			if err := cats[i].Wait(); err != nil {
				t.Errorf("%v: cat %d: %v", who, i, err)
			}
			p.CheckClean()
		}
	}
}

// TestFoldersComeAndGoWithTheirProcesses, and what is open in one that has gone comes to its end.
func TestFoldersComeAndGoWithTheirProcesses(t *testing.T) {
	file, _ := renamed(t)
	dir := t.TempDir()
	l := start(t, "attach", "-x", file, "-hold", "-mount", dir)
	unmounted(t, dir) // it is empty
	stays := testprog.Start(t, file)
	l.waitFor("joined: " + pidOf(stays))
	for range 2 {
		p := testprog.Start(t, file)
		l.waitFor("joined: " + pidOf(p))
		defineFoo(t, dir, pidOf(p))
		cat, out := reader(t, filepath.Join(dir, pidOf(p), "tracing/trace_pipe"))
		p.Do("call foo 3", "ret")
		if line, err := out.ReadString('\n'); err != nil || !strings.HasSuffix(line, " x=3\n") {
			t.Errorf("it tells %q, %v", line, err)
		}
		p.Quit()
		if err := cat.Wait(); err != nil {
			t.Errorf("cat: %v", err)
		}
		testprog.Await(t, "an end of the folder of "+pidOf(p), func() bool {
			_, err := os.Stat(filepath.Join(dir, pidOf(p)))
			return errors.Is(err, fs.ErrNotExist)
		})
		if got := shell(t, dir, `ls "$1"`); got != pidOf(stays)+"\n" {
			t.Errorf("there are %q, want %d", got, stays.PID())
		}
	}
	if r := l.interrupt(); r.status != 0 {
		t.Errorf("%+v", r)
	}
	unmounted(t, dir)
	stays.CheckClean()
}

// TestAFolderIsOfOneSession: a process that executes the file again has a new one, and what was open in the old one does nothing there.
func TestAFolderIsOfOneSession(t *testing.T) {
	bin := testprog.Build(t, "execer")
	file := filepath.Join(t.TempDir(), "execs")
	if err := os.Link(bin, file); err != nil {
		t.Fatal(err)
	}
	p, dir := testprog.Start(t, file), t.TempDir()
	l := start(t, "attach", "-p", pidOf(p), "-x", bin, "-sym", "foo", "-count", "-mount", dir)
	old, err := os.OpenFile(filepath.Join(dir, pidOf(p), "tracing/kprobe_events"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	p.Do("exec", "ready 1")
	p.Do("exec", "ready 2")
	l.waitFor("joined: " + pidOf(p))
	if _, err := old.WriteString("p:e foo\n"); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("written where another program was: %v", err)
	}
	if got := shell(t, dir, `cat "$1"/*/tracing/kprobe_events; ls "$1"`); got != pidOf(p)+"\n" {
		t.Errorf("events %q", got)
	}
	_ = old.Close()
	if r := l.interrupt(); r.status != 0 {
		t.Errorf("%+v", r)
	}
	unmounted(t, dir)
	p.CheckClean()
}

// talker is a shell that does what it is told, line by line.
type talker struct {
	cmd  *exec.Cmd
	tell func(script string) (said string)
}

func newTalker(t *testing.T) *talker {
	t.Helper()
	cmd := exec.Command("sh", "-c", `while read -r line; do eval "$line"; done`)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	lines := bufio.NewReader(out)
	return &talker{cmd, func(script string) string {
		fmt.Fprintln(in, script)
		s, _ := lines.ReadString('\n')
		return strings.TrimSpace(s)
	}}
}

// TestProbedProcessesReadEachOthersFolders, and write in none: each would wait for an answer that may need the other one to stop.
func TestProbedProcessesReadEachOthersFolders(t *testing.T) {
	dir := t.TempDir()
	a, b := newTalker(t), newTalker(t)
	l := start(t, "attach", "-p", fmt.Sprint(a.cmd.Process.Pid), "-p", fmt.Sprint(b.cmd.Process.Pid), "-hold", "-mount", dir)
	for _, c := range []struct{ who, other *talker }{{a, b}, {b, a}} {
		file := fmt.Sprintf("%s/%d/tracing/tracing_on", dir, c.other.cmd.Process.Pid)
		if got := c.who.tell("read x < " + file + "; echo $x"); got != "1" {
			t.Errorf("a probed process reads %q", got)
		}
		if got := c.who.tell("set -- " + dir + "/*; echo $#"); got != "2" {
			t.Errorf("a probed process sees %q folders", got)
		}
		if got := c.who.tell("if echo 0 2>/dev/null >> " + file + "; then echo written; else echo refused; fi 2>/dev/null"); got != "refused" {
			t.Errorf("a probed process has %q", got)
		}
	}
	if got := shell(t, dir, `for d in "$1"/*; do echo 0 > $d/tracing/tracing_on; cat $d/tracing/tracing_on; done`); got != "0\n0\n" {
		t.Errorf("others have %q", got)
	}
	if r := l.interrupt(); r.status != 0 {
		t.Errorf("%+v", r)
	}
	unmounted(t, dir)
	for _, s := range []*talker{a, b} {
		if got := s.tell("echo still"); got != "still" {
			t.Errorf("it says %q", got)
		}
		testprog.CheckClean(t, s.cmd.Process.Pid)
	}
}

// TestTheMountOfAKilledSessionOfSeveralIsTakenAway, as that of one process.
func TestTheMountOfAKilledSessionOfSeveralIsTakenAway(t *testing.T) {
	one, two, dir := prey(t), prey(t), t.TempDir()
	l := start(t, "attach", "-p", pidOf(one), "-p", pidOf(two), "-sym", "foo", "-mount", dir)
	l.signal(syscall.SIGKILL)
	testprog.Await(t, "an end of the mount", func() bool {
		entries, err := os.ReadDir(dir)
		return err == nil && len(entries) == 0
	})
	l.end()
	for _, p := range []*testprog.Prog{one, two} {
		p.Do("call foo 3", "ret 7")
		p.Quit()
	}
}

// TestAWatchPassesOver a process of gokprobe's own.
func TestAWatchPassesOver(t *testing.T) {
	file, _ := renamed(t)
	ours, other := testprog.Start(t, file), testprog.Start(t, file)
	w, err := newMapWatch(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	w.skip(ours.PID())
	for _, found := range w.look() {
		found.id.Close()
		if found.pid != other.PID() {
			t.Errorf("process %d is found", found.pid)
		}
	}
	ours.Quit()
	other.Quit()
}
