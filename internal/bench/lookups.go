package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/gokprobe/gokprobe/symbols"
)

// lookups measures one name in a large program, with nothing cached in the tracer.
func lookups(dir, _ string, kept io.Writer) error {
	programs := []struct{ what, name, symbol string }{
		{"the Go compiler", "compile", "cmd/compile/internal/ssa.Compile"},
		{"100,000 C++ functions, -g", "large", "ns::func_99999"},
	}
	builders := []func(string) error{
		func(bin string) error { return command("go", "build", "-o", bin, "cmd/compile") },
		buildLarge,
	}
	fmt.Printf("One name in a large program (median of %d)\n", rounds)
	w := table()
	fmt.Fprintln(w, "program\tsize\topen and resolve\tspread")
	for i, p := range programs {
		bin := filepath.Join(dir, p.name)
		if err := builders[i](bin); err != nil {
			return fmt.Errorf("building %s: %w", p.what, err)
		}
		var s series
		for range rounds {
			start := time.Now()
			if err := resolve(bin, p.symbol); err != nil {
				return err
			}
			s = append(s, time.Since(start))
		}
		if err := s.keep(kept, "Lookup/program="+p.name); err != nil {
			return err
		}
		size := int64(0)
		if fi, err := os.Stat(bin); err == nil {
			size = fi.Size()
		}
		fmt.Fprintf(w, "%s\t%d MB\t%s\t%s\n", p.what, size>>20, show(s.median()), s.spread())
	}
	return w.Flush()
}

func resolve(bin, symbol string) error {
	t, err := symbols.OpenFile(bin)
	if err != nil {
		return err
	}
	defer t.Close()
	_, err = t.Resolve(context.Background(), symbol)
	return err
}

func command(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}

// buildLarge makes a program of many functions; as many small files, since a compiler
// takes more than proportionally long for a large one.
func buildLarge(bin string) error {
	const files, functions = 20, 5000
	args := []string{"-g", "-O0", "-o", bin}
	for f := range files {
		src := fmt.Sprintf("%s-%d.cc", bin, f)
		out, err := os.Create(src)
		if err != nil {
			return err
		}
		fmt.Fprintln(out, "namespace ns {")
		for i := range functions {
			n := f*functions + i
			fmt.Fprintf(out, "struct s_%d { int a; long b; char c[%d]; };\nint func_%d(s_%d *p, int x) { return p->a + x; }\n", n, n%50+1, n, n)
		}
		fmt.Fprintln(out, "}")
		if f == 0 {
			fmt.Fprintln(out, "int main() { return 0; }")
		}
		if err := out.Close(); err != nil {
			return err
		}
		args = append(args, src)
	}
	return command("g++", args...)
}
