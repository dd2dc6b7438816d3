package realprog

import (
	"context"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// optimized probes the entries of a live program's functions, all at once, and has the target
// count the hits itself.
type optimized struct {
	pid   int
	specs []string
	work  func(t testing.TB) string
	// atLeast is the share of the probes, in thousandths, that must be optimized.
	atLeast int
}

// run does the work unprobed, with jumps at all entries, and unprobed again.
func (c optimized) run(t *testing.T) {
	t.Helper()
	want := c.work(t)
	before := testprog.TakeSnapshot(t, c.pid)
	s := attach(t, c.pid, kprobes.Options{})
	kps := c.register(t, s)
	s.WaitForOptimizer(t.Context())
	c.check(t, s, kps)
	sameText(t, "with jumps", want, c.work(t))
	var hits uint64
	for _, kp := range kps {
		hits += kp.Hits()
	}
	if hits == 0 {
		t.Error("nothing was hit")
	}
	t.Logf("%d hits", hits)
	c.check(t, s, kps)
	if err := s.UnregisterKprobes(kps); err != nil {
		t.Errorf("unregister: %v", err)
	}
	s.WaitForOptimizer(t.Context())
	sameText(t, "without jumps", want, c.work(t))
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	testprog.CheckClean(t, c.pid)
	before.Compare(t, c.pid)
	sameText(t, "after all", want, c.work(t))
}

// register probes all functions that may be probed.
func (c optimized) register(t testing.TB, s *kprobes.Session) (kps []*kprobes.Kprobe) {
	t.Helper()
	seen := map[string]bool{}
	var all []*kprobes.Kprobe
	for _, spec := range c.specs {
		found, err := s.Symbols().Resolve(t.Context(), spec)
		if err != nil {
			t.Fatalf("%s: %v", spec, err)
		}
		for _, loc := range found {
			if !seen[loc.Addr.String()] {
				seen[loc.Addr.String()] = true
				all = append(all, &kprobes.Kprobe{Addr: loc.Addr})
			}
		}
	}
	refused := registerParts(s, all, func(part []*kprobes.Kprobe) { kps = append(kps, part...) })
	t.Logf("%d functions are probed, %d are refused", len(kps), refused)
	if refused > 20+len(kps)/100 {
		t.Errorf("%d of %d are refused", refused, len(kps))
	}
	return kps
}

// registerParts registers what can be; what is refused it finds by halving.
func registerParts(s *kprobes.Session, kps []*kprobes.Kprobe, good func([]*kprobes.Kprobe)) (refused int) {
	for _, kp := range kps {
		kp.Flags = 0 // an attempt that fails disables
	}
	if s.RegisterKprobes(context.Background(), kps) == nil {
		good(kps)
		return 0
	}
	if len(kps) == 1 {
		return 1
	}
	half := len(kps) / 2
	return registerParts(s, kps[:half], good) + registerParts(s, kps[half:], good)
}

// check holds the share of jumps to what it is to be. It is not asked of files in which, beside uprobes, some were seen.
func (c optimized) check(t testing.TB, s *kprobes.Session, kps []*kprobes.Kprobe) {
	t.Helper()
	beset := map[string]bool{} // modules
	for _, kp := range kps {
		if st := s.Status(kp); testprog.NoJumpHere(st.Reason) {
			beset[st.Module] = true
		}
	}
	reasons := map[string]int{}
	n, all := 0, 0
	for _, kp := range kps {
		st := s.Status(kp)
		if st.Mechanism == kprobes.Optimized {
			n++
		} else if !beset[st.Module] {
			why, _, _ := strings.Cut(st.Reason, " at ")
			why, _, _ = strings.Cut(why, " around ")
			reasons[why]++
		}
		if st.Mechanism == kprobes.Optimized || !beset[st.Module] {
			all++
		}
	}
	t.Logf("%d of %d are optimized (%.2f %%); the others: %v", n, all, 100*float64(n)/float64(all), reasons)
	if 1000*n < c.atLeast*all {
		t.Errorf("%d of %d are optimized, want %d of 1000", n, all, c.atLeast)
	}
}

// TestOptimizedRedis: every function of the C library and of redis-server.
func TestOptimizedRedis(t *testing.T) {
	r := startRedis(t)
	optimized{pid: r.PID(), specs: []string{"libc.so.6:*", "redis-check-rdb:*"}, work: r.work, atLeast: 990}.run(t)
}

// TestOptimizedNginx: every function of the C library and of nginx's worker.
func TestOptimizedNginx(t *testing.T) {
	n := startNginx(t)
	optimized{pid: n.worker(t), specs: []string{"libc.so.6:*", "nginx:*"}, work: n.work, atLeast: 990}.run(t)
}

// TestOptimizedPython: every function of the C library and of the interpreter.
func TestOptimizedPython(t *testing.T) {
	tools := requires(t, "python3")
	dir := t.TempDir()
	script := filepath.Join(dir, "suite.py")
	write(t, script, pythonScript)
	prog := start(t, dir, tools[0], script)
	python, err := filepath.EvalSymlinks(tools[0])
	if err != nil {
		t.Fatal(err)
	}
	const json = "test.test_json.test_float test.test_json.test_indent test.test_json.test_decode"
	prog.Do(json, "ran")
	optimized{
		pid: prog.PID(), specs: []string{"libc.so.6:*", filepath.Base(python) + ":*"}, atLeast: 990,
		work: func(t testing.TB) string { t.Helper(); return prog.Do(json, "ran") },
	}.run(t)
	prog.Quit()
}

// TestOptimizedGoServer: every function of a Go program that can be probed.
func TestOptimizedGoServer(t *testing.T) {
	tools := requires(t, "go")
	bin := filepath.Join(t.TempDir(), "gohttp")
	output(t, "", tools[0], "build", "-o", bin, "./testdata/gohttp")
	prog := testprog.Start(t, bin)
	url := "http://" + strings.Fields(prog.Expect("listens"))[1]
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	optimized{
		pid: prog.PID(), specs: []string{"*"}, atLeast: 980,
		work: func(t testing.TB) string { t.Helper(); return goWork(t, prog, client, url) },
	}.run(t)
	prog.Quit()
}
