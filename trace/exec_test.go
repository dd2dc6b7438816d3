package trace_test

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/symbols"
	"github.com/gokprobe/gokprobe/trace"
)

// TestChildrenThatExecuteOtherProgramsAreFollowed, however they are made: the SPEC stands for what has that name there, with its own types, by records and by stops.
func TestChildrenThatExecuteOtherProgramsAreFollowed(t *testing.T) {
	spawned := testprog.Build(t, "spawned")
	for _, c := range []struct {
		spec   string
		wants  []trace.Want
		parent string // V is the argument, D twice, T three times and H half of it
		child  string // empty for an address, which differs
	}{
		{"foo", []trace.Want{trace.Args()}, "foo(v=V)", `foo(name="name", v=V, half=H)`},
		{"foo", []trace.Want{trace.Fetch("n=$arg1:s64")}, "foo(n=V)", ""},
		{"foo", []trace.Want{trace.Fetch("v=v")}, "foo(v=V)", "foo(v=V)"},
		{"foo", []trace.Want{trace.Fetch("v=v:s16"), trace.If("v > 0")}, "foo(v=V)", "foo(v=V)"},
		{"foo%return", []trace.Want{trace.Args()}, "foo(v=V) = T", `foo(name="name", v=V, half=H) = D`},
		{"foo%return", nil, "foo() = T", "foo() = D"},
	} {
		for _, opts := range []kprobes.Options{{Follow: true}, {Follow: true, NoOptimize: true}} {
			p := testprog.Start(t, testprog.Build(t, "spawner"), spawned)
			s := attach(t, p, trace.With(opts))
			pr := probe(t, s, c.spec, c.wants...)
			var want []string
			for i, how := range []string{"fork", "vfork", "spawn", "shell", "grandchild", "parent"} {
				v := 10 + i
				p.Do(fmt.Sprintf("%s %d", how, v), fmt.Sprintf("child %d", 2*v))
				r := strings.NewReplacer("V", fmt.Sprint(v), "D", fmt.Sprint(2*v), "T", fmt.Sprint(3*v), "H", fmt.Sprint(float64(v)/2))
				want = append(want, r.Replace(c.parent), r.Replace(c.child))
			}
			got := take(pr, len(want))
			for i := range want {
				if want[i] != "" && (i >= len(got) || got[i] != want[i]) {
					t.Errorf("%s, %+v: got %q, want %q", c.spec, opts, got, want)
					break
				}
			}
			if st := pr.Stats(); st.Hits != uint64(len(want)) || st.Missed+st.Lost != 0 {
				t.Errorf("%s, %+v: %+v", c.spec, opts, st)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if n := trace.Remembered(pr); n > 2 { // the last child and its parent
				t.Errorf("%s, %+v: %d programs are remembered", c.spec, opts, n)
			}
			p.CheckClean()
			p.Quit()
		}
	}
}

// TestWhatOnlyALaterProgramHasIsWaitedFor: a name that nothing of the target has is placed in each program that has it, and waits again when that ends.
func TestWhatOnlyALaterProgramHasIsWaitedFor(t *testing.T) {
	spawned := testprog.Build(t, "spawned", "-Dfoo=later")
	p := testprog.Start(t, testprog.Build(t, "spawner"), spawned)
	var said strings.Builder
	log := testprog.ButUprobes(func(m string) { fmt.Fprintln(&said, m) })
	s := attach(t, p, trace.With(kprobes.Options{Log: log}), trace.Follow(), trace.AwaitPrograms())
	entries, module, returns, none := probe(t, s, "later", trace.Args()), probe(t, s, "spawned:later", trace.Count()),
		probe(t, s, "later%return", trace.Args()), probe(t, s, "latr", trace.Count())
	for _, pr := range []*trace.Probe{entries, module, returns, none} {
		if st := pr.Stats(); len(st.Places) != 1 || !st.Places[0].Waiting {
			t.Errorf("%+v, want one place that waits", st)
		}
	}
	if n := strings.Count(said.String(), " waits, no program has it yet: unknown "); n != 4 {
		t.Errorf("four probes wait: %s", &said)
	}
	var want, ends []string
	for i, how := range []string{"fork", "vfork", "spawn", "shell", "grandchild", "parent"} {
		v := 10 + i
		p.Do(fmt.Sprintf("%s %d", how, v), fmt.Sprintf("child %d", 2*v))
		call := fmt.Sprintf(`later(name="name", v=%d, half=%g)`, v, float64(v)/2)
		want, ends = append(want, call), append(ends, fmt.Sprintf("%s = %d", call, 2*v))
	}
	if got := take(entries, len(want)); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := take(returns, len(ends)); !slices.Equal(got, ends) {
		t.Errorf("got %q, want %q", got, ends)
	}
	if st := module.Stats(); st.Hits != uint64(len(want)) || st.Missed+st.Lost != 0 {
		t.Errorf("%+v, want %d hits", st, len(want))
	}
	if at := module.Stats().Places[0]; at.Addr == 0 || !strings.HasPrefix(at.Symbol, "later+0x") {
		t.Errorf("%+v, want where the last program had it", at)
	}
	if st := none.Stats(); st.Hits != 0 || !st.Places[0].Waiting {
		t.Errorf("%+v, want it to wait still", st)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	p.CheckClean()
	p.Quit()
	// Without somebody who awaits programs an unknown name is an error.
	p = testprog.Start(t, testprog.Build(t, "spawner"), spawned)
	s = attach(t, p, trace.With(kprobes.Options{Follow: true}))
	if _, err := s.Probe("later"); !errors.Is(err, symbols.ErrUnknownSymbol) {
		t.Errorf("%v, want ErrUnknownSymbol", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	p.CheckClean()
	p.Quit()
}

// several is a script that executes programs, one after the other, with its arguments, and has the status of the last one.
func several(t *testing.T, programs ...string) string {
	t.Helper()
	script := filepath.Join(t.TempDir(), "several")
	text := "#!/bin/sh\n"
	for _, bin := range programs {
		text += bin + " \"$@\"\n"
	}
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return script
}

// as is a program by another name.
func as(t *testing.T, bin, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	code, err := os.ReadFile(bin)
	if err == nil {
		err = os.WriteFile(path, code, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestPatternsWaitForPrograms: what nothing of the target matches is resolved in each program that is executed. A function of two programs is one place.
func TestPatternsWaitForPrograms(t *testing.T) {
	later := testprog.Build(t, "spawned", "-Dfoo=later")
	both := several(t, later, as(t, testprog.Build(t, "spawned", "-Dfoo=later", "-static"), "again"))
	for _, opts := range []kprobes.Options{{}, {NoOptimize: true}} {
		p := testprog.Start(t, testprog.Build(t, "spawner"), both)
		var said strings.Builder
		opts.Log = testprog.ButUprobes(func(m string) { fmt.Fprintln(&said, m) })
		s := attach(t, p, trace.With(opts), trace.Follow(), trace.AwaitPrograms())
		entries, module, returns := probe(t, s, "late?", trace.Args()), probe(t, s, "again:late*", trace.Count()), probe(t, s, "late*%return", trace.Args())
		insns, none := probe(t, s, "later+*", trace.Count()), probe(t, s, "latr*", trace.Count())
		for _, pr := range []*trace.Probe{entries, module, returns, insns, none} {
			if st := pr.Stats(); len(st.Places) != 1 || !st.Places[0].Waiting || len(st.Patterns) != 1 || len(st.Patterns[0].Found) != 0 {
				t.Errorf("%+v, want one place that waits", st)
			}
		}
		if n := strings.Count(said.String(), " waits, no program has it yet: unknown "); n != 5 {
			t.Errorf("five probes wait: %s", &said)
		}
		var want, ends []string
		for i, how := range []string{"fork", "vfork", "spawn", "shell", "grandchild", "parent"} {
			v := 10 + i
			p.Do(fmt.Sprintf("%s %d", how, v), fmt.Sprintf("child %d", 2*v))
			call := fmt.Sprintf(`later(name="name", v=%d, half=%g)`, v, float64(v)/2)
			want, ends = append(want, call, call), append(ends, fmt.Sprintf("%s = %d", call, 2*v), fmt.Sprintf("%s = %d", call, 2*v))
		}
		if got := take(entries, len(want)); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if got := take(returns, len(ends)); !slices.Equal(got, ends) {
			t.Errorf("got %q, want %q", got, ends)
		}
		for _, c := range []struct {
			pr   *trace.Probe
			hits int
			in   []string
		}{{entries, len(want), []string{"again", "spawned"}}, {module, len(want) / 2, []string{"again"}}, {returns, len(want), []string{"again", "spawned"}}} {
			st := c.pr.Stats()
			if st.Hits != uint64(c.hits) || st.Missed+st.Lost != 0 || len(st.Places) != 1 || !strings.HasPrefix(st.Places[0].Symbol, "later") {
				t.Errorf("%+v, want %d hits of one place", st, c.hits)
			}
			for i, m := range st.Patterns[0].Found {
				if len(st.Patterns[0].Found) != len(c.in) || !strings.HasPrefix(m.Module, c.in[i]) || m.Places != 1 {
					t.Errorf("%+v, want one in each of %v", st.Patterns, c.in)
				}
			}
		}
		st := insns.Stats()
		for _, at := range st.Places {
			if at.Hits > uint64(len(want)) {
				t.Errorf("%+v was hit more than once for each of %d calls", at, len(want))
			}
		}
		if len(st.Places) < 5 || st.Places[0].Hits != uint64(len(want)) {
			t.Errorf("%+v, want each instruction, the first %d times", st, len(want))
		}
		if st := none.Stats(); st.Hits != 0 || !st.Places[0].Waiting {
			t.Errorf("%+v, want it to wait still", st)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		p.CheckClean()
		p.Quit()
	}
	// Without somebody who awaits programs it is an error.
	p := testprog.Start(t, testprog.Build(t, "spawner"), both)
	s := attach(t, p, trace.With(kprobes.Options{Follow: true}))
	if _, err := s.Probe("late*"); !errors.Is(err, symbols.ErrUnknownSymbol) {
		t.Errorf("%v, want ErrUnknownSymbol", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	p.CheckClean()
	p.Quit()
}

// TestPatternsAreResolvedAnewInPrograms: a function that a library of the target has is another one in executed programs, by a name of its own, by one that the target
// knows for the library's, or both. Each call is counted once.
func TestPatternsAreResolvedAnewInPrograms(t *testing.T) {
	dynamic, static := testprog.Build(t, "spawned", "-Dfoo=lfind"), as(t, testprog.Build(t, "spawned", "-Dfoo=lfind", "-static"), "again")
	for _, programs := range [][]string{{dynamic, static}, {static, dynamic}, {static, static}} {
		for _, spec := range []string{"lfin*", "lfin*%return"} {
			p := testprog.Start(t, testprog.Build(t, "spawner"), several(t, programs...))
			s := attach(t, p, trace.With(kprobes.Options{Log: testprog.NoWarnings(t)}), trace.Follow(), trace.AwaitPrograms())
			pr := probe(t, s, spec, trace.Args())
			if st := pr.Stats(); len(st.Places) != 1 || st.Places[0].Waiting {
				t.Errorf("%+v, want the library's", st)
			}
			var want []string
			for i, how := range []string{"fork", "spawn", "vfork"} {
				v := 20 + i
				p.Do(fmt.Sprintf("%s %d", how, v), fmt.Sprintf("child %d", 2*v))
				call := fmt.Sprintf(`lfind(name="name", v=%d, half=%g)`, v, float64(v)/2)
				if strings.HasSuffix(spec, trace.ReturnSuffix) {
					call += fmt.Sprintf(" = %d", 2*v)
				}
				want = append(want, call, call)
			}
			if got := take(pr, len(want)); !slices.Equal(got, want) {
				t.Errorf("%v, %s: got %q, want %q", programs, spec, got, want)
			}
			if st := pr.Stats(); st.Hits != uint64(len(want)) || st.Missed+st.Lost != 0 {
				t.Errorf("%v, %s: %+v, want %d hits", programs, spec, st, len(want))
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			p.CheckClean()
			p.Quit()
		}
	}
}

// TestAPatternFollowsTheTargetsOwnExec into a program that has more of it, less, or what it waits for.
func TestAPatternFollowsTheTargetsOwnExec(t *testing.T) {
	for _, c := range []struct {
		spec string
		want uint64
	}{{"late*", 2}, {"again:*ate*", 2}, {"lfin*", 1}, {"lfind", 1}} {
		exec := filepath.Join(t.TempDir(), "exec")
		other := as(t, testprog.Build(t, "spawned", "-Dfoo=lfind"), "other")
		text := fmt.Sprintf("#!/bin/sh\nread go\n%s 3\nexec %s 4\n", other, several(t, as(t, testprog.Build(t, "spawned", "-Dfoo=later", "-DEARLY"), "again")))
		if err := os.WriteFile(exec, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		in, feed, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer feed.Close()
		s, err := trace.Launch(t.Context(), kprobes.Command{Path: exec, Args: []string{exec}, Files: []*os.File{in, os.Stdout, os.Stderr}},
			trace.With(kprobes.Options{Log: testprog.ButUprobes(func(string) {})}), trace.Follow(), trace.AwaitPrograms())
		in.Close()
		if err != nil {
			t.Fatal(err)
		}
		pr := probe(t, s, c.spec, trace.Count())
		if err := s.Start(); err != nil {
			t.Fatal(err)
		}
		feed.WriteString("go\n")
		<-s.Done()
		if st := pr.Stats(); st.Hits != c.want || st.Missed+st.Lost != 0 {
			t.Errorf("%s: %+v, want %d hits", c.spec, st, c.want)
		}
		if exit := s.Kprobes().Exit(); exit == nil || exit.Code != 8 {
			t.Errorf("%s: %+v, want status 8", c.spec, exit)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestExecutedProgramsOfAllKinds have their probes before any of their code has run, constructors too.
func TestExecutedProgramsOfAllKinds(t *testing.T) {
	const musl = "-specs=/usr/lib/x86_64-linux-musl/musl-gcc.specs"
	for _, flags := range [][]string{
		{"-DEARLY"}, {"-DEARLY", "-no-pie"}, {"-DEARLY", "-static"}, {"-DEARLY", "-static-pie"}, {"-DEARLY", musl}, {"-DEARLY", musl, "-static"},
	} {
		p := testprog.Start(t, testprog.Build(t, "spawner"), testprog.Build(t, "spawned", flags...))
		s := attach(t, p, trace.With(kprobes.Options{Follow: true}))
		pr := probe(t, s, "foo", trace.Args())
		p.Do("fork 21", "child 42")
		want := []string{"foo(v=21)", `foo(name="name", v=0, half=0)`, `foo(name="name", v=21, half=10.5)`}
		if got := take(pr, len(want)); !slices.Equal(got, want) {
			t.Errorf("%v: %q, want %q", flags, got, want)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		p.CheckClean()
		p.Quit()
	}
}

// TestWhatIsRememberedOfACallIsThatCalls: a program without debug information shows no arguments of another one's call, and a call that is followed returns
// wherever it does, in a child that was forked in it, too.
func TestWhatIsRememberedOfACallIsThatCalls(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "spawner"), testprog.Build(t, "spawned", "-g0"))
	s := attach(t, p, trace.With(kprobes.Options{Follow: true}))
	pr := probe(t, s, "foo%return", trace.Args())
	forks := probe(t, s, "libc.so.6:fork%return")
	var want []string
	for v := 30; v < 33; v++ {
		p.Do(fmt.Sprintf("parent %d", v), fmt.Sprintf("child %d", 2*v))
		want = append(want, fmt.Sprintf("foo(v=%d) = %d", v, 3*v), fmt.Sprintf("foo() = %d", 2*v))
	}
	if got := take(pr, len(want)); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	const twice, processes, calls = 2, 2, 3
	if n := len(take(forks, twice*processes*calls)); n != twice*processes*calls {
		t.Errorf("%d returns of fork, want %d", n, twice*processes*calls)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	p.CheckClean()
	p.Quit()
}

// TestAProbeHastensNoOthers: what a followed child has not hit yet waits there for its hit, as it did before another probe came.
func TestAProbeHastensNoOthers(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "thousand"))
	s := attach(t, p, trace.Follow(), trace.With(kprobes.Options{Follow: true, Log: testprog.NoWarnings(t)}))
	first := probe(t, s, "fn_100", trace.Count())
	probe(t, s, "libc.so.6:getppid%return", trace.Count()) // where calls are followed, a child begins without its parent's jumps
	child := strings.TrimPrefix(p.Do("fork", "child"), "child ")
	mem, err := os.Open("/proc/" + child + "/mem")
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	code := func(pr *trace.Probe) byte {
		b := make([]byte, 1)
		if _, err := mem.ReadAt(b, int64(pr.Stats().Places[0].Addr)); err != nil {
			t.Fatal(err)
		}
		return b[0]
	}
	before := code(first)
	second := probe(t, s, "fn_200", trace.Count())
	if b := code(first); before != breakpoint || b != breakpoint {
		t.Errorf("fn_100 begins with %#x in the child, then with %#x; want its breakpoint", before, b)
	}
	p.Do("call", "sum 1499500")
	p.Do("end", "ended")
	for _, pr := range []*trace.Probe{first, second} {
		if st := pr.Stats(); st.Hits != 1 {
			t.Errorf("%+v, want one hit", st)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	p.CheckClean()
	p.Quit()
}

// breakpoint is the byte of one.
const breakpoint = 0xcc

// TestHitsThatCannotBeReadInAnotherProgramAreLost: the program that a child executes has a function of that name without the parameter.
func TestHitsThatCannotBeReadInAnotherProgramAreLost(t *testing.T) {
	spawned := testprog.Build(t, "spawned", "-Dv=other")
	for _, spec := range []string{"foo", "foo%return"} {
		p := testprog.Start(t, testprog.Build(t, "spawner"), spawned)
		s := attach(t, p, trace.With(kprobes.Options{Follow: true, NoOptimize: true}), trace.Log(slog.New(&logged{})))
		pr := probe(t, s, spec, trace.Fetch("v=v"), trace.Stack(1))
		p.Do("fork 10", "child 20")
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if st := pr.Stats(); st.Lost != 1 || st.Places[0].Unread != 1 || st.Places[0].Torn != 0 {
			t.Errorf("%s: %+v", spec, st)
		}
		p.CheckClean()
		p.Quit()
	}
}

// TestAPatternHasWhatAProgramHas, whatever has the same name in the main process: a function that is longer there than here, or something that is none.
func TestAPatternHasWhatAProgramHas(t *testing.T) {
	for _, c := range []struct{ flag, spec string }{{"-Dv=v", "foo+*"}, {"-Dfoo=how_much", "how_*"}} {
		p := testprog.Start(t, testprog.Build(t, "spawner", "-DTABLE=how_much"), testprog.Build(t, "spawned", c.flag))
		s := attach(t, p, trace.With(kprobes.Options{Log: func(text string) { t.Log(text) }}), trace.Follow(), trace.AwaitPrograms())
		pr := probe(t, s, c.spec, trace.Count())
		p.Do("fork 10", "child 20")
		st := pr.Stats()
		hit := uint64(0)
		for _, at := range st.Places {
			hit += at.Hits
		}
		if st.Skipped.Len() > 0 || len(st.Patterns) != 1 || len(st.Patterns[0].Found) == 0 || hit == 0 {
			t.Errorf("%s: skipped: %s; found %+v; %d hits of %+v", c.spec, &st.Skipped, st.Patterns, hit, st.Places)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		p.CheckClean()
		p.Quit()
	}
}

// TestPatternsAreNotLookedUpAgainInTheSameFiles: a library is known from the program before, which had its functions elsewhere. All programs are hit.
func TestPatternsAreNotLookedUpAgainInTheSameFiles(t *testing.T) {
	spawned := testprog.Build(t, "spawned")
	p := testprog.Start(t, testprog.Build(t, "spawner"), spawned)
	s := attach(t, p, trace.With(kprobes.Options{Log: testprog.ButUprobes(func(string) {})}), trace.Follow(), trace.AwaitPrograms())
	libc, fewer, every := probe(t, s, "libc.so.6:*exit*", trace.Count()), probe(t, s, "libc.so.6:strto?", trace.Count()), probe(t, s, "spawned:fo*", trace.Count())
	const programs = 12
	var last, grown uint64
	for v := range programs {
		p.Do(fmt.Sprintf("spawn %d", v), fmt.Sprintf("child %d", 2*v))
		now := libc.Stats().Hits
		if v > 1 && now-last != grown || now == last {
			t.Errorf("program %d has %d hits, the one before had %d", v, now-last, grown)
		}
		last, grown = now, now-last
	}
	if st := every.Stats(); st.Hits != programs || st.Missed+st.Lost != 0 {
		t.Errorf("%+v, want %d hits", st, programs)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	for pr, most := range map[*trace.Probe]int{libc: 3, fewer: 3} {
		if n := trace.Resolved(pr); n < 1 || n > most {
			t.Errorf("a pattern was looked up %d times in %d programs, want %d at most", n, programs, most)
		}
	}
	p.CheckClean()
	p.Quit()
}

// TestALibraryIsReplacedBetweenTwoPrograms: the second has the function elsewhere in a file of the same name. All programs are hit, by name and by a pattern.
func TestALibraryIsReplacedBetweenTwoPrograms(t *testing.T) {
	lib := filepath.Join(t.TempDir(), "libplug.so")
	put := func(flags ...string) {
		if err := os.Rename(as(t, testprog.Build(t, "libplug.so", append(flags, "-shared", "-fPIC")...), "libplug.so"), lib); err != nil {
			t.Fatal(err)
		}
	}
	spawned := several(t, "LD_PRELOAD="+lib+" "+testprog.Build(t, "spawned"))
	p := testprog.Start(t, testprog.Build(t, "spawner"), spawned)
	s := attach(t, p, trace.With(kprobes.Options{Log: testprog.ButUprobes(func(string) {})}), trace.Follow(), trace.AwaitPrograms())
	named, pattern, libc := probe(t, s, "libplug.so:build", trace.Count()), probe(t, s, "libplug.so:buil?", trace.Count()), probe(t, s, "libc.so.6:_exit", trace.Count())
	before := uint64(0)
	for n := range uint64(8) {
		switch n % 4 {
		case 0:
			put()
		case 2:
			put("-falign-functions=1024")
		}
		p.Do("spawn 4", "child 8")
		exits := libc.Stats().Hits
		if a, b := named.Stats().Hits, pattern.Stats().Hits; a != n+1 || b != n+1 || exits == before {
			t.Errorf("%d programs: %d hits by name, %d by the pattern, %d of _exit", n+1, a, b, exits-before)
		}
		before = exits
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	p.CheckClean()
	p.Quit()
}
