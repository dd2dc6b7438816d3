package amd64_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64"
)

// cell is the room of one instruction in the grid; what follows it are nops, so
// that a disassembler that loses step is back in step at the next cell.
const cell = 32

// grid is one instruction for every opcode of every map, with every mandatory
// prefix, and with the given ModRM bytes.
func grid(modrms []byte) []byte {
	var out []byte
	add := func(parts ...byte) {
		c := make([]byte, cell)
		for i := range c {
			c[i] = 0x90
		}
		copy(c, parts)
		out = append(out, c...)
	}
	for op := range 256 {
		for _, m := range modrms {
			for _, prefix := range [][]byte{{}, {0x66}, {0xf3}, {0xf2}, {0x48}, {0x66, 0x48}, {0x67}, {0x66, 0xf2}} {
				for _, escape := range [][]byte{{}, {0x0f}, {0x0f, 0x38}, {0x0f, 0x3a}} {
					add(append(append(append([]byte{}, prefix...), escape...), byte(op), m)...)
				}
			}
			for v := range 16 { // pp, L, W
				pp, l, w := byte(v&3), byte(v>>2&1), byte(v>>3&1)
				for mm := byte(1); mm <= 6; mm++ {
					if mm <= 3 {
						add(0xc4, 0xe0|mm, w<<7|0x78|l<<2|pp, byte(op), m)
					}
					add(0x62, 0xf0|mm, w<<7|0x7c|pp, l<<6|0x08, byte(op), m)
				}
			}
		}
	}
	return out
}

// known says why objdump takes for an instruction what Decode refuses.
func known(text, reason string) bool {
	for _, r := range []string{
		"XOP encoding", "MPX", "opcode 0xe ", "opcode 0xf ", "opcode 0xa6 ", "opcode 0xa7 ",
		"operand-size prefix means", "segment register", "lock prefix",
	} {
		if strings.Contains(reason, r) {
			return true
		}
	}
	return false
}

// compareGrid has objdump and Decode read the same cells.
func compareGrid(t *testing.T, modrms []byte) {
	requires(t, "objcopy", "objdump")
	code := grid(modrms)
	bin := filepath.Join(t.TempDir(), "grid.bin")
	if err := os.WriteFile(bin, code, 0o644); err != nil {
		t.Fatal(err)
	}
	obj := bin + ".o"
	run(t, "objcopy", "-I", "binary", "-O", "elf64-x86-64", "-B", "i386:x86-64", "--rename-section", ".data=.text,alloc,load,readonly,code,contents", bin, obj)
	refused, extra := map[string]int{}, map[string]int{}
	same := 0
	objdump(t, obj, func(l line) {
		if l.addr%cell != 0 {
			return
		}
		i, err := amd64.Arch{}.Decode(code[l.addr:], l.addr)
		bad := alone.MatchString(l.text)
		mnemonic, _, _ := strings.Cut(l.text, " ")
		switch {
		case err != nil && !bad && !known(l.text, err.Error()):
			refused[mnemonic]++
			if refused[mnemonic] == 1 {
				t.Logf("refused % x  %s: %v", l.bytes, l.text, err)
			}
		case err != nil:
		case bad:
			extra[amd64.Arch{}.Disassemble(i)]++
		case l.bytes[0] == 0x9b:
		default:
			same++
			if i.Len() != len(l.bytes) {
				t.Errorf("% x  %s, Decode says %d bytes", l.bytes, l.text, i.Len())
			} else if err := compareAddresses(i, l); err != nil {
				t.Error(err)
			}
		}
	})
	t.Logf("%d cells, %d alike", len(code)/cell, same)
	report := func(what string, m map[string]int) {
		var keys []string
		for k := range m {
			keys = append(keys, k)
		}
		sort.Strings(keys)
		for _, k := range keys {
			t.Logf("%s: %s %d", what, k, m[k])
		}
	}
	report("refused", refused)
	report("extra", extra)
}

// run runs a tool that must succeed.
func run(t testing.TB, name string, args ...string) []byte {
	t.Helper()
	requires(t, name)
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return out
}

func TestEveryOpcodeOfEveryMapIsAsLongAsObjdumpSays(t *testing.T) {
	modrms := []byte{0x00, 0x05, 0x44, 0x9c, 0xca}
	compareGrid(t, modrms)
	_ = arch.Addr(0)
}
