package trampoline

import (
	"math/rand"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
)

// library is a module of 10 MiB between others, as the dynamic linker maps it.
var library = rng(0x7f12_3456_7000, 0x7f12_3456_7000+10<<20)

func libraries(t *testing.T) *target {
	return &target{t: t, maps: map[arch.Range][]byte{}, used: []Mapping{
		{Range: library}, {Range: rng(library.End+0x1000, library.End+30<<20)},
		{Range: rng(library.End+1<<30, library.End+1<<30+0x2_1000), Grows: GrowsDown},
	}}
}

// static is a program at the address that is usual where it can't be chosen.
var static = rng(0x40_0000, 0x40_0000+10<<20)

func program(t *testing.T) *target {
	return &target{t: t, maps: map[arch.Range][]byte{}, used: []Mapping{
		{Range: static}, {Range: rng(static.End+0x12_3000, static.End+0x14_4000), Grows: GrowsUp},
	}}
}

// TestManySites prints what a module takes all of whose functions, or instructions, are probed.
func TestManySites(t *testing.T) {
	for _, c := range []struct {
		name   string
		target *target
		module arch.Range
		kept   bool // the first instruction inside of the jump is a branch target
		sites  int
		land   int // at least so many
		arenas int // at most
	}{
		{"a library, heads may trap", libraries(t), library, false, 100_000, 99_000, 100},
		{"a library, bytes are kept", libraries(t), library, true, 2000, 1500, 600},
		{"a program, heads may trap", program(t), static, false, 100_000, 99_000, 100},
		{"a program, bytes are kept", program(t), static, true, 2000, 900, 600},
	} {
		rnd := rand.New(rand.NewSource(1))
		r := New(optimized, owner, c.target)
		landed, entries, options := 0, 0, map[int]int{}
		for range c.sites {
			from := c.module.Start + arch.Addr(rnd.Intn(int(c.module.Len())))
			o := patterns(rnd, from)
			if c.kept {
				o = o[len(o)-1:]
			}
			l, ok := c.target.tryLand(r, c.module, o, 60+rnd.Intn(60))
			if !ok {
				continue
			}
			landed++
			options[l.Option]++
			if l.Entry != l.Detour {
				entries++
			}
		}
		arenas, pages := 0, 0
		for _, a := range r.Arenas() {
			arenas++
			pages += a.ground.code.touched()
		}
		t.Logf("%s: %d of %d landed (%.2f %%), by option %v, %d by an entry of their own, %d arenas, %d pages of code (%.2f a site)",
			c.name, landed, c.sites, 100*float64(landed)/float64(c.sites), options, entries, arenas, pages, float64(pages)/float64(landed))
		if landed < c.land || arenas > c.arenas {
			t.Errorf("%s: %d of %d landed in %d arenas", c.name, landed, c.sites, arenas)
		}
	}
}
