package symbols

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The cost of one name with nothing cached, in the Go compiler: a Go program of
// some 25 MB, DWARF included.
func BenchmarkResolveInALargeGoProgram(b *testing.B) {
	prog := filepath.Join(b.TempDir(), "compile")
	run(b, "go", "build", "-o", prog, "cmd/compile")
	benchmarkResolve(b, prog, "cmd/compile/internal/ssa.Compile")
}

func BenchmarkResolveInALargeStrippedGoProgram(b *testing.B) {
	prog := filepath.Join(b.TempDir(), "compile")
	run(b, "go", "build", "-ldflags=-s -w", "-o", prog, "cmd/compile")
	benchmarkResolve(b, prog, "cmd/compile/internal/ssa.Compile")
}

// The same in 50,000 C++ functions with debug information, by mangled and
// demangled name.
func BenchmarkResolveInALargeProgram(b *testing.B) {
	prog := large(b, 50000)
	for _, name := range []string{"_ZN2ns10func_49999Ei", "ns::func_49999", "ns::func_49999(int)"} {
		b.Run(name, func(b *testing.B) { benchmarkResolve(b, prog, name) })
	}
}

func BenchmarkLookup(b *testing.B) {
	tab := file(b, large(b, 50000))
	a := one(b, tab, "ns::func_30000").Addr + 1
	for b.Loop() {
		tab.Lookup(a)
	}
}

func BenchmarkParamsInALargeProgram(b *testing.B) {
	prog := large(b, 50000)
	for b.Loop() {
		tab := file(b, prog)
		if _, err := tab.Params(one(b, tab, "ns::func_49999").Addr); err != nil {
			b.Fatal(err)
		}
		tab.Close()
	}
}

func BenchmarkLineInALargeProgram(b *testing.B) {
	prog := large(b, 50000)
	for b.Loop() {
		tab := file(b, prog)
		one(b, tab, "unit7.cc:1000")
		tab.Close()
	}
}

func benchmarkResolve(b *testing.B, prog, name string) {
	for b.Loop() {
		tab := file(b, prog)
		one(b, tab, name)
		tab.Close()
	}
}

// large builds a program of n functions in several units.
func large(b *testing.B, n int) string {
	dir := b.TempDir()
	const units = 10
	args := []string{"-g", "-O0", "-shared", "-fPIC", "-o", filepath.Join(dir, "large.so")}
	for u := range units {
		var src strings.Builder
		src.WriteString("namespace ns {\n")
		for i := u * n / units; i < (u+1)*n/units; i++ {
			fmt.Fprintf(&src, "int func_%d(int x) { return x + %d; }\n", i, i)
		}
		src.WriteString("}\n")
		name := filepath.Join(dir, fmt.Sprintf("unit%d.cc", u))
		if err := os.WriteFile(name, []byte(src.String()), 0o644); err != nil {
			b.Fatal(err)
		}
		args = append(args, name)
	}
	run(b, "g++", args...)
	return filepath.Join(dir, "large.so")
}
