package amd64

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// Every opcode, with every ModRM byte, and with some where prefixes may choose another instruction: x86asm says the same of all displacements and
// immediates, and confirm what x86asm says, whatever was asked before.
func TestAnInstructionExistsWhateverItsNumbersAre(t *testing.T) {
	prefixes := [][]byte{{}, {0x66}, {0xf2}, {0xf3}, {0x48}, {0x66, 0x48}, {0xf3, 0x4c}, {0x67}, {0x2e, 0x66}, {0xf0}, {0x64, 0x41}}
	maps := [][]byte{{}, {0x0f}, {0x0f, 0x38}, {0x0f, 0x3a}}
	r := rand.New(rand.NewPCG(1, 2))
	asked, kept := 0, 0
	for n, pre := range prefixes {
		step := 7 // through the ModRM bytes
		if n == 0 {
			step = 1
		}
		for _, m := range maps {
			for op := range 256 {
				for modrm := 0; modrm < 256; modrm += step {
					head := slices.Concat(pre, m, []byte{byte(op), byte(modrm), byte(r.Uint32())})
					var first error
					var outline uint64
					for n, fill := range []byte{0, 0xff, byte(r.Uint32())} {
						code := slices.Clone(head)
						for len(code) < maxInsnLen {
							code = append(code, fill)
						}
						f, err := parse(code)
						if err != nil {
							break
						}
						if at := f.imm - f.dispLen; at < len(head) { // what follows is a number
							for i := at; i < f.len; i++ {
								code[i] = fill
							}
						}
						if f, err = parse(code); err != nil || f.check(code[:f.len]) != nil || f.outline(code[:f.len]) == 0 {
							break
						}
						if o := f.outline(code[:f.len]); n > 0 && o != outline {
							break // the byte that is filled in is none of a number
						} else {
							outline = o
						}
						asked++
						err = ask(&f, code[:f.len])
						if n == 0 {
							first = err
						}
						if (err == nil) != (first == nil) {
							t.Fatalf("% x: %v, but %v with other numbers", code[:f.len], err, first)
						}
						for range 2 {
							if got := confirm(&f, code[:f.len]); (got == nil) != (err == nil) {
								t.Fatalf("% x: %v instead of %v", code[:f.len], got, err)
							}
						}
						if o := f.outline(code[:f.len]); placeOf(o).Load() == o {
							kept++
						}
					}
				}
			}
		}
	}
	if asked < 100_000 || kept < asked/10 {
		t.Errorf("%d forms were asked for, %d are remembered", asked, kept)
	}
}
