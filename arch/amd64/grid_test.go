package amd64_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/arch/amd64"
	"github.com/gokprobe/gokprobe/internal/testsize"
)

// cell is the room of one instruction in the grid; what follows it are nops, so
// that a disassembler that loses step is back in step at the next cell.
const cell = 16

// grid collects cells.
type grid []byte

func (g *grid) add(code ...byte) {
	*g = append(append(*g, code...), bytes.Repeat([]byte{0x90}, cell-len(code))...)
}

// legacyGrid is every opcode of the maps without VEX and EVEX, with every mandatory
// prefix and some more.
func legacyGrid(modrms []byte) (g grid) {
	for op := range 256 {
		for _, m := range modrms {
			for _, prefix := range []string{"", "\x66", "\xf3", "\xf2", "\x48", "\x66\x48", "\x67", "\x66\xf2"} {
				for _, escape := range []string{"", "\x0f", "\x0f\x38", "\x0f\x3a"} {
					g.add(append([]byte(prefix+escape), byte(op), m)...)
				}
			}
		}
	}
	return g
}

// vexGrid is every opcode of every VEX map with every prefix, W and L.
func vexGrid(modrms []byte) (g grid) {
	for op := range 256 {
		for _, m := range modrms {
			for v := range 16 {
				pp, l, w := byte(v&3), byte(v>>2&1), byte(v>>3)
				for _, mm := range []byte{1, 2, 3, 5, 7} {
					g.add(0xc4, 0xe0|mm, w<<7|0x78|l<<2|pp, byte(op), m)
				}
			}
		}
	}
	return g
}

// evexGrid is every opcode of every EVEX map with every prefix, W and L'L, and with
// each of the combinations of z, b and aaa in masks.
func evexGrid(modrms, masks []byte) (g grid) {
	for op := range 256 {
		for _, m := range modrms {
			for v := range 32 {
				pp, ll, w := byte(v&3), byte(v>>2&3), byte(v>>4)
				for _, mask := range masks {
					for _, mm := range []byte{1, 2, 3, 5, 6} {
						g.add(0x62, 0xf0|mm, w<<7|0x7c|pp, mask|ll<<5|0x08, byte(op), m)
					}
				}
			}
		}
	}
	return g
}

// ModRM bytes: memory relative to rip, memory with a SIB byte, registers.
const ripOperand, sibOperand, registers = 0x05, 0x9c, 0xca

// wholeGrid is all three, larger for the long tests.
func wholeGrid() grid {
	modrms := []byte{ripOperand, sibOperand, registers}
	short, masks := []byte{ripOperand, registers}, []byte{0, 0x81, 0x10}
	if testsize.Torture() {
		modrms = append(modrms, 0x00, 0x44, 0x0d, 0x15, 0x1d, 0x25, 0x2d, 0x35, 0x3d, 0xc0, 0xd1, 0xda, 0xe3, 0xec, 0xf5, 0xfe)
		short, masks = modrms[:5], []byte{0, 0x01, 0x81, 0x80, 0x10, 0x11, 0x91}
	}
	return slices.Concat(legacyGrid(modrms), vexGrid(modrms), evexGrid(short, masks))
}

// newer are instructions that objdump 2.40 does not know.
var newer = regexp.MustCompile(`^(tcvt|tconj|ttcmm|ttdp|ttrans|ttmm|tmm|tcmm|tdp[bh]+f8|t2rp|tilemov|tileloaddrs|u(rd|wr)msr|wrmsrns|rdmsr|lkgs|pbndkb|rmpread|v?movrs|prefetchrst2` +
	`|vsha512|vsm[34]|vpdpw[us]|vdpph|vminmax|vu?comx|vcvt(bias|2p|tbf|bf|hf)|vcvtt?[ps][sdh]2i?u?[a-z]*[bs]$|vcvtph2[bh]f8|.*bf16)`)

// tolerant are fields that objdump minds and Decode does not: what follows from them
// is an invalid opcode in the copy as in place. See the test against the processor.
var tolerant = regexp.MustCompile(`^v|^fxch|^bnd|^nop|^movnti|^(rex|data|addr|rep|lock|[cdefgs]s)`)

// gridTally counts how the cells compare.
type gridTally struct {
	same, neither           int
	newer, tolerant, vector int
	listed                  int
}

func (g *gridTally) compare(t *testing.T, l line, code []byte) {
	i, err := amd64.Arch{}.Decode(code, l.addr)
	name := ""
	if err == nil {
		name, _, _ = strings.Cut(amd64.Arch{}.Disassemble(i), " ")
	}
	switch {
	case noInsn(l.text) && err != nil:
		g.neither++
	case noInsn(l.text) && newer.MatchString(name):
		g.newer++
	case noInsn(l.text) && (tolerant.MatchString(name) || alone.MatchString(l.text)):
		g.tolerant++
	case noInsn(l.text):
		t.Errorf("% x  %s, Decode says %s", i.Bytes, l.text, name)
	case err != nil && (code[0] == 0xc4 || code[0] == 0x62): // objdump does not mind W, L'L, b, z and aaa
		g.vector++
	case err != nil && (listed(l.text+": "+err.Error()) || strict.MatchString(l.text)):
		g.listed++
	case err != nil:
		t.Errorf("% x  %s: %v", l.bytes, l.text, err)
	case i.Bytes[i.Len()-1] == 0x9b && len(l.bytes) > i.Len(): // fwait, joined with what follows
	case i.Len() != len(l.bytes):
		t.Errorf("% x  %s, Decode says %d bytes", l.bytes, l.text, i.Len())
	default:
		g.same++
		if err := compareAddresses(i, l); err != nil {
			t.Error(err)
		}
	}
}

// strict are instructions that objdump prints with prefixes, operands or digits with
// which they raise #UD.
var strict = regexp.MustCompile(`(getsec|clac|pmovmskb|fxsave|fxrstor|extrq|vmptrst|enclv|vmlaunch|vmresume|vmxoff|pconfig|stac|vmfunc|enclu)`)

func TestEveryOpcodeOfEveryMapIsAsLongAsObjdumpSays(t *testing.T) {
	requires(t, "objcopy", "objdump")
	code := wholeGrid()
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
	t.Logf("%d cells: %d alike, %d refused by both, %d newer than objdump, %d with fields that it alone minds, %d vector forms that it alone accepts, %d others listed",
		len(code)/cell, g.same, g.neither, g.newer, g.tolerant, g.vector, g.listed)
	if g.same < len(code)/cell/20 {
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
