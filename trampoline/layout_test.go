package trampoline

import (
	"errors"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
)

func TestTheOffsetsAreThoseOfVersion2(t *testing.T) {
	for _, c := range []struct {
		name      string
		got, want int
	}{
		{"header", headerSize, 102400}, {"version", offVersion, 8}, {"count", offCount, 12}, {"arch", offArch, 16},
		{"pid", offPID, 32}, {"slot size", offSlotSize, 36}, {"start time", offStartTime, 40}, {"pid namespace", offPIDNS, 48},
		{"resume", offResume, 56}, {"guard", offGuard, 2048}, {"arenas", offArenas, 4096}, {"arena", arenaSize, 96},
		{"entries", offEntries, 64}, {"detour's record", detourRecordSize, 128}, {"pieces", offPieceList, 56},
		{"record", recordSize, 64}, {"original", offOriginal, 24}, {"replacement", offReplacement, 44},
	} {
		if c.got != c.want {
			t.Errorf("%s is at %d, want %d: a new layout needs a new Version", c.name, c.got, c.want)
		}
	}
	if offArenas+MaxArenas*arenaSize > headerSize || offReplacement+pieceLen != recordSize {
		t.Error("a part does not fit")
	}
	e := Extent{Detours, 1, rng(2, 3), rng(4, 5), 6, 7, 8, 9, 10, 11}
	if got := parseExtent(encodeExtent(e)); got != e {
		t.Errorf("%+v", got)
	}
}

func TestAForeignHeaderIsRefused(t *testing.T) {
	f := newFixture(t)
	for _, c := range []struct {
		name string
		do   func([]byte)
	}{
		{"magic", func(b []byte) { b[0] ^= 1 }},
		{"version", func(b []byte) { b[offVersion]++ }},
		{"count", func(b []byte) { le.PutUint32(b[offCount:], MaxArenas+1) }},
		{"data after code", func(b []byte) { b[offArenas+offDataStart+7] = 0xff }},
		{"unaligned", func(b []byte) { b[offArenas+offCodeEnd]++ }},
		{"journal outside", func(b []byte) { b[offArenas+offJournalLen+7]++ }},
		{"an unknown kind", func(b []byte) { b[offArenas+offKind] = 2 }},
		{"records outside", func(b []byte) { b[offArenas+offRecordsLen+7]++ }},
		{"sites outside", func(b []byte) { b[offArenas+offSites+7]++ }},
	} {
		b := make([]byte, HeaderLen)
		if err := f.ReadMemory(f.e.Data.Start, b); err != nil {
			t.Fatal(err)
		}
		c.do(b)
		if h, err := ParseHeader(b); !errors.Is(err, ErrHeader) {
			t.Errorf("%s: %+v, %v", c.name, h, err)
		}
	}
	if _, err := ParseHeader(nil); !errors.Is(err, ErrHeader) {
		t.Error(err)
	}
	if _, err := Inspect(f, 0x1000); err == nil {
		t.Error("unmapped memory has a header")
	}
}

// FuzzInspect gives a finder memory that a hostile target wrote: a header, one arena's
// entry and what lies where it says.
func FuzzInspect(f *testing.F) {
	const at = 0x10000
	for _, kind := range []Kind{Slots, Detours} {
		e := Extent{
			Kind: kind, Data: rng(at, at+0x2_0000), Code: rng(at+0x2_0000, at+0x2_1000),
			Sites: 0x1_a000, SitesLen: 128, Journal: 0x1_a000, JournalLen: 256, Records: 0x1_a000, RecordsLen: 256,
		}
		b := make([]byte, e.Data.Len())
		if err := writeHeader(Bytes(b), fake, owner, e); err != nil {
			f.Fatal(err)
		}
		le.PutUint64(b[offResume:], at+0x1_a000)
		d, err := encodeDetour(Landing{Entry: 1}, detourAt(Landing{Detour: at, Size: 64}, 0x2000, 3))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b[:offArenas], b[offArenas:][:arenaSize], append(d, encodeRecord(record(1, 5), 1)...), uint64(at))
	}
	f.Fuzz(func(t *testing.T, head, entry, content []byte, ip uint64) {
		data := make([]byte, 0x2_1000)
		copy(data, head)
		copy(data[offArenas:], entry)
		copy(data[0x1_a000:], content)
		g := &target{t: t, maps: map[arch.Range][]byte{stretch(at, uint64(len(data))): data}}
		h, err := Inspect(g, at)
		if err != nil {
			return
		}
		rs, _ := h.Records(g, NewAllowance(mostRecords))
		for _, r := range rs {
			if len(r.Original) == 0 || len(r.Original) != len(r.Replacement) {
				t.Fatalf("malformed record %v", r)
			}
		}
		if slot, _, ok, _ := h.Site(g, arch.Addr(ip)); ok && arch.Addr(ip)-slot >= arch.Addr(h.SlotSize) {
			t.Fatalf("slot %s of %#x", slot, ip)
		}
		x, _ := h.Detours(g, NewAllowance(mostRecords))
		for _, p := range x.places {
			d, ok, _ := x.Find(g, p.code.Start)
			if !ok {
				continue
			}
			if place, _ := d.Detour.Locate(d.Detour.Back); place == arch.Outside || !d.plausible() {
				t.Fatalf("malformed detour %+v", d)
			}
		}
		if to, ok, err := h.ResumeAt(g, arch.Addr(ip)); ok && (to == 0 || err != nil) {
			t.Fatalf("%#x resumes at %s, %v", ip, to, err)
		}
		_, _ = h.GuardData(g)
	})
}
