package program

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf/asm"
)

// decision is a checked Decision, and what it runs on.
func decision(t *testing.T, c Cond) (*Checked, *Env) {
	t.Helper()
	p, err := Decision("test", testRegs, c)
	if err != nil {
		t.Fatal(err)
	}
	checked, err := Check(p)
	if err != nil {
		t.Fatalf("%v\n%v", err, p.Insns)
	}
	return checked, env(p, regs{5, 0x1000, 0x10, spAt}, target)
}

// chosen lists which of n hits a decision chooses.
func chosen(t *testing.T, n int, c Cond) (list []int) {
	t.Helper()
	p, e := decision(t, c)
	for i := range n {
		yes, err := p.Decide(e)
		if err != nil {
			t.Fatal(err)
		}
		if yes {
			list = append(list, i)
		}
	}
	return list
}

func TestDecisionsChooseTheHitsThatMeetThem(t *testing.T) {
	is := func(e Expr, op Op, n int64) Cond { return Compare(e, op, Const(n)) }
	third := is(Sequence(0).Mod(3), Equal, 2)
	for name, tt := range map[string]struct {
		c    Cond
		want []int
	}{
		"always":                             {Cond{}, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}},
		"never":                              {Not(Cond{}), nil},
		"each third":                         {third, []int{2, 5, 8}},
		"others":                             {Not(third), []int{0, 1, 3, 4, 6, 7, 9}},
		"the first two":                      {is(Sequence(0), Below, 2), []int{0, 1}},
		"each has its own":                   {Any(is(Sequence(0), Equal, 4), is(Sequence(1), Equal, 4)), []int{4, 5}},
		"stops at the first that is not met": {All(third, is(Sequence(1), Equal, 1)), []int{5}},
		"a register":                         {All(is(Reg("ax"), Equal, 5), third), []int{2, 5, 8}},
		"another":                            {All(is(Reg("ax"), Equal, 6), third), nil},
		"memory":                             {All(is(Reg("di").Load(4, S16), Equal, -2), third), []int{2, 5, 8}},
		"bad memory":                         {Not(is(Reg("si").Load(4, S16), Equal, -2)), nil},
		"twice in one":                       {is(Sequence(0), Equal, 6).and(is(Sequence(0), Equal, 7)), []int{6}},
		"a large divisor":                    {is(Const(-1).Mod(1<<40), Equal, 1<<40-1), []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}},
		"the greatest":                       {is(Const(-2).Mod(1<<64-1), Equal, -2), []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}},
		"sequence on right":                  {Compare(Const(3), Equal, Sequence(0)), []int{3}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := chosen(t, 10, tt.c); !slices.Equal(got, tt.want) {
				t.Errorf("chosen %v, want %v", got, tt.want)
			}
		})
	}
}

func (c Cond) and(o Cond) Cond { return All(c, o) }

// TestConditionsOfOtherRegisters: With puts numbers in the place of registers, and leaves the condition itself as it is.
func TestConditionsOfOtherRegisters(t *testing.T) {
	c := All(Compare(Reg("ax"), Equal, Const(5)), Any(Not(Compare(Reg("si").As(U8), Above, Reg("ax").Plus(0x20))), Compare(Sequence(3), Equal, Const(0))))
	if got := fmt.Sprint(c.Registers(), c.Cells(), Cond{}.Registers(), Cond{}.Cells()); got != "[ax si] 4 [] 0" {
		t.Error(got)
	}
	other := c.With(func(reg string) Expr {
		return map[string]Expr{"ax": Reg("di").Plus(5 - 0x1000), "si": Const(0x126)}[reg]
	})
	if got := fmt.Sprint(other.Registers(), c.Registers()); got != "[di] [ax si]" {
		t.Error(got)
	}
	for i, c := range []Cond{c, other, other.With(func(string) Expr { return Const(0x1000) })} {
		if got, want := chosen(t, 2, c), [][]int{{0, 1}, {0}, {0}}[i]; !slices.Equal(got, want) {
			t.Errorf("%d: %v, want %v", i, got, want)
		}
	}
}

