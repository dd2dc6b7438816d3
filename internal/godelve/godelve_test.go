package godelve

import (
	"errors"
	"go/parser"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gokprobe/gokprobe/internal/helper"
	"github.com/gokprobe/gokprobe/internal/testprog"
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
	testprog.Need(t, "objcopy")
	linked, whole := filepath.Join(dir, "linked"), filepath.Join(dir, "whole")
	for _, args := range [][]string{{"go", "build", "-o", whole, filepath.Join(dir, "main.go")}, {"objcopy", "--add-gnu-debuglink=" + whole, whole, linked}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	if _, err := Load(t.Context(), linked, 1, 0); !errors.Is(err, errLink) {
		t.Error(err)
	}
	if _, err := Load(t.Context(), whole, 1, 0); !errors.Is(err, helper.ErrNoMain) {
		t.Error(err)
	}
	if _, err := Load(t.Context(), filepath.Join(dir, "main.go"), 1, 0); err == nil {
		t.Error("a text is no program")
	}
}

// TestPiecesWithoutAPlace: what is optimized away is not zero.
func TestPiecesWithoutAPlace(t *testing.T) {
	for location, want := range map[string]bool{
		"[block] DW_OP_call_frame_cfa ": false, "[0x1:0x2] DW_OP_reg0(Rax) DW_OP_piece 0x8 DW_OP_reg3(Rbx) DW_OP_piece 0x8 ": false, "[block] DW_OP_reg0(Rax) DW_OP_piece 0x8 DW_OP_piece 0x8 ": true,
		"[block] DW_OP_piece 0x8 DW_OP_fbreg 0x8 DW_OP_piece 0x8 ": true, "[block] DW_OP_piece 0x0 DW_OP_reg0(Rax) DW_OP_piece 0x8 ": false, "": false,
	} {
		if isPartial(location) != want {
			t.Errorf("%s: not %t", location, want)
		}
	}
	tree, err := parser.ParseExpr("a.b.c[d.e] + len(f)")
	if err != nil {
		t.Fatal(err)
	}
	if got := variables(tree); !maps.Equal(got, map[string]bool{"a": true, "d": true, "f": true, "len": true}) {
		t.Error(got)
	}
}

// FuzzCheck: any text is an expression or is refused.
func FuzzCheck(f *testing.F) {
	f.Add("a.b[1] << 3")
	f.Fuzz(func(_ *testing.T, expr string) { _ = Check(expr) })
}
