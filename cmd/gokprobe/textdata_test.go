package main

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/internal/testsize"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/symbols"
)

// dataMap is where the fixture textdata says that its data is.
func dataMap(t *testing.T, bin string) []arch.Range {
	t.Helper()
	f, err := elf.Open(bin)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := f.Section("datamap")
	b, err := s.Data()
	if err != nil {
		t.Fatal(err)
	}
	var all []arch.Range
	for i := 0; i < len(b); i += 8 {
		at := func(i int) arch.Addr {
			return arch.Addr(s.Addr).Add(int64(i) + int64(int32(binary.LittleEndian.Uint32(b[i:]))))
		}
		all = append(all, arch.Range{Start: at(i), End: at(i + 4)})
	}
	if len(all) < 10 {
		t.Fatalf("the map is %v", all)
	}
	return all
}

// fills tells what nobody executes, or has to stay, as objdump calls it.
func fills(insn string) bool {
	op, _, _ := strings.Cut(insn, "%")
	return strings.Contains(op, "nop") || strings.HasPrefix(insn, "int3") || insn == "xchg   %ax,%ax" || strings.HasPrefix(insn, "endbr64")
}

// disassembled are the addresses of the instructions from start to end, as objdump sees them: true where it is no filler.
func disassembled(t *testing.T, bin string, r arch.Range) map[arch.Addr]bool {
	t.Helper()
	args := []string{"-d", "-w", "--no-show-raw-insn", bin}
	if r.Len() > 0 {
		args = append(args, fmt.Sprintf("--start-address=%d", r.Start), fmt.Sprintf("--stop-address=%d", r.End))
	}
	out, err := exec.Command("objdump", args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	all := map[arch.Addr]bool{}
	for line := range strings.Lines(string(out)) {
		at, text, ok := strings.Cut(strings.TrimSpace(line), ":\t")
		if n, err := strconv.ParseUint(at, 16, 64); ok && err == nil {
			all[arch.Addr(n)] = !fills(text)
		}
	}
	return all
}

// lookedAt is the judgement of package kprobes on the functions in a file: for each place nil, or why it is no
// instruction of its function.
func lookedAt(t *testing.T, bin string, f func(fn arch.Range, name string, places map[arch.Addr]error)) {
	t.Helper()
	table, err := symbols.OpenFile(bin)
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	code, seen := kprobes.NewCode(table, table.FileMemory()), map[arch.Addr]bool{}
	for _, s := range table.Symbols("") {
		r, known := table.Function(s.Addr)
		if !s.Func || s.IFunc || !known || r.Start != s.Addr || seen[s.Addr] {
			continue
		}
		seen[s.Addr] = true
		places := map[arch.Addr]error{}
		if err := code.EachInsn(r, func(i arch.Insn, why error) { places[i.Addr] = why }); err != nil {
			t.Errorf("%s: %v", s.Name, err)
		}
		f(r, s.Name, places)
	}
}

func TestDataInAFunctionIsLeftAlone(t *testing.T) {
	bin := testprog.Build(t, "textdata")
	data := dataMap(t, bin)
	functions := 0
	lookedAt(t, bin, func(fn arch.Range, name string, places map[arch.Addr]error) {
		if !strings.HasPrefix(name, "f_") {
			return
		}
		functions++
		at := fn.Start
		for _, d := range append(data, arch.Range{Start: fn.End, End: fn.End}) {
			if d.Start < fn.Start || d.Start > fn.End {
				continue
			}
			for a := d.Start; a < d.End; a++ {
				if why, ok := places[a]; ok && why == nil {
					t.Errorf("%s+%#x is data", name, a-fn.Start)
				}
			}
			if d.Start > at && name != "f_konst" { // with an end that nobody reaches
				for a, real := range disassembled(t, bin, arch.Range{Start: at, End: d.Start}) {
					if why, ok := places[a]; real && (!ok || why != nil) {
						t.Errorf("%s+%#x is code: %v", name, a-fn.Start, why)
					}
				}
			}
			at = d.End
		}
	})
	if functions < 13 {
		t.Errorf("%d functions", functions)
	}
}

func TestAProgramWithEveryInstructionProbedReadsItsDataUnchanged(t *testing.T) {
	for _, flags := range [][]string{{}, {"-no-optimize"}} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			p := testprog.Start(t, testprog.Build(t, "textdata"))
			p.Do("sum", "sum 172 wrong 0")
			before := testprog.TakeSnapshot(t, p.PID())
			args := append([]string{"-count", "-all-rows"}, flags...)
			for _, f := range []string{"ret", "jmp", "str", "exit", "gone", "table", "goto", "opaque", "lea", "konst", "nops", "cold", "switch"} {
				args = append(args, "-sym", "f_"+f+"+*")
			}
			l := attachTo(t, p, args...)
			for range 3 {
				if got := p.Do("sum", "sum"); got != "sum 172 wrong 0" {
					t.Error(got)
				}
			}
			r := l.interrupt()
			if !strings.Contains(r.stderr, kprobes.ErrUnreached.Error()) {
				t.Errorf("stderr is %q", r.stderr)
			}
			found := false
			for line := range strings.Lines(r.stdout) {
				if m := strings.Fields(line); len(m) > 2 && m[2] == "f_ret+0x0" {
					found = m[0] != "0"
				}
			}
			if !found {
				t.Errorf("no hits of f_ret: %q", r.stdout)
			}
			before.Compare(t, p.PID())
			p.CheckClean()
			p.Quit()
		})
	}
}

