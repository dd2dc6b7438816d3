package realprog

import (
	"bufio"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// TestEveryInstructionOfHotFunctions: probes on all instructions of functions that a
// program calls all the time. Each byte of a function is offered; what is accepted
// must be where objdump sees an instruction.
func TestEveryInstructionOfHotFunctions(t *testing.T) {
	tools := requires(t, "sqlite3")
	dir := t.TempDir()
	prog := start(t, dir, tools[0], "-batch")
	work := func(t testing.TB) string {
		t.Helper()
		prog.Send(`CREATE TEMP TABLE w AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40)
			SELECT i, hex(i * 7919 || 'x') AS h, substr('abcdefghijklmnopqrstuvwxyz', i % 20, i) AS s FROM n;`)
		prog.Send(`SELECT 'result', group_concat(h), group_concat(s), count(*), sum(length(s)) FROM (SELECT * FROM w ORDER BY s, h);`)
		got := prog.Expect("result")
		prog.Do("DROP TABLE w; SELECT 'gone';", "gone")
		return got
	}
	want := work(t)
	before := testprog.TakeSnapshot(t, prog.PID())
	for _, function := range []string{"libc.so.6:memcpy", "libc.so.6:strlen", "libc.so.6:memcmp", "libc.so.6:malloc", "libc.so.6:free"} {
		for _, m := range []mode{boosted, stepped} {
			t.Run(fmt.Sprintf("%s/%s", function, m), func(t *testing.T) {
				s := attach(t, prog.PID(), kprobes.Options{NoOptimize: true})
				kps := everyInstruction(t, s, m, function)
				sameText(t, "under probes", want, work(t))
				hit := 0
				for _, kp := range kps {
					if kp.Hits() > 0 {
						hit++
					}
				}
				t.Logf("%d probes, %d of them hit", len(kps), hit)
				if hit == 0 {
					t.Error("no instruction was hit")
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				before.Compare(t, prog.PID())
			})
		}
	}
	sameText(t, "after all probes", want, work(t))
	prog.Quit()
}

// everyInstruction registers a probe at each byte of a function where one is allowed,
// and compares the places with objdump's.
func everyInstruction(t *testing.T, s *kprobes.Session, m mode, function string) []*kprobes.Kprobe {
	t.Helper()
	locs, err := s.Symbols().Resolve(t.Context(), function)
	if err != nil || len(locs) != 1 {
		t.Fatalf("%s: %v, %v", function, locs, err)
	}
	body, known := s.Symbols().Function(locs[0].Addr)
	if !known {
		t.Fatalf("%s: bounds unknown", function)
	}
	module := locs[0].Symbol.Module
	insns := objdumpStarts(t, module.Path, uint64(body.Start)-module.Bias, uint64(body.End)-module.Bias)
	var kps []*kprobes.Kprobe
	for at := body.Start; at < body.End; at++ {
		kp := m.probe("")
		kp.Addr = at
		err := s.RegisterKprobe(kp)
		insn, starts := insns[uint64(at)-module.Bias]
		switch {
		case err == nil && !starts:
			t.Errorf("a probe was placed at %s, where objdump sees no instruction start", at)
		case err == nil:
			kps = append(kps, kp)
		case starts && !errors.Is(err, kprobes.ErrException) && !errors.Is(err, kprobes.ErrUnsupported):
			t.Errorf("no probe at %s: %s: %v", at, insn, err)
		}
	}
	return kps
}

var objdumpLine = regexp.MustCompile(`^\s*([0-9a-f]+):\t(.*)$`)

// objdumpStarts are the instructions of a part of a file by address.
func objdumpStarts(t testing.TB, path string, from, to uint64) map[uint64]string {
	t.Helper()
	out, err := exec.Command("objdump", "-d", "--no-show-raw-insn", fmt.Sprintf("--start-address=%#x", from), fmt.Sprintf("--stop-address=%#x", to), path).Output()
	if err != nil {
		t.Skipf("objdump: %v: apt-get install binutils", err)
	}
	insns := map[uint64]string{}
	for lines := bufio.NewScanner(strings.NewReader(string(out))); lines.Scan(); {
		if m := objdumpLine.FindStringSubmatch(lines.Text()); m != nil {
			var at uint64
			if _, err := fmt.Sscanf(m[1], "%x", &at); err == nil {
				insns[at] = m[2]
			}
		}
	}
	return insns
}
