package patch

import (
	"bytes"
	"errors"
	"math/rand"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
)

// pagesOfWants is single-byte patches of three pages in no order, and one that
// crosses pages.
func pagesOfWants(m *memory) []Want {
	var wants []Want
	for _, i := range []int{9000, 10, 4094, 17, 5000, 4200, 12, 8191, 9001} {
		wants = append(wants, Want{base + arch.Addr(i), bytes.Clone(m.b[i : i+3]), int3})
	}
	return wants
}

func TestABatchShowsAllReplacementsAndThenAllOriginals(t *testing.T) {
	m := newMemory(3 * pageSize)
	j, before := newFakeJournal(m), bytes.Clone(m.b)
	x := newStill(m, j)
	wants := pagesOfWants(m)
	ps, err := x.InstallAll(wants)
	if err != nil {
		t.Fatal(err)
	}
	want := bytes.Clone(before)
	for i, w := range wants {
		want[w.At-base] = 0xcc
		if p := ps[i]; p.Addr() != w.At || !p.Armed() || len(p.Original()) != 1 {
			t.Errorf("patch %d is %v", i, p)
		}
	}
	if !bytes.Equal(m.b, want) || len(j.records) != len(wants) || j.late {
		t.Errorf("%d records, late=%v", len(j.records), j.late)
	}
	m.inject()
	x.DisarmAll(ps)
	if !bytes.Equal(m.b, before) || len(x.Patches()) != len(wants) {
		t.Errorf("%d patches are known after they were disarmed", len(x.Patches()))
	}
	if accesses := len(wants) + 2*3; m.access != accesses {
		t.Errorf("%d accesses to memory, want %d", m.access, accesses)
	}
	m.inject()
	if err := x.RestoreAll(nil); err != nil || m.access != 0 || len(j.records) != 0 || len(x.Patches()) != 0 {
		t.Errorf("%v, %d records and %d patches are left", err, len(j.records), len(x.Patches()))
	}
}

// TestABatchThatFailsLeavesNothing has every access fail in turn, alone and with a
// second one.
func TestABatchThatFailsLeavesNothing(t *testing.T) {
	for first := 1; ; first++ {
		for second := first; second < first+8; second++ {
			m := newMemory(3 * pageSize)
			j, before := newFakeJournal(m), bytes.Clone(m.b)
			x := newStill(m, j)
			m.inject(first, second)
			m.short = first % 2
			_, err := x.InstallAll(pagesOfWants(m))
			reached := m.access >= first
			m.inject()
			if !reached {
				return
			}
			if err == nil {
				continue // a page was read bit by bit
			}
			torn := errors.Is(err, ErrTorn)
			if !torn && !bytes.Equal(m.b, before) || torn == (len(x.Patches()) == 0) || len(j.records) != len(x.Patches()) {
				t.Fatalf("failures at %d and %d: %v; %d patches, %d records", first, second, err, len(x.Patches()), len(j.records))
			}
			if err := x.RestoreAll(nil); err != nil || !bytes.Equal(m.b, before) || len(j.records) != 0 {
				t.Fatalf("failures at %d and %d: restoring: %v", first, second, err)
			}
		}
	}
}

// TestABatchOnMemoryThatCannotBeWritten: there is nothing to take back.
func TestABatchOnMemoryThatCannotBeWritten(t *testing.T) {
	m := newMemory(3 * pageSize)
	j, before := newFakeJournal(m), bytes.Clone(m.b)
	x := newStill(m, j)
	wants := pagesOfWants(m)
	m.readOnly = true
	if _, err := x.InstallAll(wants); !errors.Is(err, errInjected) || errors.Is(err, ErrTorn) {
		t.Error(err)
	}
	if !bytes.Equal(m.b, before) || len(j.records) != 0 || len(x.Patches()) != 0 {
		t.Errorf("it left a trace: %d patches, %d records", len(x.Patches()), len(j.records))
	}
	m.readOnly = false
	ps, err := x.InstallAll(wants)
	if err != nil {
		t.Fatal(err)
	}
	m.readOnly = true
	x.DisarmAll(ps)
	for _, p := range ps {
		if err := x.Remove(p); !errors.Is(err, errInjected) || !bytes.Equal(m.b[p.Addr()-base:][:1], int3) {
			t.Errorf("removing %v: %v", p, err)
		}
	}
	m.readOnly = false
	if err := x.RestoreAll(nil); err != nil || !bytes.Equal(m.b, before) || len(j.records) != 0 {
		t.Errorf("restoring: %v, %d records", err, len(j.records))
	}
}

