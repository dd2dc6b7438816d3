package amd64_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64"
	"github.com/gokprobe/gokprobe/arch/amd64/code"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestWhatIsNotDisplaced(t *testing.T) {
	a := code.Arch{}
	for _, c := range []struct {
		code string
		want error
	}{
		{"0f 05", amd64.ErrSystemCall},
		{"0f 34", amd64.ErrSystemCall},
		{"cd 80", amd64.ErrSystemCall},
		{"d9 e8", amd64.ErrX87},
		{"9d", amd64.ErrSetsFlags},
		{"8e d0", amd64.ErrLoadsSS},
		{"fa", amd64.ErrPerformed},
		{"0f 01 00", amd64.ErrPerformed},
		{"ff 28", amd64.ErrFar},
		{"ff 18", amd64.ErrFar},
		{"cb", amd64.ErrFar},
		{"48 cf", amd64.ErrFar},
		{"c7 f8 00 00 00 00", amd64.ErrTransaction},
		{"ff d4", amd64.ErrCallByStack},
		{"ff 54 24 f8", amd64.ErrCallByStack},          // call *-8(%rsp)
		{"ff 54 24 f1", amd64.ErrCallByStack},          // -15
		{"ff 94 24 f8 ff ff 7f", amd64.ErrCallByStack}, // no room for 8 more
		{"cc", arch.ErrBreakpoint},
		{"cd 03", arch.ErrBreakpoint},
		{"0f 01 d7", arch.ErrEnclave},
		{"66 c3", arch.ErrOperandSize},
		{"66 74 00", arch.ErrOperandSize},
		{"66 ff e0", arch.ErrOperandSize},
		{"06", arch.ErrUndecodable},
		{"90 90", arch.ErrUndecodable},

		{"ff 54 24 f0", nil}, // call *-16(%rsp)
		{"ff 14 24", nil},
		{"41 ff d4", nil}, // r12
		{"41 ff 54 24 f8", nil},
		{"ff 64 24 f8", nil}, // a jump
		{"66 48 c3", nil},
		{"f3 0f 1e fa", nil},
		{"9c", nil},
		{"9b", nil},
		{"0f 0b", nil},
		{"f4", nil},
		{"cd 2e", nil},
		{"f3 a4", nil},
		{"e2 00", nil},
		{"64 48 8b 04 25 28 00 00 00", nil},
	} {
		err := a.Displaceable(arch.Insn{Addr: tableAt, Bytes: unhex(t, c.code)})
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.code, err, c.want)
		}
		if _, lenErr := a.DetourLen([]arch.Insn{{Addr: tableAt, Bytes: unhex(t, c.code)}}, nil); !errors.Is(lenErr, c.want) {
			t.Errorf("%s: length: %v, want %v", c.code, lenErr, c.want)
		}
	}
}

