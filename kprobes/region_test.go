package kprobes

import (
	"slices"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/trampoline"
)

// TestTheHeapHasRoomToGrow, and nothing else has: the kernel puts the heap up to 1 GiB behind a program, and a program that lies below 2 GiB may have no other room in
// the reach of its jumps than that in between.
func TestTheHeapHasRoomToGrow(t *testing.T) {
	at := func(start, end arch.Addr) arch.Range { return arch.Range{Start: start, End: end} }
	code, bss, grown, stack := at(0x40_0000, 0x64_0000), at(0x64_0000, 0x8a_0000), at(0x40d4_6000, 0x40d6_7000), at(0x7ffc_0000_0000, 0x7ffc_0002_1000)
	maps := []procfs.Mapping{{Range: code, Exec: true, Path: "/bin/p"}, {Range: bss, Write: true}, {Range: grown, Write: true, Path: "[heap]"}, {Range: stack, Write: true, Path: "[stack]"}}
	all := []trampoline.Mapping{{Range: code}, {Range: bss}, {Range: grown, Grows: trampoline.GrowsUp}, {Range: stack, Grows: trampoline.GrowsDown}}
	if got := usedMappings(maps, 0); !slices.Equal(got, all) {
		t.Errorf("the heap's beginning is not known: %v, want %v", got, all)
	}
	want := append(all, trampoline.Mapping{Range: at(grown.Start, grown.Start), Grows: trampoline.GrowsUp})
	if got := usedMappings(maps, grown.Start); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	ungrown := slices.Delete(slices.Clone(maps), 2, 3)
	if got, want := usedMappings(ungrown, grown.Start), slices.Delete(slices.Clone(want), 2, 3); !slices.Equal(got, want) {
		t.Errorf("before the first brk(2): %v, want %v", got, want)
	}
}

// TestWhereAHeapBegins: the kernel tells it of a program, whether it has one yet or not.
func TestWhereAHeapBegins(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "threads"), "1")
	st, err := procfs.ReadStat(prog.PID(), 0)
	if err != nil {
		t.Fatal(err)
	}
	maps, err := procfs.Maps(prog.PID())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range maps {
		if m.Path == "[heap]" && m.Range.Start != arch.Addr(st.StartBrk) {
			t.Errorf("the heap is at %s, not at %#x", m.Range, st.StartBrk)
		}
	}
	if st.StartBrk == 0 {
		t.Error("it is not told")
	}
}