// TestAllThatCompilersMakeIsCode: switches, cold parts, landing pads. GCC puts no data into text.
func TestAllThatCompilersMakeIsCode(t *testing.T) {
	for _, tt := range []struct {
		name  string
		flags []string
	}{{"throws", nil}, {"cxx", []string{"-O2"}}, {"textdata", []string{"-O2"}}, {"textdata", []string{"-O0", "-no-pie"}}, {"sysfails", []string{"-Os"}}} {
		bin := testprog.Build(t, tt.name, tt.flags...)
		real := disassembled(t, bin, arch.Range{})
		n := 0
		lookedAt(t, bin, func(fn arch.Range, name string, places map[arch.Addr]error) {
			if strings.HasPrefix(name, "f_") && name != "f_switch" {
				return
			}
			for a, why := range places {
				if why != nil && real[a] && !startUp(name) {
					t.Errorf("%s %v: %s+%#x: %v", tt.name, tt.flags, name, a-fn.Start, why)
				}
				if _, begins := real[a]; !begins {
					t.Errorf("%s %v: objdump sees no instruction at %s+%#x", tt.name, tt.flags, name, a-fn.Start)
				}
				n++
			}
		})
		if n < 100 {
			t.Errorf("%s: %d instructions", tt.name, n)
		}
	}
}

// startUp names the C library's start-up code, which has instructions that nobody comes to.
func startUp(name string) bool {
	return name == "deregister_tm_clones" || name == "register_tm_clones"
}

// TestOfALibraryWithAssemblyHardlyAnythingIsLeft looks at the C library's own code: what is believed to be code is what objdump shows,
// and nearly all is.
func TestOfALibraryWithAssemblyHardlyAnythingIsLeft(t *testing.T) {
	libs := []string{"libc.so.6"}
	if testsize.Torture() {
		libs = append(libs, "libstdc++.so.6")
	}
	for _, lib := range libs {
		out, err := exec.Command("gcc", "-print-file-name="+lib).Output()
		if err != nil {
			t.Fatal(err)
		}
		bin := strings.TrimSpace(string(out))
		real := disassembled(t, bin, arch.Range{})
		code, left := 0, 0
		lookedAt(t, bin, func(fn arch.Range, name string, places map[arch.Addr]error) {
			for a, why := range places {
				if _, begins := real[a]; why == nil && !begins {
					t.Errorf("%s+%#x: objdump sees no instruction", name, a-fn.Start)
				}
				if why == nil {
					code++
				} else {
					left++
				}
			}
		})
		if t.Logf("%s: %d, %d left", lib, code, left); code < 50000 || left > code/100 {
			t.Error("too much is left")
		}
	}
}
