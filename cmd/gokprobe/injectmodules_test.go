package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// TestInjectAndScriptWaitForAPattern: what comes is injected into and counted, and what never had a place is told of at the end.
func TestInjectAndScriptWaitForAPattern(t *testing.T) {
	p, lib := modules(t)
	l := injectInto(t, p, "-sym", "libplug.so:pl*", "-sym", "libnone.so:n*", "-retval", "7", "-interval", "2")
	if said := l.said.String(); !strings.Contains(said, "probe libnone.so:n* waits: libnone.so is not loaded yet\n") {
		t.Errorf("stderr is %q", said)
	}
	p.Do("open 0 "+lib, "did")
	if got := p.Do("call 0 plugged 4", "did"); got != "did 74" { // 1, 7, 59, 7
		t.Error(got)
	}
	r := l.interrupt()
	for _, want := range []string{"plugged        kprobe", "libplug.so:pl*, libnone.so:n*  4      4         2         0        0       return 7: 2", "libnone.so:n*", "waiting (libnone.so is not loaded yet)"} {
		if r.status != 0 || !strings.Contains(r.stderr, want) {
			t.Errorf("status %d, stderr %q, want %q in it", r.status, r.stderr, want)
		}
	}
	p.CheckClean()
	p.Quit()
	file := filepath.Join(t.TempDir(), "late.star")
	src := "later = kprobe(\"food*\")\nkprobe(\"fooz*\")\ninject(\"foo[d]\", retval = 5)\ninject(\"libnone.so:n*\", retval = 5)\n" +
		"at_end(lambda: expect(later.hits == 1, str(later.hits)))\n"
	if err := os.WriteFile(file, []byte(src), 0o644); err != nil {
		t.Fatal(err)
	}
	spawned := testprog.Build(t, "spawned", "-Dfoo=food")
	got := gokprobe(t, "run", "-follow", "-script", file, "--", "sh", "-c", spawned+" 10; echo status $?")
	for _, want := range []string{"status 5", "fooz* was found in no program", "food* was found at 1 place in spawned", "libnone.so:n*: libnone.so is not loaded yet", "passed: "} {
		if !strings.Contains(got.stdout+got.stderr, want) {
			t.Errorf("%+v, want %q in it", got, want)
		}
	}
}
