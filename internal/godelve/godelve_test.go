package godelve

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestNothingIsCalledAndShiftsAreSmall: what would call a function of the target's is refused before there is a target.
func TestNothingIsCalledAndShiftsAreSmall(t *testing.T) {
	for expr, want := range map[string]error{
		"a.Items[len(a.Items)-1].Price * 2": nil, "m[\"k\"]": nil, "uint8(x) + cap(y)": nil, "(*main.T)(p).x": nil, "x.(*main.T).f == nil": nil, "1 << 5": nil, "a >> b": nil, "[]byte(s)": nil,
		"f(1)": ErrCall, "a.Method()": ErrCall, "pkg.F(x) + 1": ErrCall, "func() {}()": ErrCall, "call(f)": ErrCall, "1 << n": ErrShift, "1 << 1000000000": ErrShift, "a +": ErrSyntax, "": ErrSyntax, "x = 1": ErrSyntax,
		"x > 1.5": ErrFloat, "(-0.1) == x": ErrFloat, "x > 2.0 && -1 < y": nil, "-x": ErrUnary, "^(x)": ErrUnary, "!ok": nil, "&x": nil, "^1": nil,
	} {
		if err := Check(expr); !errors.Is(err, want) {
			t.Errorf("%s: %v, not %v", expr, err, want)
		}
	}
}

// TestDelveLooksForNoOtherFile: a program without debug information may name a file that has it, which is not opened.
func TestDelveLooksForNoOtherFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte("package main\nfunc main() {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "bin")
	if out, err := exec.Command("go", "build", "-ldflags=-w", "-o", bin, filepath.Join(dir, "main.go")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if _, err := Load(t.Context(), bin, 1, 0); !errors.Is(err, errNoDebugInfo) {
		t.Error(err)
	}
	if _, err := Load(t.Context(), filepath.Join(dir, "main.go"), 1, 0); err == nil {
		t.Error("a text is no program")
	}
}

// FuzzCheck: any text is an expression or is refused.
func FuzzCheck(f *testing.F) {
	f.Add("a.b[1] << 3")
	f.Fuzz(func(_ *testing.T, expr string) { _ = Check(expr) })
}
