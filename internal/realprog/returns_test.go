package realprog

import (
	"debug/elf"
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/internal/testsize"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/symbols"
)

// returns follows the calls of many functions of a live program at once, while it does work
// that can be repeated.
type returns struct {
	pid    int
	specs  []string
	work   func(t testing.TB) string
	atMost int // functions that can't be followed

	counted bool // without handlers: by the target, where it can
}

// run does the work unprobed, with every call followed, and unprobed again.
func (c returns) run(t *testing.T) {
	t.Helper()
	want := c.work(t)
	before := testprog.TakeSnapshot(t, c.pid)
	s := attach(t, c.pid, kprobes.Options{})
	rps := c.register(t, s)
	sameText(t, "with calls followed", want, c.work(t))
	c.check(t, s, rps)
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	testprog.CheckClean(t, c.pid)
	before.Compare(t, c.pid)
	sameText(t, "after all", want, c.work(t))
}

// register follows all functions that can be followed.
func (c returns) register(t testing.TB, s *kprobes.Session) []*kprobes.Kretprobe {
	t.Helper()
	var rps []*kprobes.Kretprobe
	seen := map[string]bool{}
	for _, spec := range c.specs {
		found, err := s.Symbols().Resolve(t.Context(), spec)
		if errors.Is(err, symbols.ErrIFuncUnbound) {
			continue // the program has not called it
		}
		if err != nil {
			t.Fatalf("%s: %v", spec, err)
		}
		for _, loc := range found {
			if seen[loc.Addr.String()] {
				continue
			}
			seen[loc.Addr.String()] = true
			rp := &kprobes.Kretprobe{KP: kprobes.Kprobe{Addr: loc.Addr}, MaxActive: 4096}
			if !c.counted {
				rp.EntryHandler = func(*kprobes.KretprobeInstance, *kprobes.Regs) int { return 0 }
				rp.Handler = rp.EntryHandler
			}
			err := s.RegisterKretprobe(rp)
			if err != nil {
				t.Logf("%s: %v", loc.Symbol.Name, err)
				continue
			}
			rps = append(rps, rp)
		}
	}
	if n := len(seen) - len(rps); n > c.atMost {
		t.Errorf("%d of %d functions are not followed, want at most %d", n, len(seen), c.atMost)
	}
	t.Logf("%d functions are followed, %d are not", len(rps), len(seen)-len(rps))
	return rps
}

// check holds the counts to what they are defined as.
func (c returns) check(t testing.TB, s *kprobes.Session, rps []*kprobes.Kretprobe) {
	t.Helper()
	var entries, hits, missed uint64
	called := 0
	for _, rp := range rps {
		st := s.Status(&rp.KP)
		if st.Hits != st.Returns+st.ReturnsMissed+uint64(st.Active) {
			t.Errorf("%s: %d entries, but %d returns, %d missed, %d in flight", st.Symbol, st.Hits, st.Returns, st.ReturnsMissed, st.Active)
		}
		if st.ReturnsMissed > 0 || st.NMissed > 0 {
			t.Logf("%s: %d missed of %d", st.Symbol, st.ReturnsMissed, st.Hits)
		}
		entries, hits, missed = entries+st.Hits, hits+st.Returns, missed+st.ReturnsMissed
		if st.Hits > 0 {
			called++
		}
	}
	if hits == 0 {
		t.Error("no call was followed")
	}
	t.Logf("%d functions were called: %d entries, %d returns, %d missed", called, entries, hits, missed)
}

// inVDSO is how many functions of the C library may be the vdso's instead: time and
// gettimeofday.
const inVDSO = 2

// TestRedisReturns: every function of the C library that redis-server imports.
func TestRedisReturns(t *testing.T) {
	r := startRedis(t)
	returns{
		pid:   r.PID(),
		specs: imported(t, r.tools[0]),
		work:  r.work,

		atMost: inVDSO,
	}.run(t)
}

// imported lists the functions of the C library that a program is linked with.
func imported(t testing.TB, path string) []string {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range symbols {
		if s.Section == elf.SHN_UNDEF && elf.ST_TYPE(s.Info) == elf.STT_FUNC && s.Library == "libc.so.6" {
			names = append(names, "libc.so.6:"+s.Name)
		}
	}
	if len(names) < 50 {
		t.Fatalf("only %d functions of the C library: %v", len(names), names)
	}
	return names
}

// TestPythonReturns: the interpreter's own tests of json.
func TestPythonReturns(t *testing.T) {
	tools := requires(t, "python3")
	dir := t.TempDir()
	script := filepath.Join(dir, "suite.py")
	write(t, script, pythonScript)
	prog := start(t, dir, tools[0], script)
	json := "test.test_json.test_encode_basestring_ascii test.test_json.test_decode test.test_json.test_float test.test_json.test_indent test.test_json.test_fail"
	if testsize.Torture() {
		json = "test.test_json"
	}
	for _, of := range []struct {
		name, modules string
		specs         []string
	}{
		{"libc", json, append(imported(t, tools[0]), "libc.so.6:malloc", "libc.so.6:pthread_mutex_lock")},
		{"interpreter", "test.test_json.test_float test.test_json.test_indent", []string{"_PyEval_EvalFrameDefault", "PyObject_Call*", "PyUnicode_*"}},
	} {
		t.Run(of.name, func(t *testing.T) {
			prog.Do(of.modules, "ran")
			returns{
				pid:   prog.PID(),
				specs: of.specs,
				work:  func(t testing.TB) string { t.Helper(); return prog.Do(of.modules, "ran") },

				atMost: inVDSO,
			}.run(t)
		})
	}
	prog.Quit()
}

// TestGoServerReturns: every function of net/http.
func TestGoServerReturns(t *testing.T) {
	tools := requires(t, "go")
	bin := filepath.Join(t.TempDir(), "gohttp")
	output(t, "", tools[0], "build", "-o", bin, "./testdata/gohttp")
	prog := testprog.Start(t, bin)
	url := "http://" + strings.Fields(prog.Expect("listens"))[1]
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	returns{
		pid:   prog.PID(),
		specs: []string{"net/http.*"},
		work:  func(t testing.TB) string { t.Helper(); return goWork(t, prog, client, url) },
	}.run(t)
	prog.Quit()
}
