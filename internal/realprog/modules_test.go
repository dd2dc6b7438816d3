package realprog

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// moduleScript imports the module that it is told, uses ctypes to call the C library, and tells
// what has come of it.
const moduleScript = `
import importlib, importlib.machinery, sys
print("suffix", importlib.machinery.EXTENSION_SUFFIXES[0], flush=True)
for line in sys.stdin:
    verb, what = line.split()
    if verb == "import":
        importlib.import_module(what)
        print("imported", flush=True)
    else:
        import ctypes
        libc = ctypes.CDLL(None)
        print("called", sum(libc.abs(-i) for i in range(int(what))), flush=True)
print("right", flush=True)
`

// TestPythonImportsUnderProbes: probes in extension modules, and in a library that one of them
// depends on, wait for python to import them.
func TestPythonImportsUnderProbes(t *testing.T) {
	tools := requires(t, "python3")
	dir := t.TempDir()
	script := filepath.Join(dir, "modules.py")
	write(t, script, moduleScript)
	for _, m := range []mode{boosted, stepped} {
		t.Run(string(m), func(t *testing.T) {
			prog := start(t, dir, tools[0], script)
			suffix := strings.TrimPrefix(prog.Expect("suffix"), "suffix ")
			var warned []string
			s, err := kprobes.Attach(context.Background(), prog.PID(), kprobes.Options{Log: testprog.ButUprobes(func(text string) { warned = append(warned, text) })})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			decimal, ctypes, call := m.probe("_decimal"+suffix+":PyInit__decimal"), m.probe("_ctypes"+suffix+":PyInit__ctypes"), m.probe("libffi.so:ffi_call")
			malloc := m.probe("libc.so.6:malloc")
			if err := s.RegisterKprobes(t.Context(), []*kprobes.Kprobe{decimal, ctypes, call, malloc}); err != nil {
				t.Fatal(err)
			}
			if len(warned) != 3 {
				t.Errorf("the session warns %q", warned)
			}
			prog.Do("import decimal", "imported")
			if st := s.Status(call); decimal.Hits() != 1 || ctypes.Hits() != 0 || !st.Waiting {
				t.Errorf("%d and %d hits of PyInit, %+v", decimal.Hits(), ctypes.Hits(), st)
			}
			if got := prog.Do("call 1000", "called"); got != "called 499500" {
				t.Errorf("python says %q", got)
			}
			if decimal.Hits() != 1 || ctypes.Hits() != 1 || call.Hits() < 1000 || malloc.Hits() == 0 {
				t.Errorf("%d and %d hits of PyInit, %d of ffi_call, %d of malloc", decimal.Hits(), ctypes.Hits(), call.Hits(), malloc.Hits())
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			prog.CheckClean()
			if got := prog.Do("call 100", "called"); got != "called 4950" {
				t.Errorf("without probes python says %q", got)
			}
			prog.Quit()
		})
	}
}