// TestWhatABatchCannotDisarmIsLeftToRemove: an access that fails, or bytes of somebody
// else's, are not lost.
func TestWhatABatchCannotDisarmIsLeftToRemove(t *testing.T) {
	for failAt := range 20 {
		m := newMemory(3 * pageSize)
		j, before := newFakeJournal(m), bytes.Clone(m.b)
		x := newStill(m, j)
		ps, err := x.InstallAll(pagesOfWants(m))
		if err != nil {
			t.Fatal(err)
		}
		m.b[17], before[17] = 0x55, 0x55
		m.inject(failAt)
		x.DisarmAll(ps)
		m.inject()
		for _, p := range ps {
			if err := x.Remove(p); errors.Is(err, ErrChanged) != (p.Addr() == base+17) {
				t.Errorf("failure at %d: removing %v: %v", failAt, p, err)
			}
		}
		if !bytes.Equal(m.b, before) || len(j.records) != 0 || len(x.Patches()) != 0 {
			t.Errorf("failure at %d: %d patches, %d records", failAt, len(x.Patches()), len(j.records))
		}
	}
}

// TestABatchWritesNothingBetweenItsPatches: the program may change its own code there
// at any moment.
func TestABatchWritesNothingBetweenItsPatches(t *testing.T) {
	m := newMemory(3 * pageSize)
	x := newStill(m, newFakeJournal(m))
	m.inject()
	m.foreign = map[int]func(*memory){}
	for n := 4; n < 100; n++ { // the first three look
		m.foreign[n] = func(m *memory) { m.b[11], m.b[5001] = byte(n), byte(n) }
	}
	ps, err := x.InstallAll(pagesOfWants(m))
	if err != nil || m.b[11] != byte(m.access) || m.b[5001] != byte(m.access) {
		t.Errorf("%v: % x after %d accesses", err, m.b[10:13], m.access)
	}
	x.DisarmAll(ps)
	if m.b[11] != byte(m.access) || m.b[5001] != byte(m.access) {
		t.Errorf("disarming: % x after %d accesses", m.b[10:13], m.access)
	}
}

func TestABatchRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		want Want
		err  error
	}{
		{"a patch over one of the same batch", Want{base + 10, []byte{0}, int3}, ErrOverlap},
		{"an instruction of which a later byte changed", Want{base + 100, nil, int3}, ErrChanged},
		{"less than it replaces", Want{base + 100, nil, int3}, ErrLength},
		{"an unmapped address", Want{base + 1<<20, []byte{0}, int3}, errInjected},
	} {
		m := newMemory(3 * pageSize)
		j, before := newFakeJournal(m), bytes.Clone(m.b)
		x := newStill(m, j)
		if errors.Is(c.err, ErrChanged) {
			c.want.Expect = []byte{m.b[100], ^m.b[101]}
		}
		_, err := x.InstallAll(append(pagesOfWants(m), c.want))
		var at *InstallError
		if !errors.Is(err, c.err) || !errors.As(err, &at) || at.At != c.want.At {
			t.Errorf("%s: %v", c.name, err)
		}
		if !bytes.Equal(m.b, before) || len(j.records) != 0 || len(x.Patches()) != 0 {
			t.Errorf("%s left a trace: %d patches, %d records", c.name, len(x.Patches()), len(j.records))
		}
	}
}

// TestABatchAndOneByOneAgree compares memory, journal and index after random sequences.
func TestABatchAndOneByOneAgree(t *testing.T) {
	for seed := range int64(50) {
		rnd := rand.New(rand.NewSource(seed))
		m, n := newMemory(3*pageSize), newMemory(3*pageSize)
		x, y := newStill(m, newFakeJournal(m)), newStill(n, newFakeJournal(n))
		for range 4 {
			var wants []Want
			for range rnd.Intn(300) {
				i := rnd.Intn(len(m.b) - 3)
				if _, taken := x.Find(base + arch.Addr(i)); taken {
					continue
				}
				if _, err := x.Install(base+arch.Addr(i), m.b[i:i+1], int3); err != nil {
					t.Fatal(err)
				}
				expect := make([]byte, 3)
				y.Original(base+arch.Addr(i), expect)
				wants = append(wants, Want{base + arch.Addr(i), expect, int3})
			}
			if _, err := y.InstallAll(wants); err != nil {
				t.Fatal(err)
			}
			all := x.Patches()
			rnd.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			var some []*Patch
			for _, p := range all[:len(all)/2] {
				q, _ := y.Find(p.Addr())
				some = append(some, q)
				if err := x.Disarm(p); err != nil {
					t.Fatal(err)
				}
			}
			y.DisarmAll(some)
			if !bytes.Equal(m.b, n.b) || len(x.Patches()) != len(y.Patches()) {
				t.Fatalf("seed %d: they differ", seed)
			}
		}
	}
}

func BenchmarkInstallAllDisarmAll(b *testing.B) {
	m := newMemory(1 << 20)
	var wants []Want
	for i := 0; i < len(m.b)-16; i += 100 {
		wants = append(wants, Want{base + arch.Addr(i), bytes.Clone(m.b[i : i+5]), int3})
	}
	for b.Loop() {
		x := newStill(m, nil)
		ps, err := x.InstallAll(wants)
		if err != nil {
			b.Fatal(err)
		}
		x.DisarmAll(ps)
		if err := x.RestoreAll(nil); err != nil {
			b.Fatal(err)
		}
	}
}
