package main

import (
	"bufio"
	"strings"
	"syscall"
	"testing"

	"github.com/gokprobe/gokprobe/bench"
)

func TestBenchListsItsRows(t *testing.T) {
	r := gokprobe(t, "bench", "-list")
	lines := strings.Split(strings.TrimSuffix(r.stdout, "\n"), "\n")
	if r.status != 0 || r.stderr != "" || len(lines) != len(bench.Rows()) {
		t.Fatalf("status %d, stderr %q, stdout:\n%s", r.status, r.stderr, r.stdout)
	}
	for i, row := range bench.Rows() {
		if f := strings.Fields(lines[i]); f[0] != row.Name || strings.Join(f[1:], " ") != row.What {
			t.Errorf("line %d is %q, want %+v", i, lines[i], row)
		}
	}
}

func TestBenchPrintsTheRowsAsked(t *testing.T) {
	r := gokprobe(t, "bench", "-rounds", "2", "-quick", "1000", "-rows", "o-count,b")
	if r.status != 0 || strings.Count(r.stderr, "bench: round ") != 2 {
		t.Fatalf("status %d, stderr %q", r.status, r.stderr)
	}
	for _, want := range []string{"\nb ", "\no-count ", "≤ 1.25×", "hand-written lock inc"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("there is no %q in\n%s", want, r.stdout)
		}
	}
	if strings.Contains(r.stdout, "\nk ") {
		t.Errorf("there is a row that was not asked for:\n%s", r.stdout)
	}
}

func TestBenchAsJSON(t *testing.T) {
	r := gokprobe(t, "bench", "-rounds", "1", "-quick", "1000", "-rows", "b,j", "-format", "json")
	lines := strings.Split(strings.TrimSuffix(r.stdout, "\n"), "\n")
	if r.status != 0 || len(lines) != 3 {
		t.Fatalf("status %d, stderr %q, stdout:\n%s", r.status, r.stderr, r.stdout)
	}
	var machine struct {
		Type string
		bench.Machine
	}
	strictly(t, lines[0], &machine)
	if machine.Type != "machine" || machine.CPU == "" || machine.Processors < 1 || machine.Kernel == "" {
		t.Errorf("%+v", machine)
	}
	for i, name := range []string{"b", "j"} {
		var row struct {
			Type string
			bench.Result
		}
		strictly(t, lines[i+1], &row)
		if row.Type != "row" || row.Row != name || row.Each == nil || row.FloorEach == nil || row.Ratio <= 0 || row.OK == nil {
			t.Errorf("%s: %+v", name, row)
		}
	}
}

func TestBenchWrongUsage(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"-rows b,zebra", `unknown row "zebra"`},
		{"-rounds 0", "-rounds must be at least 1"},
		{"-format xml", `unknown format "xml"`},
		{"now", `unexpected argument "now"`},
	} {
		r := gokprobe(t, append([]string{"bench"}, strings.Fields(c.args)...)...)
		if r.status != 2 || r.stdout != "" || !strings.Contains(r.stderr, c.want) {
			t.Errorf("%s: status %d, stdout %q, stderr %q", c.args, r.status, r.stdout, r.stderr)
		}
		oneSentence(t, r)
	}
}

func TestInterruptedBenchPrintsWhatItHas(t *testing.T) {
	cmd := command(t, "bench", "-rounds", "1000000", "-quick", "1000", "-rows", "b")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stdout strings.Builder
	cmd.Stdout = &stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := ""
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		said = lines.Text()
		if strings.HasPrefix(said, "bench: round 2 of") {
			if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = cmd.Wait()
	if status := cmd.ProcessState.ExitCode(); status != 1 || said != "gokprobe: interrupted; nothing is left running" {
		t.Errorf("status %d, last words %q", status, said)
	}
	if !strings.Contains(stdout.String(), "\nb ") {
		t.Errorf("the first round is not printed:\n%s", stdout.String())
	}
}

func TestBenchForBenchstat(t *testing.T) {
	r := gokprobe(t, "bench", "-rounds", "2", "-quick", "1000", "-rows", "b", "-format", "benchstat")
	if r.status != 0 || strings.Count(r.stdout, "\nBenchmarkHit/row=b-") != 2 || !strings.Contains(r.stdout, "\ncpu: ") || strings.Count(r.stdout, " ratio\n") != 2 {
		t.Errorf("status %d, stderr %q, stdout:\n%s", r.status, r.stderr, r.stdout)
	}
}