// splitmix is number n of the sequence of splitmix64 that seed begins (Vigna's public domain
// splitmix64.c).
func splitmix(seed, n uint64) uint64 {
	z := seed + (n+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func TestMixedIsSplitmix64(t *testing.T) {
	if got := splitmix(1234567, 0); got != 6457827717110365317 { // as published for that seed
		t.Fatalf("the test's own is wrong: %d", got)
	}
	for _, seed := range []uint64{0, 1, 1234567, 1 << 31, 1 << 63, ^uint64(0)} {
		for n := range uint64(50) {
			p := build(t, Cond{}, WriteRecord{Ring: ring, Items: []Item{{Name: "n", Value: Const(int64(n)).Mixed(seed)}}})
			e := env(p, regs{0, 0, 0, 0}, nil)
			run(t, p, e)
			if got := uintOf(records(t, p.Maps[0], e.Maps[0])[0].Payload); got != splitmix(seed, n) {
				t.Fatalf("seed %d, number %d: %#x, want %#x", seed, n, got, splitmix(seed, n))
			}
		}
	}
}

func TestAProbabilityChoosesAsManyHitsAsItSays(t *testing.T) {
	const n, seed = 20000, 42
	for _, percent := range []uint64{0, 1, 10, 50, 99} {
		threshold, _ := bits.Div64(percent, 0, 100)
		got := chosen(t, n, Compare(Sequence(0).Mixed(seed), Below, Const(int64(threshold))))
		var want []int
		for i := range n {
			if splitmix(seed, uint64(i)) < threshold {
				want = append(want, i)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d %%: %d hits, want %d", percent, len(got), len(want))
		}
		if off := len(got) - n*int(percent)/100; off < -n/50 || off > n/50 {
			t.Errorf("%d %%: %d hits of %d", percent, len(got), n)
		}
	}
}

// The state keeps away from the maps that actions are known to have.
func TestTheStateIsTheLastMap(t *testing.T) {
	p := build(t, Compare(Sequence(4).Mod(2), Equal, Const(1)), CountHit{}, AddToHistogram{Map{Kind: Log2}, Reg("ax")})
	if got := fmt.Sprint(p.Maps[0].Kind, p.Maps[1].Kind, p.Maps[2]); p.State() != 2 || p.Maps[2].Cells != 5 {
		t.Fatalf("maps %s, state %d", got, p.State())
	}
	e := env(p, regs{8, 0, 0, 0}, nil)
	for range 5 {
		run(t, p, e)
	}
	for i, want := range map[int][]uint64{0: {2}, 2: {0, 0, 0, 0, 5}} {
		if got, err := p.Maps[i].Values(e.Maps[i]); err != nil || !slices.Equal(got, want) {
			t.Errorf("map %d: %v, %v, want %v", i, got, err, want)
		}
	}
}

func TestImpossibleDecisionsAreRefused(t *testing.T) {
	for want, c := range map[string]Cond{
		"division by zero": Compare(Reg("ax").Mod(0), Equal, Const(0)),
		"no cell -1":       Compare(Sequence(-1), Equal, Const(0)),
		"no cell 512":      Compare(Sequence(MaxCells), Equal, Const(0)),
		"no register":      Compare(Reg("none"), Equal, Const(0)),
	} {
		if _, err := Decision("d", testRegs, c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not say %q", err, want)
		}
	}
}

func TestAProgramThatDecidesEndsWithANumber(t *testing.T) {
	for name, tt := range map[string]struct {
		insns asm.Instructions
		want  string
	}{
		"nothing":     {asm.Instructions{exit}, "r0 is not set"},
		"an address":  {asm.Instructions{asm.Mov.Reg(asm.R0, asm.R10), exit}, "r0 is an address"},
		"on one way":  {asm.Instructions{asm.LoadMem(asm.R2, asm.R1, 0, asm.DWord), asm.JEq.Imm(asm.R2, 0, "l"), asm.Mov.Imm(asm.R0, 1), exit.WithSymbol("l")}, "r0 is not set"},
		"on each way": {asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.LoadMem(asm.R2, asm.R1, 0, asm.DWord), asm.JEq.Imm(asm.R2, 0, "l"), asm.Mov.Imm(asm.R0, 1), exit.WithSymbol("l")}, ""},
	} {
		_, err := Check(&Program{Name: name, Regs: testRegs, Insns: tt.insns, Decides: true})
		if tt.want == "" && err != nil || tt.want != "" && (!errors.Is(err, ErrUnsafe) || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: error %v, want %q", name, err, tt.want)
		}
		if _, err := Check(&Program{Name: name, Regs: testRegs, Insns: tt.insns}); err != nil {
			t.Errorf("%s, of a program that does not decide: %v", name, err)
		}
	}
}

// What decides is not unused, though no instruction reads it.
func TestTheDecisionIsUsed(t *testing.T) {
	insns := asm.Instructions{asm.LoadMapPtr(asm.R1, 0), asm.Mov.Imm(asm.R2, 0), FetchAdd.Call(), exit}
	for _, decides := range []bool{false, true} {
		c, err := Check(&Program{Insns: insns, Maps: []Map{{Kind: State, Cells: 1}}, Decides: decides})
		if err != nil {
			t.Fatal(err)
		}
		if c.Code[2].Call.ResultUnused == decides || c.Code[2].Live&1 != 0 != decides {
			t.Errorf("decides %t: unused %t, live %b", decides, c.Code[2].Call.ResultUnused, c.Code[2].Live)
		}
	}
}
