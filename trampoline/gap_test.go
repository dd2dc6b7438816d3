package trampoline

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
)

func rng(start, end arch.Addr) arch.Range { return arch.Range{Start: start, End: end} }

func TestFindGap(t *testing.T) {
	const gib = 1 << 30
	const reach = 2*gib - 1<<16
	pie := rng(0x5555_5555_4000, 0x5555_5560_0000)
	low := rng(0x40_0000, 0x50_0000)
	for _, c := range []struct {
		name string
		used []Mapping
		near arch.Range
		size uint64
		want arch.Addr // 0 for ErrNoGap
	}{
		{"an empty address space: below, behind a free page", nil, pie, 0x3000, pie.Start - 0x4000},
		{"the size is rounded to pages", nil, pie, 0x2001, pie.Start - 0x4000},
		{"below the heap that follows the module",
			[]Mapping{{pie, GrowsNot}, {rng(pie.End, pie.End+0x21000), GrowsUp}}, pie, 0x1000, pie.Start - 0x2000},
		{"a non-PIE executable has little room below",
			[]Mapping{{low, GrowsNot}, {rng(0x200_0000, 0x202_1000), GrowsUp}}, low, 0x10_0000, 0x2f_f000},
		{"and if that is not enough, there is the room above a grown heap",
			[]Mapping{{low, GrowsNot}, {rng(0x50_0000, 0x52_1000), GrowsUp}}, low, 0x40_0000, 0x52_1000 + gib},
		{"or the room between it and its heap, however far away the kernel has put that",
			[]Mapping{{low, GrowsNot}, {rng(0x40d4_6000, 0x40d6_7000), GrowsUp}, {rng(0x1_0000, low.Start), GrowsNot}}, low, 0x40_0000, low.End + 0x1000},
		{"above, if below is taken",
			[]Mapping{{rng(0x1_0000, low.Start), GrowsNot}}, low, 0x2000, low.End + 0x1000},
		{"the closest of several gaps",
			[]Mapping{{rng(pie.Start-0x10_0000, pie.Start), GrowsNot}, {rng(pie.End, pie.End+0x8_0000), GrowsNot}},
			pie, 0x1000, pie.End + 0x8_1000},
		{"a gap that is too small for the two free pages is passed over",
			[]Mapping{{rng(0x1_0000, pie.Start-0x3000), GrowsNot}}, pie, 0x2000, pie.End + 0x1000},
		{"a stack needs room below it",
			[]Mapping{{rng(0x1_0000, low.Start), GrowsNot}, {rng(low.End+gib+0x10_0000, low.End+gib+0x20_0000), GrowsDown}},
			low, 0x20_0000, low.End + gib + 0x20_1000},
		{"nothing within reach",
			[]Mapping{{rng(0x1_0000, low.Start), GrowsNot}, {rng(low.End, low.End+3*gib), GrowsNot}}, low, 0x1000, 0},
		{"both ends of the code count",
			[]Mapping{{rng(0x1_0000, low.Start), GrowsNot}, {rng(low.End, low.Start+reach-0x1000), GrowsNot}}, low, 0x1000, 0},
		{"never below 64 KiB", []Mapping{{rng(0x1_3000, 0x7fff_0000_0000), GrowsNot}}, rng(0x1_3000, 0x1_4000), 0x3000, 0},
		{"exactly at 64 KiB", []Mapping{{rng(0x1_4000, 0x7fff_0000_0000), GrowsNot}}, rng(0x1_4000, 0x1_5000), 0x3000, 0x1_0000},
		{"a size beyond everything", nil, pie, ^uint64(0), 0},
	} {
		got, err := findGap(c.used, c.near, c.size, reach, limits, growthRoom)
		if got != c.want || (err != nil) != (c.want == 0) || err != nil && !errors.Is(err, ErrNoGap) {
			t.Errorf("%s: %s, %v; want %s", c.name, got, err, c.want)
		}
	}
}