// TestCopies pins the copies that are not the original's bytes; they stand 1 MiB higher.
func TestCopies(t *testing.T) {
	const low, high = 0x401000, 0x7f12_8765_4000
	for _, c := range []struct {
		at         arch.Addr
		code, want string
		inner      []arch.Inner // relative to the copy
	}{
		{low, "90", "90", nil},
		{low, "8b 05 10 00 00 00", "8b 05 10 00 f0 ff", nil},
		{low, "67 8b 05 10 00 00 00", "67 8b 05 10 00 f0 ff", nil},
		{low, "c7 05 10 00 00 00 01 02 03 04", "c7 05 10 00 f0 ff 01 02 03 04", nil},
		{low, "eb 10", "e9 0d 00 f0 ff", nil},
		{low, "eb fe", "e9 fb ff ef ff", nil}, // to itself: to the original
		{low, "f2 e9 00 00 00 00", "e9 01 00 f0 ff", nil},
		{low, "74 10", "0f 84 0c 00 f0 ff", nil},
		{low, "0f 8f 00 01 00 00", "0f 8f 00 01 f0 ff", nil},
		{low, "67 e3 10", "67 e3 02 eb 05 e9 09 00 f0 ff", []arch.Inner{{At: 3, Orig: low + 3}, {At: 5, Orig: low + 0x13}}},
		{low, "e1 f0", "e1 02 eb 05 e9 e9 ff ef ff", []arch.Inner{{At: 2, Orig: low + 2}, {At: 4, Orig: low - 14}}},
		{low, "e8 00 00 00 00", "68 05 10 40 00 e9 fb ff ef ff", []arch.Inner{{At: 5, Orig: low, Pop: 8}}},
		{high, "e8 00 01 00 00", "68 05 40 65 87 c7 44 24 04 12 7f 00 00 e9 f3 00 f0 ff",
			[]arch.Inner{{At: 5, Orig: high, Pop: 8}, {At: 13, Orig: high, Pop: 8}}},
		{0xffff_ffff_8000_0000, "ff d0", "68 02 00 00 80 ff e0", []arch.Inner{{At: 5, Orig: 0xffff_ffff_8000_0000, Pop: 8}}},
		{0x8000_0000, "ff d0", "68 02 00 00 80 c7 44 24 04 00 00 00 00 ff e0", []arch.Inner{{At: 5, Orig: 0x8000_0000, Pop: 8}, {At: 13, Orig: 0x8000_0000, Pop: 8}}},
		{low, "41 ff d4", "68 03 10 40 00 41 ff e4", []arch.Inner{{At: 5, Orig: low, Pop: 8}}},
		{low, "ff 15 10 00 00 00", "68 06 10 40 00 ff 25 0b 00 f0 ff", []arch.Inner{{At: 5, Orig: low, Pop: 8}}},
		{low, "3e ff 14 24", "68 04 10 40 00 3e ff 64 24 08", []arch.Inner{{At: 5, Orig: low, Pop: 8}}},
		{low, "ff 54 24 78", "68 04 10 40 00 ff a4 24 80 00 00 00", []arch.Inner{{At: 5, Orig: low, Pop: 8}}},
		{low, "ff 54 c4 80", "68 04 10 40 00 ff 64 c4 88", []arch.Inner{{At: 5, Orig: low, Pop: 8}}},
		{low, "ff 94 24 00 01 00 00", "68 07 10 40 00 ff a4 24 08 01 00 00", []arch.Inner{{At: 5, Orig: low, Pop: 8}}},
		{low, "ff 34 24", "ff 34 24", nil}, // push (%rsp)
		{low, "ff 24 24", "ff 24 24", nil}, // jmp *(%rsp)
		{low, "0f 0b", "0f 0b", nil},
	} {
		const away = 1 << 20
		insns := sequence(t, unhex(t, c.code), c.at)
		d, err := code.Arch{}.AssembleDetour(c.at+away, insns, nil)
		if err != nil {
			t.Errorf("%s: %v", c.code, err)
			continue
		}
		checkDetour(t, d, insns)
		inner := slices.Clone(d.Pieces[0].Inner)
		for k := range inner {
			inner[k].At -= c.at + away
		}
		if got := d.Code[:d.Pieces[0].Len]; !bytes.Equal(got, unhex(t, c.want)) || !slices.Equal(inner, c.inner) {
			t.Errorf("%s: % x, want %s; places %v", c.code, got, c.want, inner)
		}
	}
}

func TestDetourOutOfReach(t *testing.T) {
	const siteAt = 0x7f00_0000_0000
	a := code.Arch{}
	for _, c := range []struct {
		name, code string
		at         arch.Addr
	}{
		{"way back", "90", siteAt + 1<<31 + 64},
		{"operand", "8b 05 00 00 00 70", siteAt - 0x20000000},
		{"target", "e9 00 00 00 70", siteAt - 0x20000000},
		{"counter", "90", siteAt - 0x7fff0000},
	} {
		insns := sequence(t, unhex(t, c.code), siteAt)
		body := a.CountBody(siteAt+0x20000, 1, arch.Dead{}, true)
		n, err := a.DetourLen(insns, body)
		if d, far := a.AssembleDetour(c.at, insns, body); err != nil || d != nil || !errors.Is(far, arch.ErrReach) {
			t.Errorf("%s: %v, %v, %v", c.name, err, d, far)
		}
		if d, err := a.AssembleDetour(siteAt+0x1000, insns, body); err != nil || len(d.Code) != n {
			t.Errorf("%s: near by: %v", c.name, err)
		}
	}
	if n, err := a.DetourLen(sequence(t, []byte{0x90}, siteAt), a.CountBody(siteAt+1<<32, 1, arch.Dead{Flags: true}, false)); n != 8+8+1+5 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	if _, err := a.Jump(0, 1<<31+4); err != nil {
		t.Error(err)
	}
	if _, err := a.Jump(0, 1<<31+5); !errors.Is(err, arch.ErrReach) {
		t.Error(err)
	}
}

func TestGapsAreNotDisplaced(t *testing.T) {
	a := code.Arch{}
	one, two := sequence(t, []byte{0x90}, tableAt), sequence(t, []byte{0x90}, tableAt+2)
	for _, insns := range [][]arch.Insn{nil, append(one, two...)} {
		if d, err := a.AssembleDetour(tableAt, insns, nil); err == nil {
			t.Errorf("%v: %+v", insns, d)
		}
	}
}
