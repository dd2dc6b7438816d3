package script

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.starlark.net/lib/json"
	"go.starlark.net/starlark"
	"go.starlark.net/starlarktest"
	"go.starlark.net/syntax"
)

// hostile are programs without an end, or without a bound of memory.
var hostile = []string{
	"while True: pass",
	"for i in range(1 << 60): pass",
	"x = 'x' * 1000000000",
	"x = [0] * 100000000",
	"x = (0,) * 100000000",
	"x = b'x' * 1000000000",
	"x = 'ab'\nwhile True: x = x + x",
	"x = 'ab'\nwhile True: x += x",
	"x = [1]\nwhile True: x += x",
	"x = [1]\nwhile True: x.extend(x)",
	"x = [1]\nwhile True: x = x + x",
	"x = [[1]]\nwhile True: x[0] += x[0]",
	"state.s = 'ab'\nwhile True: state.s *= 2",
	"state.s = 'ab'\nwhile True: state['s'] += state.s",
	"x = 3\nwhile True: x *= x",
	"x = 3\nwhile True: x = x * x",
	"list(range(1 << 40))",
	"tuple(range(1 << 40))",
	"set(range(1 << 40))",
	"sorted(range(1 << 40))",
	"max(range(1 << 60))",
	"any([0] * 10 + [0 for x in range(1 << 40)])",
	"all(range(1, 1 << 60))",
	"enumerate(range(1 << 40))",
	"zip(range(1 << 40), range(1 << 40))",
	"reversed(range(1 << 40))",
	"dict(zip(range(1 << 40), range(1 << 40)))",
	"def f(*a): pass\nf(*range(1 << 40))",
	"def f(*a): pass\nf(*list(range(1 << 40)))",
	"[].extend(range(1 << 40))",
	"x = []\nx += range(1 << 40)",
	"'-'.join(['a' * 100000] * 100000)",
	"('-' * 1000000).join(['a'] * 1000000)",
	"s = 'aaaaaaaa' * 100000\nwhile True: s = s.replace('a', s)",
	"s = 'a'\nwhile True: s = ('{0}' * 10000).format(s)",
	"s = 'a'\nwhile True: s = '%s%s%s' % (s, s, s)",
	"a = []\nfor i in range(60): a = [a, a]\nprint(a)",
	"a = []\nfor i in range(60): a = [a, a]\nstr(a)",
	"a = []\nfor i in range(60): a = [a, a]\n'%s' % a",
	"a = []\nfor i in range(60): a = [a, a]\n'%r' % [a]",
	"a = []\nfor i in range(60): a = [a, a]\njson.encode(a)",
	"a = []\nfor i in range(60): a = {'x': a, 'y': a}\nrepr(a)",
	"a = []\nfor i in range(60): a = [a, a]\nreport(a)",
	"a = []\nfor i in range(60): a = [a, a]\nreport(x = a)",
	"a = []\nfor i in range(60): a = [a, a]\nexpect(False, str(a))",
	"getattr('-' * 1000000, 'join')(['a'] * 1000000)",
	"s = 'ab' * 100000\nwhile True: s.upper()",
	"s = 'ab' * 100000\nwhile True: s.count('c')",
	"x = [1] * 100000\nwhile True: x[:]",
	"x = [1] * 100000\nwhile True: 2 in x",
	"x = [1] * 100000\nwhile True: x.index(1)",
	"x = list(range(100000))\nwhile True: x == list(x)",
	"[x for x in range(1 << 60)]",
	"{x: x for x in range(1 << 60)}",
	"t = (1,)\nfor i in range(60): t = (t, t)\nd = {}\nd[t] = 1",
	"t = (1,)\nfor i in range(60): t = (t, t)\nd = {}\nd[t]",
	"t = (1,)\nfor i in range(60): t = (t, t)\nd = {t: 1}",
	"t = (1,)\nfor i in range(60): t = (t, t)\n{x: 1 for x in [t]}",
	"t = (1,)\nfor i in range(60): t = (t, t)\nt in {}",
	"t = (1,)\nfor i in range(60): t = (t, t)\nt in (t, t)",
	"t = (1,)\nfor i in range(60): t = (t, t)\n{}.get(t)",
	"t = (1,)\nfor i in range(60): t = (t, t)\n{}.update([(t, 1)])",
	"t = (1,)\nfor i in range(60): t = (t, t)\nset().add(t)",
	"t = (1,)\nfor i in range(60): t = (t, t)\nset().union([t])",
	"t = (1,)\nfor i in range(60): t = (t, t)\nset([t])",
	"t = (1,)\nfor i in range(60): t = (t, t)\nhash(t)",
	"t = (1,)\nfor i in range(60): t = (t, t)\nstate[t] = 1",
	"t = (1,)\nfor i in range(60): t = (t, t)\nstate.get(t)",
	"t = (1,)\nfor i in range(60): t = (t, t)\nd = {}\nfor d[t] in [1]: pass",
	"t = (1,)\nfor i in range(60): t = (t, t)\nd = {}\n[1 for d[t] in [1]]",
	"t = (1,)\nfor i in range(60): t = (t, t)\nfor i in range(600): t = (t,)\nd = {t: 1}",
	"s = struct(a = 1)\nt = (s, s)\nfor i in range(60): t = (t, t)\nd = {}\nd[t] = 1",
	"t = (1,)\nfor i in range(600): t = (t,)\nstr(t)",
	"def f(): \n  while True: pass\nsorted([1, 2], key = lambda x: f())",
}

