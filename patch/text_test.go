package patch

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
)

var int3 = []byte{0xcc}

func setup(t *testing.T) (still, *memory, *fakeJournal, []byte) {
	t.Helper()
	m := newMemory(256)
	j := newFakeJournal(m)
	return newStill(m, j), m, j, bytes.Clone(m.b)
}

func install(t *testing.T, x still, at arch.Addr, replacement []byte) *Patch {
	t.Helper()
	expect := make([]byte, len(replacement))
	if err := x.Original(at, expect); err != nil {
		t.Fatal(err)
	}
	p, err := x.Install(at, expect, replacement)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestInstallShowsTheReplacementAndRemoveTheOriginal(t *testing.T) {
	for _, replacement := range [][]byte{int3, {0xe9, 1, 2, 3, 4}, bytes.Repeat([]byte{0x0f}, 100)} {
		x, m, j, before := setup(t)
		p := install(t, x, base+8, replacement)
		want := bytes.Clone(before)
		copy(want[8:], replacement)
		if !bytes.Equal(m.b, want) {
			t.Errorf("memory after install is % x", m.b)
		}
		if !p.Armed() || p.Addr() != base+8 || !bytes.Equal(p.Replacement(), replacement) ||
			!bytes.Equal(p.Original(), before[8:8+len(replacement)]) || len(j.records) != 1 {
			t.Errorf("patch is %v armed=%v, %d records", p, p.Armed(), len(j.records))
		}
		if err := x.Remove(p); err != nil {
			t.Error(err)
		}
		if !bytes.Equal(m.b, before) || len(x.Patches()) != 0 || len(j.records) != 0 || j.late {
			t.Errorf("after removal: %d patches, %d records, late=%v", len(x.Patches()), len(j.records), j.late)
		}
		if err := x.Remove(p); !errors.Is(err, ErrUnknown) {
			t.Errorf("second removal: %v", err)
		}
	}
}

func TestInstallRefuses(t *testing.T) {
	x, m, j, _ := setup(t)
	install(t, x, base+64, []byte{0xe9, 0, 0, 0, 0})
	before := bytes.Clone(m.b)
	orig := func(at arch.Addr, n int) []byte {
		b := make([]byte, n)
		x.Original(at, b)
		return b
	}
	for _, c := range []struct {
		name        string
		at          arch.Addr
		expect, new []byte
		want        error
	}{
		{"an empty patch", base, nil, nil, ErrLength},
		{"different lengths", base, orig(base, 2), int3, ErrLength},
		{"the end of the address space", ^arch.Addr(0), int3, int3, ErrLength},
		{"the first byte of a patch", base + 64, orig(base+64, 1), int3, ErrOverlap},
		{"the last byte of a patch", base + 68, orig(base+68, 1), int3, ErrOverlap},
		{"a range that ends in a patch", base + 60, orig(base+60, 5), make([]byte, 5), ErrOverlap},
		{"a range around a patch", base + 60, orig(base+60, 20), make([]byte, 20), ErrOverlap},
		{"bytes that changed since they were decoded", base, []byte{^m.b[0]}, int3, ErrChanged},
		{"an unmapped address", base + 4096, []byte{0}, int3, errInjected},
	} {
		if p, err := x.Install(c.at, c.expect, c.new); !errors.Is(err, c.want) || p != nil {
			t.Errorf("%s: %v, %v", c.name, p, err)
		}
	}
	if !bytes.Equal(m.b, before) || len(j.records) != 1 || len(x.Patches()) != 1 {
		t.Errorf("a refusal left a trace: %d records, %d patches", len(j.records), len(x.Patches()))
	}
	for _, at := range []arch.Addr{base + 63, base + 69} {
		install(t, x, at, int3)
	}
}

func TestAJournalThatCannotRecordPreventsTheWrite(t *testing.T) {
	x, m, j, before := setup(t)
	j.fail = errors.New("full")
	if _, err := x.Install(base, m.b[:1], int3); !errors.Is(err, j.fail) {
		t.Error(err)
	}
	if !bytes.Equal(m.b, before) {
		t.Error("memory changed")
	}
}

func TestArmAndDisarmAreIdempotentAndKeepThePatchKnown(t *testing.T) {
	x, m, _, before := setup(t)
	p := install(t, x, base+5, int3)
	for i, c := range []struct {
		do    func(*Patch) error
		armed bool
	}{{x.Arm, true}, {x.Disarm, false}, {x.Disarm, false}, {x.Arm, true}, {x.Arm, true}, {x.Disarm, false}} {
		if err := c.do(p); err != nil {
			t.Fatal(err)
		}
		want := before[5]
		if c.armed {
			want = 0xcc
		}
		if m.b[5] != want || p.Armed() != c.armed {
			t.Errorf("step %d: byte %#x, armed %v", i, m.b[5], p.Armed())
		}
		if q, ok := x.Find(base + 5); !ok || q != p {
			t.Errorf("step %d: the patch is not found", i)
		}
	}
	m.inject(1, 2, 3)
	if err := x.Disarm(p); err != nil || m.access != 0 {
		t.Errorf("disarming a disarmed patch touched memory: %v", err)
	}
}

func TestBytesThatSomebodyElseChangedStay(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(still, *Patch) error
		arm  bool // before the change
		gone bool // after the call
	}{
		{"remove", still.Remove, true, true},
		{"disarm", still.Disarm, true, false},
		{"arm", still.Arm, false, false},
	} {
		x, m, j, before := setup(t)
		p := install(t, x, base+5, []byte{0xe9, 1, 2, 3, 4})
		if !c.arm {
			x.Disarm(p)
		}
		m.b[7] = 0x55
		seen := bytes.Clone(m.b)
		err := c.do(x, p)
		if !errors.Is(err, ErrChanged) {
			t.Fatalf("%s: %v", c.name, err)
		}
		if c.arm && (!strings.Contains(err.Error(), "e9 01 55 03 04") || !strings.Contains(err.Error(), "e9 01 02 03 04")) {
			t.Errorf("%s: the sentence lacks the bytes: %v", c.name, err)
		}
		if !bytes.Equal(m.b, seen) || p.Armed() {
			t.Errorf("%s: memory changed or armed", c.name)
		}
		if _, known := x.Find(base + 5); known == c.gone || (len(j.records) == 0) != c.gone {
			t.Errorf("%s: known=%v, %d records", c.name, known, len(j.records))
		}
		m.b[7] = before[7]
	}
}

