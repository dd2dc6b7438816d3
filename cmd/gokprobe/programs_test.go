package main

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// TestSPECsOfLaterPrograms, of all forms, wait under -follow for a program that has them: for run, inject and scenarios.
func TestSPECsOfLaterPrograms(t *testing.T) {
	later := testprog.Build(t, "spawned", "-Dfoo=later")
	scenario := filepath.Join(t.TempDir(), "later.star")
	if err := os.WriteFile(scenario, []byte("def hit(ctx):\n    print(\"hit\", ctx.probe)\nkprobe(\"later\", pre = hit)\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	twice := []string{"--", "sh", "-c", later + " 5; " + later + " 6; exit $?"}
	for _, c := range []struct {
		args           []string
		status         int
		stdout, stderr []string
	}{
		{[]string{"run", "-follow", "-count", "-sym", "late*"}, 12, []string{"\n   2       0  later  "}, []string{"gokprobe: late* was found at 1 place in spawned"}},
		{[]string{"run", "-follow", "-count", "-sym", "latr*"}, 12, nil, []string{"gokprobe: latr* was found in no program"}},
		{[]string{"run", "-follow", "-count", "-sym", "later+*"}, 12, []string{"\n   2       0  later+0x0  "}, []string{"gokprobe: later+* was found at "}},
		{[]string{"run", "-follow", "-count", "-sym", "spawned.c:15"}, 12, []string{"\n   2       0  spawned.c:15 "}, []string{"waits, no program has it yet: spawned.c:15: no line information"}},
		{[]string{"run", "-follow", "-script", scenario}, 12, nil, []string{"hit <kprobe later>\n"}},
		{[]string{"inject", "-follow", "-sym", "later", "-retval", "9"}, 9, []string{"later => return 9"}, nil},
	} {
		r := gokprobe(t, slices.Concat(c.args, twice)...)
		if r.status != c.status {
			t.Errorf("%v: status %d, not %d", c.args, r.status, c.status)
		}
		for _, want := range c.stdout {
			if !strings.Contains(r.stdout, want) {
				t.Errorf("%v: stdout %q, want %q", c.args, r.stdout, want)
			}
		}
		for _, want := range c.stderr {
			if !strings.Contains(r.stderr, want) {
				t.Errorf("%v: stderr %q, want %q", c.args, r.stderr, want)
			}
		}
	}
}

// TestWhatAProcessLeavesIsFollowedFurther, as a daemon is: a child of it executes programs when it has ended.
func TestWhatAProcessLeavesIsFollowedFurther(t *testing.T) {
	later := testprog.Build(t, "spawned", "-Dfoo=later")
	scenario := filepath.Join(t.TempDir(), "later.star")
	if err := os.WriteFile(scenario, []byte("def hit(ctx):\n    print(\"hit\", ctx.probe)\nkprobe(\"later\", pre = hit)\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const orphan = "(while kill -0 $$ 2>/dev/null; do :; done; %s 5; echo first $?; %[1]s 6; echo last $?) & exit 3"
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"run", "-count", "-sym", "later"}, []string{"\n   2       0  later  ", "last 12\n"}},
		{[]string{"run", "-count", "-sym", "late*"}, []string{"\n   2       0  later  ", "last 12\n"}},
		{[]string{"run", "-args", "-sym", "later"}, []string{"v=5 ", "v=6 ", "last 12\n"}},
		{[]string{"run", "-script", scenario}, []string{"hit <kprobe later>\nhit <kprobe later>\n", "last 12\n"}},
		{[]string{"inject", "-sym", "later", "-retval", "9"}, []string{"later => return 9", "first 9\n", "last 9\n"}},
	} {
		r := gokprobe(t, slices.Concat(c.args, []string{"-follow", "--", "sh", "-c", fmt.Sprintf(orphan, later)})...)
		if r.status != 3 {
			t.Errorf("%v: status %d, not the process's 3", c.args, r.status)
		}
		for _, want := range c.want {
			if !strings.Contains(r.stdout+r.stderr, want) {
				t.Errorf("%v: %q and %q, want %q", c.args, r.stdout, r.stderr, want)
			}
		}
	}
}

// TestProgramsOfChildrenAreProbedThoughThatOfTheProcessIsNotLoaded: a library of it is missing, so that it ends in the dynamic linker.
func TestProgramsOfChildrenAreProbedThoughThatOfTheProcessIsNotLoaded(t *testing.T) {
	const orphan = "(while kill -0 $$ 2>/dev/null; do :; done; %s 5; echo last $?) & exec %s"
	later := testprog.Build(t, "spawned", "-Dfoo=later")
	r := gokprobe(t, "run", "-follow", "-count", "-sym", "later", "--", "sh", "-c", fmt.Sprintf(orphan, later, unloadable(t)))
	if r.status != 127 || !strings.Contains(r.stdout, "\n   1       0  later  ") && !strings.Contains(r.stdout, "\n  1       0  later  ") || !strings.Contains(r.stdout, "last 10\n") {
		t.Errorf("status %d, stdout %q, stderr %q", r.status, r.stdout, r.stderr)
	}
}

// TestAProgramForAnotherProcessorIsToldOf: nothing of it is probed.
func TestAProgramForAnotherProcessorIsToldOf(t *testing.T) {
	file := elf32(t)
	script := fmt.Sprintf("%s & while test \"$(readlink /proc/$!/exe)\" != %s; do kill -0 $! || exit 9; done; kill $!; exit 4", file, file)
	r := gokprobe(t, "run", "-follow", "-count", "-sym", "libc.so.6:_exit", "--", "sh", "-c", script)
	if r.status == 9 {
		t.Log("this kernel runs no 32-bit programs")
		return
	}
	if r.status != 4 || strings.Count(r.stderr, "executes "+file+", which is for another kind of processor and not probed") != 1 {
		t.Errorf("status %d, stderr %q", r.status, r.stderr)
	}
}

// TestAPlaceThatAProgramRefusesIsToldInItsRow: it does not say that no program has it.
func TestAPlaceThatAProgramRefusesIsToldInItsRow(t *testing.T) {
	later := testprog.Build(t, "spawned", "-Dfoo=later")
	r := gokprobe(t, "run", "-follow", "-count", "-all-rows", "-sym", "later+1", "-sym", "latest", "--", "sh", "-c", later+" 5; exit 3")
	if r.status != 3 || !strings.Contains(r.stderr, "probe later+0x1 is not placed in a followed child: ") && !strings.Contains(r.stderr, "probe later+1 is not placed in a followed child: ") {
		t.Errorf("status %d, stderr %q", r.status, r.stderr)
	}
	for _, row := range strings.Split(r.stdout, "\n") {
		if strings.Contains(row, "later+1") && !strings.Contains(row, "waiting (the address is not the start of an instruction") || strings.Contains(row, "latest") && !strings.Contains(row, "no program has it yet") {
			t.Errorf("its row is %q", row)
		}
	}
}

// TestALibraryThatMayBeMisspeltIsAskedAbout at once: it may come, but one of a similar name is there. One that lies beside it is not asked about.
func TestALibraryThatMayBeMisspeltIsAskedAbout(t *testing.T) {
	p := prey(t)
	for _, c := range []struct{ spec, said string }{
		{"libcc.so.6:malloc", "probe libcc.so.6:malloc waits: libcc.so.6 is not loaded yet; did you mean libc.so.6?\n"},
		{"libcc.so.6:mal*", "probe libcc.so.6:mal* waits: libcc.so.6 is not loaded yet; did you mean libc.so.6?\n"},
		{"libnothinglikeit.so.6:malloc", "probe libnothinglikeit.so.6:malloc waits: libnothinglikeit.so.6 is not loaded yet\n"},
		{"libm.so.6:sin", "probe libm.so.6:sin waits: libm.so.6 is not loaded yet\n"},
	} {
		for _, args := range [][]string{{"attach", "-count"}, {"attach", "-count", "-follow"}, {"inject", "-retval", "1"}} {
			l := start(t, append([]string{args[0], "-p", pidOf(p), "-sym", c.spec}, args[1:]...)...)
			if r := l.interrupt(); r.status != 0 || !strings.Contains(r.stderr, c.said) {
				t.Errorf("%v: status %d, it says %q, want %q", args, r.status, r.stderr, c.said)
			}
			p.CheckClean()
		}
	}
}

// TestInjectFollowsAPatternsFunctionsIntoPrograms that have functions of these names.
func TestInjectFollowsAPatternsFunctionsIntoPrograms(t *testing.T) {
	cmd := command(t, "inject", "-follow", "-sym", "fo[o]", "-retval", "9", "--", testprog.Build(t, "spawner"), testprog.Build(t, "spawned"))
	cmd.Stdin = strings.NewReader("fork 5\nspawn 6\n")
	r := finish(t, cmd)
	if n := strings.Count(r.stdout, "child 9\n"); n != 2 || strings.Count(r.stdout, "foo => return 9") != 4 || r.status != 0 {
		t.Errorf("status %d, %s\n%s", r.status, r.stdout, r.stderr)
	}
}

// TestAnAddressIsOfOneProgram: it is not probed in another one, which has something else there, and that is told.
func TestAnAddressIsOfOneProgram(t *testing.T) {
	bin := testprog.Build(t, "spawner", "-no-pie")
	f, err := elf.Open(bin)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	foo := ""
	for _, sym := range symbols {
		if sym.Name == "foo" {
			foo = fmt.Sprintf("%#x", sym.Value)
		}
	}
	cmd := command(t, "run", "-follow", "-count", "-sym", foo, "--", bin, testprog.Build(t, "spawned", "-no-pie"))
	cmd.Stdin = strings.NewReader("fork 5\nspawn 6\n")
	r := finish(t, cmd)
	told := "gokprobe: probe " + foo + " is not placed in programs that followed children execute: an address that names no module means nothing in another program\n"
	if strings.Count(r.stderr, told) != 1 || !strings.Contains(r.stdout, "\n   2       0  "+foo) || !strings.Contains(r.stdout, "child 12\n") || r.status != 0 {
		t.Errorf("status %d, %s\n%s", r.status, r.stdout, r.stderr)
	}
	r = gokprobe(t, "run", "-follow", "-count", "-sym", foo, "--", "sh", "-c", "exit 0") // which has nothing there
	if r.status != exitPlace || !strings.Contains(r.stderr, "address in no mapping: "+foo) {
		t.Errorf("status %d, %s", r.status, r.stderr)
	}
}
