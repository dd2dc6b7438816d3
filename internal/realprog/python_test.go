package realprog

import (
	"path/filepath"
	"testing"
)

// pythonScript runs the tests of one of python's own modules for each line it reads.
const pythonScript = `
import gc, io, sys, unittest
for line in sys.stdin:
    gc.collect()
    suite = unittest.defaultTestLoader.loadTestsFromNames(line.split())
    result = unittest.TextTestRunner(stream=io.StringIO()).run(suite)
    print("ran", result.testsRun, "failures", len(result.failures), "errors", len(result.errors),
          "skipped", len(result.skipped), flush=True)
    for test, trace in result.failures + result.errors:
        print(test, trace, file=sys.stderr)
`

// TestPython: the interpreter runs its own tests of json and re.
func TestPython(t *testing.T) {
	tools := requires(t, "python3")
	if _, err := run("", tools[0], "-c", "import test.test_json, test.test_re"); err != nil {
		t.Skip("python3 has no tests: apt-get install libpython3.11-testsuite, or that of its version")
	}
	dir := t.TempDir()
	script := filepath.Join(dir, "suite.py")
	write(t, script, pythonScript)
	prog := start(t, dir, tools[0], script)
	for _, of := range []struct {
		name, modules string
		specs, same   []string
	}{
		{"json", "test.test_json.test_encode_basestring_ascii test.test_json.test_decode test.test_json.test_float test.test_json.test_indent test.test_json.test_fail",
			[]string{"PyObject_Call", "_PyEval_EvalFrameDefault", "PyDict_SetItem", "PyUnicode_New", "libc.so.6:malloc"}, nil},
		{"re", "test.test_re.ReTests test.test_re.PatternReprTests",
			[]string{"PyObject_Call", "PyLong_FromString", "libc.so.6:calloc"}, nil},
		{"subprocesses", "test.test_json.test_tool",
			[]string{"_PyEval_EvalFrameDefault", "libc.so.6:read"}, nil},
	} {
		t.Run(of.name, func(t *testing.T) {
			prog.Do(of.modules, "ran") // imports what later runs find there
			campaign{
				pid:   prog.PID(),
				specs: of.specs,
				work:  func(t testing.TB) string { t.Helper(); return prog.Do(of.modules, "ran") },
				same:  of.same,
			}.run(t)
		})
	}
	prog.Quit()
}
