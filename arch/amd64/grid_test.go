package amd64_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/arch/amd64"
)

// cell is the room of one instruction in the grid; what follows it are nops, so
// that a disassembler that loses step is back in step at the next cell.
const cell = 16

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

// unsupported matches what objdump takes for an instruction and Decode refuses
// on purpose: the reason, or objdump's text (SSE4a, undocumented twins of test
// and shl, prefixes that objdump itself sets apart as idle).
var unsupported = regexp.MustCompile(`XOP encoding|\(MPX\)|opcode 0x(e|f|a6|a7) |operand-size prefix means|no such segment register|lock prefix` +
	`|^(extrq|insertq|test[bwlq]?|shl[bwlq]?) |^(data16|repn?z|rex\.W|addr32) `)

// gridTally counts how the cells compare.
type gridTally struct {
	same, extra, refused int
}

func (g *gridTally) compare(t *testing.T, l line, code []byte) {
	i, err := amd64.Arch{}.Decode(code, l.addr)
	vector := code[0] == 0xc4 || code[0] == 0x62
	switch {
	case noInsn(l.text):
		if err == nil {
			g.extra++ // newer than objdump, or a prefix that objdump finds odd
		}
	case err == nil && i.Bytes[i.Len()-1] == 0x9b && len(l.bytes) > i.Len(): // fwait, joined with what follows
	case err == nil && i.Len() != len(l.bytes):
		t.Errorf("% x  %s, Decode says %d bytes", l.bytes, l.text, i.Len())
	case err == nil:
		g.same++
		if err := compareAddresses(i, l); err != nil {
			t.Error(err)
		}
	case vector: // x86asm is strict about W and L bits that the processor ignores
		g.refused++
	case !unsupported.MatchString(l.text) && !unsupported.MatchString(err.Error()):
		t.Errorf("% x  %s: %v", l.bytes, l.text, err)
	}
}

func TestEveryOpcodeOfEveryMapIsAsLongAsObjdumpSays(t *testing.T) {
	requires(t, "objcopy", "objdump")
	modrms := []byte{0x05, 0x9c, 0xca}
	if os.Getenv("GOKPROBE_TORTURE") != "" {
		modrms = append(modrms, 0x00, 0x44, 0x0d, 0x15, 0x1d, 0x25, 0x2d, 0x35, 0x3d, 0xc0, 0xd1, 0xda, 0xe3, 0xec, 0xf5, 0xfe)
	}
	code := grid(modrms)
	bin := filepath.Join(t.TempDir(), "grid.bin")
	if err := os.WriteFile(bin, code, 0o644); err != nil {
		t.Fatal(err)
	}
	obj := bin + ".o"
	run(t, "objcopy", "-I", "binary", "-O", "elf64-x86-64", "-B", "i386:x86-64",
		"--rename-section", ".data=.text,alloc,load,readonly,code,contents", bin, obj)
	var g gridTally
	objdump(t, obj, func(l line) {
		if l.addr%cell == 0 {
			g.compare(t, l, code[l.addr:])
		}
	})
	t.Logf("%d cells: %+v", len(code)/cell, g)
	if g.same < len(code)/cell/10 {
		t.Errorf("only %d of %d cells compared", g.same, len(code)/cell)
	}
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

// assemble runs gcc, whose assembler may be too old for the newest instructions.
func assemble(t testing.TB, args ...string) {
	t.Helper()
	requires(t, "gcc")
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Skipf("gcc %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}
