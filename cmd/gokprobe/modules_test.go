package main

import (
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// modules starts the fixture that loads libplug.so, whose path is lib.
func modules(t *testing.T) (p *testprog.Prog, lib string) {
	t.Helper()
	lib = testprog.Build(t, "libplug.so", "-shared", "-fPIC")
	return testprog.Start(t, testprog.Build(t, "modules", "-rdynamic")), lib
}

// TestAttachWaitsForALibrary and prints its calls as any, from its constructor on, also when it
// is loaded again.
func TestAttachWaitsForALibrary(t *testing.T) {
	p, lib := modules(t)
	l := attachTo(t, p, "-sym", "libplug.so:plugged", "-sym", "foo", "-args", "-format", "json")
	for _, want := range []string{"probe libplug.so:plugged waits: libplug.so is not loaded yet\n", "armed: 1 probe in ", "(modules), 1 waiting\n"} {
		if said := l.said.String(); !strings.Contains(said, want) {
			t.Errorf("stderr is %q, want %q in it", said, want)
		}
	}
	var addrs []string
	for range 2 {
		p.Do("open 0 "+lib, "did")
		p.Do("call 0 plugged 2", "did")
		for _, want := range []string{`{"v":0}`, `{"v":1}`} {
			var h hitLine
			strictly(t, l.line(), &h)
			if !strings.HasPrefix(h.Symbol, "plugged+0x") || h.Module != "libplug.so" || string(h.Args) != want {
				t.Errorf("hit %+v, want arguments %s", h, want)
			}
			addrs = append(addrs, h.Addr)
		}
		p.Do("close 0", "did")
		if len(addrs) == 2 {
			p.Do("occupy 0", "did")
		}
	}
	if addrs[1] == addrs[2] {
		t.Errorf("all hits are at %s, though the library moved", addrs[1])
	}
	p.Do("vacate", "did")
	r := l.interrupt()
	_, sum := records(t, r.stdout)
	if s := sum.Probes[0]; r.status != 0 || s.Hits != 4 || s.Mechanism != "waiting" || s.Reason != "libplug.so was unloaded" {
		t.Errorf("status %d, summary %+v", r.status, s)
	}
	p.CheckClean()
	p.Quit()
}

// What is fetched and filtered in a library that comes later is what would be in one that is there.
func TestFetchedArgumentsInALibraryThatIsWaitedFor(t *testing.T) {
	p, lib := modules(t)
	l := attachTo(t, p, "-sym", "libplug.so:plugged", "-ret", "-arg", "n=$arg1:s32", "-arg", "r=$retval:s32", "-filter", "n > 0", "-format", "json")
	p.Do("open 0 "+lib, "did")
	p.Do("call 0 plugged 3", "did")
	p.Do("close 0", "did")
	r := l.interrupt()
	hits, sum := records(t, r.stdout)
	if got := fetchedLines(t, hits); len(hits) != 2 || sum.Probes[0].Hits != 2 || !strings.HasPrefix(got, `libplug.so:plugged {"n":1,"r":`) {
		t.Errorf("%s\n%+v\n%s", got, sum, r.stderr)
	}
	p.CheckClean()
	p.Quit()
	p, _ = modules(t)
	r = gokprobe(t, "attach", "-p", pidOf(p), "-sym", "libplug.so:plugged", "-arg", "v")
	if r.status != 2 || !strings.Contains(r.stderr, "-arg v names a parameter or a variable, but the library of libplug.so:plugged is not loaded yet; ") {
		t.Errorf("%+v", r)
	}
	p.Quit()
}

// TestSummaryOfProbesThatComeAndGo: what was never there, what was when the target ended, and
// what is gone.
func TestSummaryOfProbesThatComeAndGo(t *testing.T) {
	p, lib := modules(t)
	p.Do("open 0 "+testprog.Build(t, "libother.so", "-shared", "-fPIC"), "did")
	l := attachTo(t, p, "-sym", "libnone.so:foo", "-sym", "libplug.so:plugged", "-sym", "libplug.so:calls%return", "-sym", "libother.so:oth*", "-count", "-all-rows")
	p.Do("open 1 "+lib, "did")
	p.Do("call 1 plugged 5", "did")
	p.Do("call 1 calls 7", "did")
	p.Do("close 0", "did")
	p.Quit()
	r := l.end()
	for _, want := range []string{"waiting (libnone.so is not loaded yet)", "\n  19       0  libplug.so:plugged ", "\n   7       0  libplug.so:calls%return "} {
		if r.status != 0 || !strings.Contains(r.stdout, want) {
			t.Errorf("status %d, stdout %q, want %q in it", r.status, r.stdout, want)
		}
	}
}

// TestPatternsThatWait are counted with the probes that wait, and in the summary: those that stand for something by their functions.
func TestPatternsThatWait(t *testing.T) {
	p, lib := modules(t)
	l := attachTo(t, p, "-sym", "libplug.so:pl*", "-sym", "libplug.so:zz*", "-sym", "libnone.so:f*", "-sym", "foo", "-count", "-all-rows")
	for _, want := range []string{"probe libplug.so:pl* waits: libplug.so is not loaded yet\n", "armed: 1 probe in ", "(modules), 3 waiting\n"} {
		if said := l.said.String(); !strings.Contains(said, want) {
			t.Errorf("stderr is %q, want %q in it", said, want)
		}
	}
	for range 2 {
		p.Do("open 0 "+lib, "did")
		p.Do("call 0 plugged 5", "did")
		p.Do("close 0", "did")
	}
	r := l.interrupt()
	for _, want := range []string{"\n  10       0  plugged ", "waiting (libplug.so was unloaded)", "libplug.so:zz* ", "waiting (unknown symbol: \"zz*\" in libplug.so", "waiting (libnone.so is not loaded yet)"} {
		if r.status != 0 || !strings.Contains(r.stdout, want) {
			t.Errorf("status %d, stdout %q, want %q in it", r.status, r.stdout, want)
		}
	}
	p.CheckClean()
	p.Quit()
}

// TestRunWaitsForALibrary with a pattern, before any code of the target has run.
func TestRunWaitsForALibrary(t *testing.T) {
	lib, prog := testprog.Build(t, "libplug.so", "-shared", "-fPIC"), testprog.Build(t, "modules", "-rdynamic")
	r := gokprobe(t, "run", "-sym", "libplug.so:*", "-count", "-all-rows", "--", "sh", "-c", "echo cycle 10 "+lib+" | exec "+prog)
	if r.status == 0 && strings.Contains(r.stdout, "  10       0  build ") {
		t.Errorf("a child was probed that nobody follows: %q", r.stdout)
	}
	r = gokprobe(t, "run", "-follow", "-sym", "libplug.so:*", "-count", "-all-rows", "--", "sh", "-c", "echo cycle 10 "+lib+" | "+prog)
	for _, want := range []string{"\n  40       0  plugged ", "\n  10       0  build ", "\n  10       0  wreck ", "\n  10       0  calls "} {
		if r.status != 0 || !strings.Contains(r.stdout, want) {
			t.Errorf("status %d, stdout %q, stderr %q, want %q", r.status, r.stdout, r.stderr, want)
		}
	}
}

// TestAttachEndsWhenAllItsCodeIsUnloaded and can't come back: probes by address.
func TestAttachEndsWhenAllItsCodeIsUnloaded(t *testing.T) {
	p, lib := modules(t)
	p.Do("open 0 "+lib, "did")
	l := attachTo(t, p, "-sym", "libplug.so:plugged+*", "-count", "-all-rows")
	p.Do("close 0", "did")
	if r := l.end(); r.status != 0 || !strings.Contains(r.stderr, "libplug.so was unloaded, so all probes are gone") ||
		!strings.Contains(r.stdout, "gone (libplug.so was unloaded)") {
		t.Errorf("status %d, stdout %q, stderr %q", r.status, r.stdout, r.stderr)
	}
	p.CheckClean()
	p.Quit()
}
