package trace_test

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/trace"
)

// waiting is the modules fixture under a session.
func waiting(t *testing.T, flags []string, opts ...trace.Option) (p *testprog.Prog, s *trace.Session, said *logged, lib string) {
	t.Helper()
	lib = testprog.Build(t, "libplug.so", append([]string{"-shared", "-fPIC"}, flags...)...)
	p = testprog.Start(t, testprog.Build(t, "modules", append([]string{"-rdynamic"}, flags...)...))
	said = &logged{}
	return p, attach(t, p, append(opts, trace.Log(slog.New(said)))...), said, lib
}

// counts is the hits of each place.
func counts(p *trace.Probe) map[string]uint64 {
	m := map[string]uint64{}
	for _, at := range p.Stats().Places {
		m[at.Place] += at.Hits
	}
	return m
}

func ended(t *testing.T, p *testprog.Prog, s *trace.Session) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	p.CheckClean()
	p.Quit()
}

var muslFlags = []string{"-specs=/usr/lib/x86_64-linux-musl/musl-gcc.specs"}

// TestPatternsWaitForTheirLibrary: each function that matches is hit from the constructor on, counts are kept when the library comes again, elsewhere, and what
// is wanted of hits is there.
func TestPatternsWaitForTheirLibrary(t *testing.T) {
	for _, flags := range [][]string{nil, muslFlags} {
		for _, opts := range []kprobes.Options{{}, {NoOptimize: true}} {
			p, s, said, lib := waiting(t, flags, trace.With(opts))
			counted := probe(t, s, "libplug.so:*", trace.Count())
			typed := probe(t, s, "libplug.so:pl*", trace.Args())
			fetched := probe(t, s, "libplug.so:plug*", trace.Fetch("n=$arg1:s32"), trace.If("n > 0"))
			returned := probe(t, s, "libplug.so:p*d%return")
			if st := counted.Stats(); len(st.Places) != 1 || !st.Places[0].Waiting || st.Places[0].Place != "libplug.so:*" || st.Places[0].Reason != "libplug.so is not loaded yet" {
				t.Errorf("%+v", st)
			}
			if !strings.Contains(said.String(), "probe libplug.so:* waits: libplug.so is not loaded yet") {
				t.Error(said)
			}
			warned := said.String()
			for round := range uint64(3) {
				p.Do("open 0 "+lib, "did")
				if n := counts(counted); n["build"] < 1 {
					t.Errorf("the constructor is not counted: %v", n)
				}
				p.Do("call 0 plugged 2", "did")
				p.Do("call 0 calls 1", "did")
				if n := counts(counted); n["plugged"] != 4*(round+1) || n["calls"] != round+1 {
					t.Errorf("round %d: %v", round, n)
				}
				p.Do("close 0", "did")
				if round == 0 && flags == nil { // musl unmaps nothing
					p.Do("occupy 0", "did")
				}
			}
			if flags == nil {
				p.Do("vacate", "did")
				if n := counts(counted); n["build"] != 3 || n["wreck"] != 3 {
					t.Errorf("constructors and destructors: %v", n)
				}
			}
			each := []string{"plugged(v=0)", "plugged(v=1)", "plugged(v=0)", "plugged(v=1)"}
			if got, want := take(typed, 12), slices.Repeat(each, 3); !slices.Equal(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
			if got, want := take(fetched, 6), slices.Repeat([]string{"plugged(n=1)"}, 6); !slices.Equal(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
			if got := take(returned, 12); len(got) != 12 || got[1] != "plugged() = 30" || got[0] != "plugged() = 1" {
				t.Errorf("%q", got)
			}
			if now := said.String(); now != warned {
				t.Errorf("it warns %q", now)
			}
			for _, pr := range []*trace.Probe{counted, typed, fetched, returned} {
				if why, gone := pr.Gone(); gone {
					t.Error(why)
				}
				if st := pr.Stats(); st.Missed+st.Lost != 0 {
					t.Errorf("%+v", st)
				}
			}
			ended(t, p, s)
		}
	}
}

// TestEveryInstructionOfALibraryThatComes is counted, and again when it comes again.
func TestEveryInstructionOfALibraryThatComes(t *testing.T) {
	p, s, said, lib := waiting(t, nil)
	entry := probe(t, s, "libplug.so:plugged", trace.Count()) // its breakpoint is not taken for code
	every := probe(t, s, "libplug.so:plugged+*", trace.Count())
	all := probe(t, s, "libplug.so:[pw]*+*", trace.Count())
	for round := range uint64(3) {
		p.Do("open 0 "+lib, "did")
		p.Do("call 0 plugged 5", "did")
		st := every.Stats()
		if len(st.Places) < 4 {
			t.Fatalf("%+v", st)
		}
		for _, at := range st.Places {
			if at.Hits != 5*(round+1) || at.Waiting || !strings.HasPrefix(at.Place, "plugged+0x") {
				t.Errorf("round %d: %+v", round, at)
			}
		}
		if n := counts(entry)["libplug.so:plugged"]; n != 5*(round+1) {
			t.Errorf("%d hits of the name", n)
		}
		if n := counts(all); n["plugged+0x4"]+n["plugged+0x0"] == 0 || len(n) <= len(st.Places) {
			t.Errorf("%v", n)
		}
		p.Do("close 0", "did")
		if st := every.Stats(); !st.Places[0].Waiting || st.Places[0].Reason != "libplug.so was unloaded" {
			t.Errorf("%+v", st)
		}
		if round == 0 {
			p.Do("occupy 0", "did")
		}
	}
	p.Do("vacate", "did")
	if strings.Contains(said.String(), "not placed") {
		t.Error(said)
	}
	ended(t, p, s)
}

// TestAPatternThatMatchesNothingIsToldOnce, and is in the statistics; it goes on waiting. So is one of which nothing can be probed.
func TestAPatternThatMatchesNothingIsToldOnce(t *testing.T) {
	p, s, said, lib := waiting(t, nil)
	none := probe(t, s, "libplug.so:zz*", trace.Count())
	entries := probe(t, s, "libplug.so:[pw]*", trace.Count())
	for i := range 3 {
		p.Do("open 0 "+lib, "did")
		p.Do("call 0 plugged 2", "did")
		if i == 0 {
			if err := s.Kprobes().Blacklist("libplug.so:plugged"); err != nil {
				t.Error(err)
			}
		}
		p.Do("close 0", "did")
	}
	late := probe(t, s, "libplug.so:plug*", trace.Count())
	p.Do("open 0 "+lib, "did")
	if st := late.Stats(); len(st.Places) != 1 || !st.Places[0].Waiting || !strings.Contains(st.Places[0].Reason, "cannot place any probe: ") {
		t.Errorf("%+v", st)
	}
	if n := strings.Count(said.String(), "address must not be probed"); n != 2 || !strings.Contains(said.String(), "probe libplug.so:[pw]* is not placed at 1 of its places: ") {
		t.Errorf("told %d times: %s", n, said)
	}
	if n := strings.Count(said.String(), "probe libplug.so:zz* is not placed: unknown symbol"); n != 1 {
		t.Errorf("told %d times: %s", n, said)
	}
	st := none.Stats()
	if len(st.Places) != 1 || !st.Places[0].Waiting || !strings.Contains(st.Places[0].Reason, "unknown symbol") || st.Places[0].Kind != "kprobe" {
		t.Errorf("%+v", st)
	}
	if n := counts(entries); n["plugged"] != 2 || n["wreck"] != 3 {
		t.Errorf("%v", n)
	}
	for spec, want := range map[string]string{
		"libother.so:o*+*%return": "+* has no meaning with returns", "nolib:o*": "unknown module",
	} {
		if _, err := s.Probe(spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", spec, err)
		}
	}
	if _, err := s.Probe("libother.so:o*", trace.Fetch("n=v")); err == nil || !strings.Contains(err.Error(), "not loaded") {
		t.Errorf("a parameter by name: %v", err)
	}
	ended(t, p, s)
}

// TestAPlaceThatWasRefusedIsTriedAgain when the library comes again: it may be another build of it.
func TestAPlaceThatWasRefusedIsTriedAgain(t *testing.T) {
	p, s, said, lib := waiting(t, nil)
	spoiled := testprog.Build(t, "libplug.so", "-shared", "-fPIC", "-DSPOILED")
	one, some := probe(t, s, "libplug.so:plug*", trace.Count()), probe(t, s, "libplug.so:[pw]*", trace.Count())
	for range 2 {
		p.Do("open 0 "+spoiled, "did")
		p.Do("close 0", "did")
	}
	if st := one.Stats(); len(st.Places) != 1 || !st.Places[0].Waiting || !strings.Contains(st.Places[0].Reason, "cannot place any probe: ") {
		t.Errorf("%+v", st)
	}
	for n := range uint64(3) {
		p.Do("open 0 "+lib, "did")
		p.Do("call 0 plugged 5", "did")
		p.Do("close 0", "did")
		if a, b := counts(one), counts(some); a["plugged"] != 5*(n+1) || b["plugged"] != 5*(n+1) || b["wreck"] != n+3 {
			t.Errorf("%v, %v after %d times", a, b, n+1)
		}
	}
	if n := strings.Count(said.String(), "not placed: ") + strings.Count(said.String(), "not probed: "); n != 2 {
		t.Errorf("told %d times: %s", n, said)
	}
	ended(t, p, s)
}

// TestPatternsAreClosed while they wait, and when their library is there.
func TestPatternsAreClosed(t *testing.T) {
	p, s, _, lib := waiting(t, nil)
	never, first, stays := probe(t, s, "libplug.so:pl*", trace.Count()), probe(t, s, "libplug.so:p*", trace.Count()), probe(t, s, "libplug.so:plug*", trace.Count())
	if err := never.Close(); err != nil {
		t.Error(err)
	}
	p.Do("open 0 "+lib, "did")
	p.Do("call 0 plugged 3", "did")
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	p.Do("call 0 plugged 3", "did")
	p.Do("close 0", "did")
	p.Do("open 1 "+lib, "did")
	p.Do("call 1 plugged 3", "did")
	if n, f, st := counts(never)["plugged"], counts(first)["plugged"], counts(stays)["plugged"]; n != 0 || f != 3 || st != 9 {
		t.Errorf("%d, %d and %d hits", n, f, st)
	}
	if n := len(s.Kprobes().Probes()); n != 1 {
		t.Errorf("%d probes are left", n)
	}
	ended(t, p, s)
}

// TestALimitHoldsForPatternsThatWait, whatever comes after it.
func TestALimitHoldsForPatternsThatWait(t *testing.T) {
	p, s, _, lib := waiting(t, nil)
	pr := probe(t, s, "libplug.so:[pc]*", trace.Limit(3), trace.Also("libother.so:o*"))
	p.Do("open 0 "+lib, "did")
	p.Do("call 0 plugged 2", "did")
	p.Do("call 0 calls 5", "did")
	<-pr.Full()
	p.Do("open 1 "+testprog.Build(t, "libother.so", "-shared", "-fPIC"), "did")
	p.Do("call 1 other 5", "did")
	n := 0
	for range pr.Hits() {
		n++
	}
	if st := pr.Stats(); n != 3 || st.Hits != 3 {
		t.Errorf("%d hits, %+v", n, st)
	}
	ended(t, p, s)
}

// TestPatternsWaitInFollowedChildren: those that are forked and load the library, and programs that they or the process execute.
func TestPatternsWaitInFollowedChildren(t *testing.T) {
	p, s, said, lib := waiting(t, nil, trace.With(kprobes.Options{Follow: true}))
	pr := probe(t, s, "libplug.so:pl*", trace.Args())
	every := probe(t, s, "libplug.so:plugged+*", trace.Count())
	modules := testprog.Build(t, "modules", "-rdynamic")
	p.Do("fork "+lib, "did")
	p.Do("spawn "+modules, "ready")
	p.Do("tell open 0 "+lib, "did")
	p.Do("tell call 0 plugged 5", "did")
	p.Do("open 0 "+lib, "did")
	p.Do("call 0 plugged 7", "did")
	hits := uint64(200 + 5 + 7)
	check := func() {
		t.Helper()
		for _, at := range append(every.Stats().Places, pr.Stats().Places...) {
			if at.Hits != hits {
				t.Errorf("%+v, want %d", at, hits)
			}
		}
	}
	check()
	if got := take(pr, int(hits)); len(got) != int(hits) || got[0] != "plugged(v=0)" || got[hits-1] != "plugged(v=6)" {
		t.Errorf("%q", got)
	}
	p.Do("exec "+modules, "ready")
	p.Do("open 0 "+lib, "did")
	p.Do("call 0 plugged 3", "did")
	hits += 3
	check()
	if strings.Contains(said.String(), "not placed") || strings.Count(said.String(), " waits: ") != 2 {
		t.Error(said)
	}
	ended(t, p, s)
}

// TestPatternsFindWhatProgramsAreLinkedWith, when they are executed, by a child before constructors.
func TestPatternsFindWhatProgramsAreLinkedWith(t *testing.T) {
	p, s, said, lib := waiting(t, nil, trace.With(kprobes.Options{Follow: true}))
	linked := testprog.Build(t, "modules", "-rdynamic", "-Wl,--no-as-needed", lib)
	pr := probe(t, s, "libplug.so:*", trace.Count())
	p.Do("spawn "+linked, "ready")
	if n := counts(pr); n["build"] != 1 {
		t.Errorf("%v", n)
	}
	p.Do("exec "+linked, "ready")
	p.Do("open 0 "+lib, "did")
	p.Do("call 0 plugged 3", "did")
	if n := counts(pr); n["plugged"] != 3 || strings.Contains(said.String(), "not placed") {
		t.Errorf("%v, %s", n, said)
	}
	ended(t, p, s)
}

// TestAnExecEndsPatterns where nobody follows it.
func TestAnExecEndsPatterns(t *testing.T) {
	p, s, _, lib := waiting(t, nil)
	pr := probe(t, s, "libplug.so:pl*", trace.Count())
	p.Do("exec "+testprog.Build(t, "modules", "-rdynamic"), "ready")
	if why, gone := pr.Gone(); !gone || why != "the process executes another program now" {
		t.Errorf("%q, %v", why, gone)
	}
	p.Do("open 0 "+lib, "did")
	p.Do("call 0 plugged 3", "did")
	if st := pr.Stats(); st.Hits != 0 || len(st.Places) != 1 || st.Places[0].Waiting || !st.Places[0].Gone {
		t.Errorf("%+v", st)
	}
	ended(t, p, s)
}

// TestAPatternWaitsBesideThreads that are hit, while its library comes and goes.
func TestAPatternWaitsBesideThreads(t *testing.T) {
	p, s, said, lib := waiting(t, nil)
	pr := probe(t, s, "libplug.so:*", trace.Count(), trace.Also("foo"))
	returned := probe(t, s, "libplug.so:*%return", trace.Count())
	p.Do("start", "did")
	const cycles = 50
	p.Do(fmt.Sprintf("cycle %d %s", cycles, lib), "did")
	p.Do("stop", "did")
	n := counts(pr)
	if n["build"] != cycles || n["wreck"] != cycles || n["plugged"] != 4*cycles || n["calls"] != cycles || n["foo"] == 0 {
		t.Errorf("%v", n)
	}
	if r := counts(returned); r["build%return"] != cycles || r["plugged%return"] != 4*cycles {
		t.Errorf("%v", r)
	}
	if strings.Contains(said.String(), "not placed") {
		t.Error(said)
	}
	ended(t, p, s)
}

// TestAPatternHasAMostOfPlaces in libraries that come: it is told how many there are more.
func TestAPatternHasAMostOfPlaces(t *testing.T) {
	p, s, said, lib := waiting(t, nil)
	defer trace.AtMost(3)()
	pr := probe(t, s, "libplug.so:plugged+*", trace.Count())
	for range 2 {
		p.Do("open 0 "+lib, "did")
		p.Do("call 0 plugged 5", "did")
		p.Do("close 0", "did")
	}
	if st := pr.Stats(); len(st.Places) != 3 || st.Places[2].Hits != 10 {
		t.Errorf("%+v", st)
	}
	if n := strings.Count(said.String(), "places is not probed: more places than are taken when a library comes ("); n != 1 {
		t.Errorf("told %d times: %s", n, said)
	}
	ended(t, p, s)
}

// TestFunctionsThatShareTheirName are probed where the library comes first. They can't be found again, which is told once.
func TestFunctionsThatShareTheirName(t *testing.T) {
	p, s, said, _ := waiting(t, nil)
	dir := t.TempDir()
	lib := filepath.Join(dir, "libtwins.so")
	build := []string{"-shared", "-fPIC", "-O1", "-o", lib}
	for _, name := range []string{"first", "second"} {
		source := filepath.Join(dir, name+".c")
		text := "static __attribute__((noinline, noipa)) long twin(long v) { return 3 * v; }\nlong " + name + "(long v) { return twin(v) + 1; }\n"
		if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		build = append(build, source)
	}
	if out, err := exec.Command("gcc", build...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	pr := probe(t, s, "libtwins.so:[tf]*[nt]", trace.Count())
	for range 3 {
		p.Do("open 0 "+lib, "did")
		p.Do("call 0 first 5", "did")
		p.Do("call 0 second 7", "did")
		p.Do("close 0", "did")
	}
	if n := counts(pr); len(pr.Stats().Places) != 3 || n["first"] != 15 || n["twin"] != 12 {
		t.Errorf("%+v", pr.Stats())
	}
	if n := strings.Count(said.String(), "libtwins.so:[tf]*[nt] is not placed again, or in a followed child, at 2 of its places: other functions have the same name"); n != 1 {
		t.Errorf("told %d times: %s", n, said)
	}
	ended(t, p, s)
}
