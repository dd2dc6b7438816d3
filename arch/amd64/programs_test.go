package amd64_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testsize"
)

// listed tells that a refusal, with objdump's text and Decode's reason, is one on
// which objdump is more tolerant than the processor, or one that has a name.
func listed(refusal string) bool { return refusals.MatchString(refusal) }

// refusals are the reasons for which Decode may refuse what objdump prints. In the
// programs below they occur in real code only as XOP, in functions that no processor
// in use runs; the others are data that lies in .text.
var refusals = regexp.MustCompile(strings.Join([]string{
	`XOP encoding`,                      // APM vol. 3 §1.2.7: removed
	`operand-size prefix means`,         // jmp, jcc or call with 66: its length depends on the processor
	`lock prefix on an instruction`,     // SDM vol. 2A LOCK: #UD
	`no such (segment|control) reg`,     // SDM vol. 2B MOV: #UD
	`after an operand-size, repeat, lo`, // SDM vol. 2A §2.3.2: #UD
	`frstpm\(287 only\)`,                // #UD since the 80387
}, "|"))

// cgoProgram uses the parts of the standard library that have C in them.
const cgoProgram = `package main

/*
#cgo LDFLAGS: -lm
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int order(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
static double work(int *v, int n) {
	double sum = 0;
	qsort(v, n, sizeof *v, order);
	for (int i = 0; i < n; i++) sum += sqrt(v[i]) * pow(v[i], 1.5);
	return sum;
}
*/
import "C"

import (
	"fmt"
	"net"
	"os/user"
)

func main() {
	v := []C.int{3, 1, 2}
	fmt.Println(C.work(&v[0], 3))
	fmt.Println(net.LookupHost("localhost"))
	fmt.Println(user.Current())
}
`

// buildCgo builds a program of Go and C, linked against libc.
func buildCgo(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"go.mod": "module cgoprogram\n\ngo 1.26\n", "main.go": cgoProgram} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", "program", ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return filepath.Join(dir, "program")
}

// output is what a tool prints, without the final newline.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	return strings.TrimSpace(string(run(t, name, args...)))
}

func TestEveryInstructionOfLargeProgramsIsAsLongAsObjdumpSays(t *testing.T) {
	requires(t, "objdump", "go", "gcc")
	const lib = "/lib/x86_64-linux-gnu/"
	list := map[string][]string{
		"libc": {lib + "libc.so.6"}, "libm": {lib + "libm.so.6"}, "libcrypto": {lib + "libcrypto.so.3"}, "libstdc++": {lib + "libstdc++.so.6"},
		"python3": {"/usr/bin/python3"}, "gdb": {"/usr/bin/gdb"}, "go": {output(t, "go", "tool", "-n", "compile")}, "cgo": {buildCgo(t)},
	}
	if testsize.Torture() {
		list["more"] = []string{lib + "*.so*", "/usr/bin/*", filepath.Join(output(t, "go", "env", "GOROOT"), "bin/*")}
	}
	for name, patterns := range list {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := programs(files(patterns...))
			if len(found) == 0 && os.Getenv("CI") != "" {
				t.Errorf("%q: no such program", patterns)
			}
			for _, f := range found {
				compareFile(t, f)
			}
		})
	}
}

// programs are those of the files that are 64-bit x86 programs or libraries with
// a .text section.
func programs(list []string) (out []string) {
	for _, f := range list {
		if isProgram(f) {
			out = append(out, f)
		}
	}
	return out
}
