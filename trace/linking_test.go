package trace_test

import (
	"bufio"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/trace"
)

// TestAPatternInAProgramThatIsStillBeingLinked has the places that are there; what the dynamic linker has not chosen yet is skipped, and counted.
func TestAPatternInAProgramThatIsStillBeingLinked(t *testing.T) {
	cmd := exec.Command(testprog.Build(t, "prey"))
	cmd.Env = append(os.Environ(), "LD_PRELOAD="+testprog.Build(t, "libchooses.so", "-shared", "-fPIC"))
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
	defer func() { _ = cmd.Process.Kill() }()
	lines := bufio.NewReader(out)
	if line, err := lines.ReadString('\n'); line != "choosing\n" {
		t.Fatalf("the program says %q, %v", line, err)
	}
	said := new(logged)
	s, err := trace.Attach(t.Context(), cmd.Process.Pid, trace.Log(slog.New(said)))
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Probe("chooses_*", trace.Count())
	if err != nil {
		t.Fatal(err)
	}
	var places []string
	for _, at := range p.Stats().Places {
		places = append(places, at.Place)
	}
	if got := strings.Join(places, " "); got != "chooses_one chooses_two" {
		t.Errorf("the places are %s", got)
	}
	if want := "1 of 3 places is not probed: implementation not chosen yet (1)"; said.String() != want {
		t.Errorf("it says %q, want %q", said, want)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	testprog.CheckClean(t, cmd.Process.Pid)
	if _, err := in.Write([]byte("x")); err != nil {
		t.Error(err)
	}
	if line, err := lines.ReadString('\n'); !strings.HasPrefix(line, "ready") {
		t.Errorf("then the program says %q, %v", line, err)
	}
	in.Close()
	_ = cmd.Wait()
}