// TestNoFunctionIsWithoutAnEnd: what does not end is cut off, early enough for memory; so
// little memory is allowed that anything larger ends the test.
func TestNoFunctionIsWithoutAnEnd(t *testing.T) {
	for _, src := range hostile {
		_, _, e := loaded(t, src, func(o *Options) { o.Steps = 200_000 })
		if e == nil || !strings.Contains(e.Message, "cut off") && !strings.Contains(e.Message, "too large") {
			t.Errorf("%s\nends with %v", src, e)
			continue
		}
		if e.Line == 0 || e.Source == "" {
			t.Errorf("%s\nis not told where: %v", src, e)
		}
	}
}

// TestGuardedProgramsDoTheSame runs Starlark's own tests with guards and without.
func TestGuardedProgramsDoTheSame(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "go.starlark.net").Output()
	if err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "starlark/testdata/*.star"))
	if len(files) < 10 {
		t.Fatalf("Starlark has %d tests in %s", len(files), out)
	}
	chunks := 0
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, chunk := range strings.Split(string(src), "\n---\n") {
			plain := outcome(t, file, chunk, false)
			if guarded := outcome(t, file, chunk, true); guarded != plain {
				t.Errorf("%s, chunk %d:\nplain:   %s\nguarded: %s", filepath.Base(file), i, plain, guarded)
			}
			chunks++
		}
	}
	if chunks < 50 {
		t.Errorf("only %d chunks were run", chunks)
	}
}

// reports collects what an assert module tells.
type reports struct{ texts []string }

func (r *reports) Error(args ...any) {
	for _, a := range args {
		if e, ok := a.(error); ok {
			a = e.Error()
		}
		r.texts = append(r.texts, strings.TrimSpace(lastLine(a)))
	}
}

func lastLine(v any) string {
	text, _ := v.(string)
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// outcome is how a program has ended, and what it asserted in vain.
func outcome(t *testing.T, file, src string, guards bool) string {
	t.Helper()
	opts := &syntax.FileOptions{Set: true, While: true, TopLevelControl: true, GlobalReassign: true, Recursion: strings.Contains(src, "option:recursion")}
	f, err := opts.Parse(file, src, 0)
	if err != nil {
		return "parse: " + err.Error()
	}
	s := &Script{o: Options{Steps: 1 << 62}, file: file, source: sources{}}
	globals := starlark.StringDict{"json": json.Module}
	if guards {
		if err := instrument(f); err != nil {
			return "instrument: " + err.Error()
		}
		s.guards(globals)
	}
	prog, err := starlark.FileProgram(f, globals.Has)
	if err != nil {
		return "resolve: " + err.Error()
	}
	var told reports
	err = s.run(nil, "", 1<<62, func(thread *starlark.Thread) error {
		starlarktest.SetReporter(thread, &told)
		thread.Load = func(*starlark.Thread, string) (starlark.StringDict, error) { return starlarktest.LoadAssertModule() }
		_, err := prog.Init(thread, globals)
		return err
	})
	text := strings.Join(told.texts, "\n")
	if err != nil {
		text += "\nend: " + err.Error()
	}
	return text
}

func FuzzLoad(f *testing.F) {
	for _, src := range hostile {
		f.Add(src)
	}
	for _, src := range mistakes {
		f.Add(outdent(src.src))
	}
	f.Add("x, (y, z[0]) = 1, [2, 3]\nx.y *= f(**{'a': 1})\nload('a.star', 'b')")
	session := newStand(f)
	f.Fuzz(func(t *testing.T, src string) {
		o := new(said).options()
		o.Session, o.Steps = session, 1000
		sc, err := load("fuzz.star", []byte(src), o)
		if err != nil {
			_ = err.Error()
			return
		}
		if err := sc.Arm(); err == nil {
			_ = sc.Finish(Ending{})
		}
	})
}
