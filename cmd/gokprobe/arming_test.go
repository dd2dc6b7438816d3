package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
)

// TestSignalsAndDurationEndAnAttachThatWaitsForEver: a thread of the target is in state D, in
// which nothing can stop it.
func TestSignalsAndDurationEndAnAttachThatWaitsForEver(t *testing.T) {
	p, hears := testprog.StartDeaf(t, 4)
	scenario := filepath.Join(t.TempDir(), "a.star")
	if err := os.WriteFile(scenario, []byte("kprobe(\"foo\")\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"attach", "-p", pidOf(p), "-sym", "foo"},
		{"inject", "-p", pidOf(p), "-sym", "foo", "-retval", "1"},
		{"script", "-p", pidOf(p), scenario},
	} {
		for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
			l := begin(t, args...)
			waitTraced(t, p.PID())
			l.signal(sig)
			if r := l.end(); r.status != 0 || !strings.Contains(r.stderr, "interrupted before the probes were armed") {
				t.Errorf("%v, %v: status %d, stderr %q", args, sig, r.status, r.stderr)
			}
			p.CheckClean()
		}
		args = append([]string{args[0], "-duration", "50ms"}, args[1:]...)
		if r := gokprobe(t, args...); r.status != 3 || !strings.Contains(r.stderr, "-duration was over before the probes were armed") {
			t.Errorf("%v: status %d, stderr %q", args, r.status, r.stderr)
		}
		p.CheckClean()
	}
	l := begin(t, "check", "-p", pidOf(p), "-attach")
	waitTraced(t, p.PID())
	l.signal(syscall.SIGINT)
	if r := l.end(); r.status != 3 || !strings.Contains(r.stdout, "given up") {
		t.Errorf("check: status %d, stdout %q, stderr %q", r.status, r.stdout, r.stderr)
	}
	p.CheckClean()
	hears()
	p.Do("call 4", "ret 117")
	if verdict := p.Quit(); verdict != "right" {
		t.Errorf("the target says %q", verdict)
	}
}

// waitTraced waits until a process is traced.
func waitTraced(t *testing.T, pid int) {
	t.Helper()
	for {
		st, err := procfs.ReadStatus(pid, 0)
		if err != nil {
			t.Fatal(err)
		}
		if st.TracerPid != 0 {
			return
		}
	}
}
