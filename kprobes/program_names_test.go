package kprobes_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// TestRecordsHaveTheNamesOfTheirTime: a thread that names itself and ends at once has its records by that name, and a program that is executed
// its own name from its first record, while those of the program before keep the old one.
func TestRecordsHaveTheNamesOfTheirTime(t *testing.T) {
	bin := testprog.Build(t, "names")
	other := filepath.Join(t.TempDir(), "other")
	code, err := os.ReadFile(bin)
	if err == nil {
		err = os.WriteFile(other, code, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, stops := range []bool{false, true} {
		t.Run(map[bool]string{false: "in the target", true: "by stops"}[stops], func(t *testing.T) {
			prog := start(t, "names", other)
			s := attach(t, prog.PID(), kprobes.Options{Follow: true, NoOptimize: stops})
			names := map[uint64]map[string]int{}
			kp := recording(t, "foo", func(_ *kprobes.Kprobe, r *kprobes.HitRecord) {
				arg := binary.LittleEndian.Uint64(r.Payload[16:])
				if names[arg] == nil {
					names[arg] = map[string]int{}
				}
				if _, err := os.Stat(fmt.Sprintf("/proc/%d/task/%d", r.PID, r.TID)); arg == 2 && (stops || err == nil) {
					return // of a thread that goes on the name may be a moment old
				}
				if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", r.PID)); arg != 4 && err == nil && exe == other {
					return // during an exec the kernel tells the new name before it tells of the exec
				}
				names[arg][r.Comm]++
			})
			register(t, s, kp)
			s.WaitForOptimizer(t.Context())
			prog.Do("call", "did")
			s.FlushRecords() // its name was read
			prog.Do("call", "did")
			prog.Do("exec", "did")
			prog.Do("vfork", "did")
			prog.Do("rename", "did")
			closeSession(t, s)
			for arg, want := range map[uint64]string{1: "names", 2: "renamed", 3: "names", 4: "other", 5: "names"} {
				if n := names[arg]; len(n) > 1 || n[want] == 0 && (arg != 2 && arg != 3 && arg != 5 || len(n) > 0) {
					t.Errorf("foo(%d) was called by %v, want %s", arg, n, want)
				}
			}
			prog.CheckClean()
			wantRight(t, prog)
		})
	}
}
