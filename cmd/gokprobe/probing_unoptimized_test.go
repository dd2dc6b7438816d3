package main

import (
	"slices"
	"testing"

	"github.com/gokprobe/gokprobe/cmd/gokprobe/internal/event"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/trace"
)

func TestUnoptimizedProbesAreCountedByReasonWithoutAddresses(t *testing.T) {
	at := func(m kprobes.Mechanism, why string) trace.PlaceStats {
		return trace.PlaceStats{Mechanism: m, Reason: why}
	}
	places := []trace.PlaceStats{
		at(kprobes.Boosted, "another probe lies in the optimized region, at 0x7f964cab63a0"),
		at(kprobes.Int3, "the instruction is emulated"),
		at(kprobes.Boosted, "another probe lies in the optimized region, at 0x7f964cab63c5"),
		at(kprobes.Boosted, "the instruction can't run as a copy (0x401136): why"),
		at(kprobes.NoMechanism, "libplug.so was unloaded"),
		at(kprobes.Boosted, ""), // soon
	}
	if got := unoptimized(places); got != nil {
		t.Errorf("none is optimized: %v", got)
	}
	want := []event.Loss{
		{Reason: "another probe lies in the optimized region", N: 2},
		{Reason: "the instruction can't run as a copy: why", N: 1},
		{Reason: "the instruction is emulated", N: 1},
	}
	if got := unoptimized(append(places, at(kprobes.Optimized, ""))); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
