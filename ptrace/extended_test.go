package ptrace

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
)

// TestExtendedRegistersAreThePrograms: they are read as the program has set them, changed one by one, and nothing else changes: the program compares its
// whole state with that of before.
func TestExtendedRegistersAreThePrograms(t *testing.T) {
	k := probe(t, "call")
	at := k.symbol("state_insn")
	float := func(a, b float32) uint64 { return uint64(math.Float32bits(a)) | uint64(math.Float32bits(b))<<32 }
	lo, hi := float(1, 2), float(3, 4)
	k.onHit = func(th *Thread, _ arch.Regs) {
		for _, n := range []int{1, 13} {
			if l, h, err := th.XMM(n); l != lo || h != hi || err != nil {
				t.Errorf("register %d is %x %x, %v, want %x %x", n, l, h, err, lo, hi)
			}
		}
		for n, want := range []string{"ac79cfd1f71772b1fe3f", "bcf0175c293baab8ff3f", "35c26821a2da0fc90040"} { // ln 2, log2 e, pi
			got := must2(th.ST(n))
			if text := hex.EncodeToString(got[:]); text != want {
				t.Errorf("st(%d) is %s, want %s", n, text, want)
			}
		}
		before := bytes.Clone(must2(th.extended()))
		for n := range 16 {
			l, h, err := th.XMM(n)
			must(err)
			must(th.SetXMM(n, 0x0123456789abcdef, uint64(n)))
			if a, b, err := th.XMM(n); a != 0x0123456789abcdef || b != uint64(n) || err != nil {
				t.Errorf("register %d was set, and is %x %x, %v", n, a, b, err)
			}
			must(th.SetXMM(n, l, h))
		}
		insn := arch.Addr(binary.LittleEndian.Uint64(before[8:])) // FIP: Intel SDM vol. 1, table 10-2
		for _, move := range []struct{ from, to, want arch.Addr }{
			{insn + 1, insn, insn},
			{insn, 0x5555_1234_5678, 0x5555_1234_5678},
			{0x5555_1234_5678, 0x1234_5678, 0x1234_5678},
			{0x5555_1234_5678, insn, insn}, // who was switched meanwhile, and has the lower half only
		} {
			must(th.MoveLastFPUInsn(move.from, move.to))
			if got := arch.Addr(binary.LittleEndian.Uint64(must2(th.extended())[8:])); got != move.want {
				t.Errorf("moved from %s to %s the last instruction is %s, want %s", move.from, move.to, got, move.want)
			}
		}
		if after := must2(th.extended()); !bytes.Equal(after, before) {
			t.Error("the state has changed")
		}
	}
	k.do(func() error { k.plant(at); return nil })
	if got := k.prog.Do("state", "passed"); got != "passed" || k.hits != 1 {
		t.Errorf("the program says %q, %d hits", got, k.hits)
	}
	k.end()
}