func TestNoGapNamesTheNearestGap(t *testing.T) {
	near := rng(0x40_0000, 0x50_0000)
	used := []Mapping{{rng(0x1000, 0x2_0000_0000), GrowsNot}, {rng(0x3_0000_0000, limits.End), GrowsNot}}
	_, err := findGap(used, near, 0x1000, 1<<31, limits, growthRoom)
	want := "no free 4096 bytes within 0x80000000 of 400000-500000, the nearest large enough gap is 200001000-2fffff000"
	if err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
	_, err = findGap([]Mapping{{rng(0, limits.End), GrowsNot}}, near, 0x1000, 1<<31, limits, growthRoom)
	if want := "no free 4096 bytes within 0x80000000 of 400000-500000, nor anywhere else"; err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
}

// bruteForce tries every page, by the words of findGap's comment.
func bruteForce(used []Mapping, near arch.Range, size, reach uint64, limits arch.Range, room uint64) (best arch.Addr, ok bool) {
	var distance arch.Addr
	for at := limits.Start &^ (PageSize - 1); at < limits.End; at += PageSize {
		r := rng(at, at+arch.Addr(size))
		free := r.Start >= limits.Start && r.End <= limits.End && r.Start >= 64<<10
		span := max(r.End, near.End) - min(r.Start, near.Start)
		free = free && uint64(span) <= reach && !rng(r.Start-PageSize, r.End+PageSize).Overlaps(near)
		for _, m := range used {
			low, high := m.Range.Start-min(PageSize, m.Range.Start), m.Range.End+PageSize
			if m.Grows == GrowsDown {
				low = m.Range.Start - min(arch.Addr(max(room, PageSize)), m.Range.Start)
			}
			if m.Grows == GrowsUp {
				high = m.Range.End + arch.Addr(max(room, PageSize))
			}
			free = free && !r.Overlaps(rng(low, high))
		}
		if !free {
			continue
		}
		d := r.Start - near.End
		if r.End <= near.Start {
			d = near.Start - r.End
		}
		if !ok || d < distance {
			best, distance, ok = at, d, true
		}
	}
	return best, ok
}

func FuzzFindGap(f *testing.F) {
	f.Add([]byte{60, 4, 0, 70, 9, 1, 120, 8, 2}, uint16(64), uint8(6), uint8(3), uint16(40), uint8(5), uint16(0), uint16(300))
	f.Add([]byte{}, uint16(17), uint8(1), uint8(1), uint16(20), uint8(0), uint16(3), uint16(40))
	f.Fuzz(func(t *testing.T, maps []byte, nearPage uint16, nearLen, sizePages uint8, reachPages uint16, room uint8, first, last uint16) {
		const page = PageSize
		nearPage, first, last, reachPages = nearPage%1024, first%1024, last%1024, reachPages%2048
		near := rng(arch.Addr(nearPage)*page+3, arch.Addr(nearPage)*page+3+arch.Addr(nearLen)*517+1)
		size := (uint64(sizePages)%64 + 1) * page
		lim := rng(arch.Addr(first)*page, arch.Addr(last)*page)
		var used []Mapping
		for ; len(maps) >= 3 && len(used) < 64; maps = maps[3:] {
			start := (arch.Addr(maps[0])*4 + arch.Addr(maps[2]>>6)) * page
			used = append(used, Mapping{rng(start, start+arch.Addr(maps[1])*page/2+page), Growth(maps[2] % 3)})
		}
		growth, reach := uint64(room)*page, uint64(reachPages)*page+uint64(binary.BigEndian.Uint16([]byte{sizePages, room}))
		want, ok := bruteForce(used, near, size, reach, lim, growth)
		got, err := findGap(used, near, size, reach, lim, growth)
		if ok != (err == nil) || got != want {
			t.Fatalf("found %s (%v), brute force %s (%v)\nused %v near %s size %#x reach %#x limits %s", got, err, want, ok, used, near, size, reach, lim)
		}
	})
}