func TestEveryFailingAccessLeavesMemoryAsBeforeOrThePatchTorn(t *testing.T) {
	jump := []byte{0xe9, 1, 2, 3, 4}
	for mask := 1; mask < 1<<6; mask++ {
		for short := range 6 {
			x, m, j, before := setup(t)
			m.short = short
			var fail []int
			for i := range 6 {
				if mask>>i&1 != 0 {
					fail = append(fail, i+1)
				}
			}
			m.inject(fail...)
			_, err := x.Install(base+9, before[9:14], jump)
			m.inject()
			switch {
			case err == nil:
				if !bytes.Equal(m.b[9:14], jump) {
					t.Fatalf("mask %b: success without the bytes", mask)
				}
			case errors.Is(err, ErrTorn):
				if len(x.Patches()) != 1 || len(j.records) != 1 {
					t.Fatalf("mask %b: a torn patch was forgotten", mask)
				}
			case !bytes.Equal(m.b, before) || len(x.Patches()) != 0 || len(j.records) != 0:
				t.Fatalf("mask %b short %d: %v, but a trace is left", mask, short, err)
			}
			view := make([]byte, len(before))
			if err := x.Original(base, view); err != nil || !bytes.Equal(view, before) {
				t.Fatalf("mask %b short %d: the original view is wrong", mask, short)
			}
			if err := x.RestoreAll(nil); err != nil {
				t.Fatalf("mask %b: %v", mask, err)
			}
			if !bytes.Equal(m.b, before) || len(j.records) != 0 {
				t.Fatalf("mask %b short %d: memory differs after restoring", mask, short)
			}
		}
	}
}

func TestAHalfWrittenPatchIsTakenBackAtOnce(t *testing.T) {
	for _, failAt := range []int{2, 3} { // read, write, read back
		x, m, j, before := setup(t)
		m.short = 2
		m.inject(failAt)
		_, err := x.Install(base+9, before[9:14], []byte{0xe9, 1, 2, 3, 4})
		if !errors.Is(err, errInjected) || errors.Is(err, ErrTorn) || !bytes.Equal(m.b, before) || len(j.records) != 0 {
			t.Errorf("failure at access %d: %v, memory % x, %d records", failAt, err, m.b[9:14], len(j.records))
		}
	}
}

