package realprog

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// packages names the Debian package of each program that a test may lack.
var packages = map[string]string{
	"ab": "apache2-utils", "bash": "bash", "go": "golang", "nginx": "nginx", "python3": "python3",
	"redis-server": "redis-server", "redis-cli": "redis-tools", "redis-benchmark": "redis-tools",
	"redis-check-rdb": "redis-tools", "sqlite3": "sqlite3",
	"swipl": "swi-prolog-nox", "ruby": "ruby", "sbcl": "sbcl", "java": "default-jdk-headless", "mono": "mono-runtime", "mcs": "mono-mcs",
	"haproxy": "haproxy", "mariadbd": "mariadb-server", "mariadb": "mariadb-client", "mariadb-install-db": "mariadb-server",
}

// requires returns the paths of programs, and skips the test if one is missing. The
// distribution's own come first: a script of the same name may stand before them in
// PATH.
func requires(t testing.TB, names ...string) []string {
	t.Helper()
	var paths []string
	for _, name := range names {
		path := "/usr/bin/" + name
		if _, err := os.Stat(path); err != nil {
			if path, err = exec.LookPath(name); err != nil {
				if path, err = exec.LookPath("/usr/sbin/" + name); err != nil {
					t.Skipf("%s is not installed: apt-get install %s", name, packages[name])
				}
			}
		}
		paths = append(paths, path)
	}
	return paths
}

// start runs a program that does not say "ready" itself. What it prints comes through
// the Prog; programs that print much must be sent elsewhere by their configuration.
func start(t testing.TB, dir string, args ...string) *testprog.Prog {
	t.Helper()
	script := `cd "$1" && shift && echo ready && exec "$@"`
	return testprog.StartWith(t, testprog.Options{Env: []string{"LC_ALL=C"}}, "/bin/sh",
		append([]string{"-c", script, "sh", dir}, args...)...)
}

// output runs a command that must succeed, and returns what it prints.
func output(t testing.TB, stdin string, args ...string) string {
	t.Helper()
	out, err := run(stdin, args...)
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func run(stdin string, args ...string) (string, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// hits are the probes' counts by the names they were registered under.
type hits map[string]uint64

// campaign is a live program with work that can be repeated.
type campaign struct {
	pid    int
	specs  []string        // the probes; every one must be hit
	opts   kprobes.Options // Log is set by run
	work   func(t testing.TB) string
	pre    kprobes.PreHandler         // of all probes, or nil
	counts func(t testing.TB, h hits) // checks the counts, or nil
	same   []string                   // specs that must count the same in every mode
}

type mode string

const (
	boosted mode = "boosted"
	stepped mode = "stepped"
	jumped  mode = "jumped" // by jumps to detours, where that can be
)

// run does the work unprobed, in each mode, and unprobed again.
func (c campaign) run(t *testing.T) {
	t.Helper()
	want := c.work(t)
	if want == "" {
		t.Fatal("the work has no result to compare")
	}
	before := testprog.TakeSnapshot(t, c.pid)
	counted := map[mode]hits{}
	for _, m := range []mode{boosted, stepped, jumped} {
		t.Run(string(m), func(t *testing.T) {
			counted[m] = c.probed(t, m, want)
			before.Compare(t, c.pid)
		})
	}
	for _, spec := range c.same {
		if b, s, j := counted[boosted][spec], counted[stepped][spec], counted[jumped][spec]; b != s || b != j {
			t.Errorf("%s: %d hits boosted, %d stepped, %d by jumps", spec, b, s, j)
		}
	}
	sameText(t, "after all probes", want, c.work(t))
}

// probed does the work once under the probes and returns the counts.
func (c campaign) probed(t *testing.T, m mode, want string) hits {
	t.Helper()
	opts := c.opts
	opts.NoOptimize = m != jumped
	s := attach(t, c.pid, opts)
	var kps []*kprobes.Kprobe
	for _, spec := range c.specs {
		kp := m.probe(spec)
		if c.pre != nil {
			kp.PreHandler = c.pre
		}
		kps = append(kps, kp)
	}
	if err := s.RegisterKprobes(t.Context(), kps); err != nil {
		t.Fatalf("register: %v", err)
	}
	s.WaitForOptimizer(t.Context())
	got := c.work(t)
	h := hits{}
	for _, kp := range kps {
		h[kp.SymbolName] = kp.Hits()
		if kp.Hits() == 0 {
			t.Errorf("%s was never hit", kp.SymbolName)
		}
		if st := s.Status(kp); m == stepped && st.Mechanism != kprobes.Int3 {
			t.Errorf("%s: %s with a post handler, want int3 (%s)", kp.SymbolName, st.Mechanism, st.Instruction)
		}
	}
	t.Logf("hits: %v", h)
	sameText(t, "under probes", want, got)
	if c.counts != nil {
		c.counts(t, h)
	}
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	testprog.CheckClean(t, c.pid)
	return h
}

// attach takes hold of a process until the test ends; a warning fails the test.
func attach(t testing.TB, pid int, opts kprobes.Options) *kprobes.Session {
	t.Helper()
	opts.Log = testprog.NoWarnings(t)
	s, err := kprobes.Attach(context.Background(), pid, opts)
	if err != nil {
		t.Fatalf("attach: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// probe makes a counting probe; a PostHandler forces stepping.
func (m mode) probe(spec string) *kprobes.Kprobe {
	kp := &kprobes.Kprobe{SymbolName: spec, PreHandler: func(*kprobes.Kprobe, *kprobes.Regs) int { return 0 }}
	if m == stepped {
		kp.PostHandler = func(*kprobes.Kprobe, *kprobes.Regs, uint64) {}
	}
	return kp
}

// sameText fails the test where two results differ first.
func sameText(t testing.TB, when, want, got string) {
	t.Helper()
	if want == got {
		return
	}
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range max(len(w), len(g)) {
		a, b := "(end)", "(end)"
		if i < len(w) {
			a = w[i]
		}
		if i < len(g) {
			b = g[i]
		}
		if a != b {
			t.Errorf("%s: line %d is %q, unprobed %q", when, i+1, b, a)
			return
		}
	}
}

func wantHits(t testing.TB, h hits, spec string, want uint64) {
	t.Helper()
	if h[spec] != want {
		t.Errorf("%s: %d hits, want %d", spec, h[spec], want)
	}
}