func TestATornPatchCanBeArmedAgain(t *testing.T) {
	jump := []byte{0xe9, 1, 2, 3, 4}
	x, m, _, before := setup(t)
	m.short = 2
	m.inject(2, 4) // the write and the taking back
	if _, err := x.Install(base+9, before[9:14], jump); !errors.Is(err, ErrTorn) {
		t.Fatal(err)
	}
	p, ok := x.Find(base + 9)
	for i := range 2 { // torn while disarmed, then while armed
		if !ok || !p.torn {
			t.Fatalf("step %d: the patch is not torn", i)
		}
		m.inject()
		if err := x.Arm(p); err != nil || p.torn || !p.Armed() || !bytes.Equal(m.b[9:14], jump) {
			t.Fatalf("step %d: %v, memory % x", i, err, m.b[9:14])
		}
		if i == 0 {
			m.inject(2, 4)
			if err := x.Disarm(p); !errors.Is(err, ErrTorn) {
				t.Fatal(err)
			}
		}
	}
	m.b[10] = ^before[10] ^ jump[1]
	if err := x.Remove(p); !errors.Is(err, ErrChanged) {
		t.Errorf("a foreign change is taken for a torn write: %v", err)
	}
}

func TestAnOverlapNamesTheLowestPatch(t *testing.T) {
	x, _, _, before := setup(t)
	install(t, x, base+24, int3)
	install(t, x, base+20, int3)
	install(t, x, base+22, int3)
	_, err := x.Install(base+18, before[18:30], make([]byte, 12))
	if want := "patch at 0x400012: the bytes overlap another patch, 400014-400015"; err == nil || err.Error() != want {
		t.Error(err)
	}
}

func TestAFailedRemovalCanBeRepeated(t *testing.T) {
	for failAt := 1; failAt <= 5; failAt++ {
		for also := failAt; also <= 5; also++ {
			x, m, _, before := setup(t)
			p := install(t, x, base+9, []byte{0xe9, 1, 2, 3, 4})
			m.short = 2
			m.inject(failAt, also)
			err := x.Remove(p)
			m.inject()
			if err != nil {
				if errors.Is(err, ErrChanged) {
					t.Fatalf("fail at %d, %d is taken for a foreign change: %v", failAt, also, err)
				}
				if err = x.Remove(p); err != nil {
					t.Fatal(err)
				}
			}
			if !bytes.Equal(m.b, before) || len(x.Patches()) != 0 {
				t.Fatalf("fail at %d, %d: memory differs", failAt, also)
			}
		}
	}
}

func TestAForeignWriteDuringOursIsNotOverwritten(t *testing.T) {
	x, m, j, _ := setup(t)
	m.foreign = map[int]func(*memory){2: func(m *memory) { m.b[9] = 0x55 }} // read, write
	if _, err := x.Install(base+9, m.b[9:10], int3); !errors.Is(err, ErrChanged) {
		t.Error(err)
	}
	if m.b[9] != 0x55 || len(j.records) != 0 || len(x.Patches()) != 0 {
		t.Errorf("byte %#x, %d records", m.b[9], len(j.records))
	}
}

func TestOriginalHidesAnyNumberOfPatches(t *testing.T) {
	x, m, _, before := setup(t)
	for i := 0; i < 240; i += 7 {
		p := install(t, x, base+arch.Addr(i), bytes.Repeat([]byte{0xcc}, 1+i%5))
		if i%3 == 0 {
			if err := x.Disarm(p); err != nil {
				t.Fatal(err)
			}
		}
	}
	for at := range len(before) {
		for n := 0; at+n <= len(before); n++ {
			b := make([]byte, n)
			if err := x.Original(base+arch.Addr(at), b); err != nil || !bytes.Equal(b, before[at:at+n]) {
				t.Fatalf("view of %d bytes at +%d: %v", n, at, err)
			}
		}
	}
	m.b[1], m.b[0] = 0x77, 0x78
	b := make([]byte, 2)
	if x.Original(base, b); b[0] != 0x78 || b[1] != 0x77 {
		t.Errorf("the view hides somebody else's bytes: % x", b)
	}
	if err := x.Original(base+4096, b); err == nil {
		t.Error("the view of unmapped memory has no error")
	}
}

func TestRestoreAllGoesOnAfterAnError(t *testing.T) {
	x, m, _, before := setup(t)
	for i := range 10 {
		install(t, x, base+arch.Addr(10*i), int3)
	}
	m.b[50] = 0x55
	if err := x.RestoreAll(nil); !errors.Is(err, ErrChanged) {
		t.Error(err)
	}
	before[50] = 0x55
	if !bytes.Equal(m.b, before) || len(x.Patches()) != 0 {
		t.Error("a patch is left")
	}
	if err := x.RestoreAll(nil); err != nil {
		t.Error(err)
	}
}

func TestForgetAndDropDoNotTouchMemory(t *testing.T) {
	x, m, j, _ := setup(t)
	p, q := install(t, x, base, int3), install(t, x, base+1, int3)
	seen := bytes.Clone(m.b)
	m.inject(1, 2, 3, 4)
	if err := x.Drop(p); err != nil || len(j.records) != 1 {
		t.Error(err, len(j.records))
	}
	x.Forget()
	if len(x.Patches()) != 0 || m.access != 0 || !bytes.Equal(m.b, seen) {
		t.Error("memory was touched or a patch is left")
	}
	for _, err := range []error{x.Arm(q), x.Disarm(q), x.Drop(q), x.Remove(p), x.Remove(nil)} {
		if !errors.Is(err, ErrUnknown) {
			t.Error(err)
		}
	}
}

func TestPatchesAreListedByAddressAndRestoredNewestFirst(t *testing.T) {
	x, _, _, _ := setup(t)
	for _, i := range []arch.Addr{200, 3, 64, 63} {
		install(t, x, base+i, int3)
	}
	var at []arch.Addr
	for _, p := range x.Patches() {
		at = append(at, p.Addr()-base)
	}
	for _, e := range x.Entries() {
		at = append(at, e.At-base)
	}
	want := []arch.Addr{3, 63, 64, 200, 63, 64, 3, 200}
	for i := range want {
		if at[i] != want[i] {
			t.Fatalf("order is %d", at)
		}
	}
}

func TestATextWithoutJournalWorks(t *testing.T) {
	m := newMemory(16)
	x := newStill(m, nil)
	before := bytes.Clone(m.b)
	p := install(t, x, base, int3)
	if err := x.Remove(p); err != nil || !bytes.Equal(m.b, before) {
		t.Error(err)
	}
}

func TestRestore(t *testing.T) {
	e := Entry{base + 4, []byte{1, 2, 3, 4, 5}, []byte{0xe9, 6, 7, 8, 9}}
	for _, c := range []struct {
		name      string
		got, want []byte
		err       error
	}{
		{"puts the original back", []byte{0xe9, 6, 7, 8, 9}, e.Original, nil},
		{"leaves the original", e.Original, e.Original, nil},
		{"repairs a write that stopped half-way", []byte{0xe9, 6, 3, 4, 5}, e.Original, nil},
		{"leaves somebody else's bytes", []byte{0xe9, 6, 0x55, 8, 9}, []byte{0xe9, 6, 0x55, 8, 9}, ErrChanged},
	} {
		m := newMemory(16)
		copy(m.b[4:], c.got)
		ok := Entry{base, bytes.Clone(m.b[:1]), int3}
		m.b[0] = 0xcc
		err := Restore(held(true), m, Judge{}, []Entry{{base, nil, nil}, {base + 99, []byte{1}, int3}, e, ok, {base + 1, int3, int3}})
		if !errors.Is(err, ErrLength) || !errors.Is(err, errInjected) || errors.Is(err, ErrChanged) != (c.err != nil) {
			t.Errorf("%s: %v", c.name, err)
		}
		if !bytes.Equal(m.b[4:9], c.want) || m.b[0] != ok.Original[0] {
			t.Errorf("%s: % x", c.name, m.b)
		}
	}
}

// TestRestoreAllKeepsTheOrder: what is to go last shows its replacement as long as anything else does, also where it lies in front of that.
func TestRestoreAllKeepsTheOrder(t *testing.T) {
	x, m, _, before := setup(t)
	last := install(t, x, base+8, int3)
	for _, at := range []arch.Addr{base + 4, base + 40, base + 80} {
		install(t, x, at, int3)
	}
	m.foreign = map[int]func(*memory){}
	for n := range 100 {
		m.foreign[m.access+1+n] = func(m *memory) {
			first := bytes.Count(m.b[:8], int3) + bytes.Count(m.b[9:], int3)
			if m.b[8] != int3[0] && first > 0 {
				t.Errorf("the last is back in front of %d others", first)
			}
		}
	}
	if err := x.RestoreAll(func(p *Patch) bool { return p == last }); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(m.b, before) {
		t.Errorf("memory is % x", m.b)
	}
}
