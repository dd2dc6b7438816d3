package numbers

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/trace"
)

const oddTypes = `#include <stdio.h>
struct in { char a; int b; long c; unsigned f : 3; int g : 5; short h[2][3]; };
struct __attribute__((scalar_storage_order("big-endian"))) big { int x; short y; };
struct small { int a, b; };
__attribute__((noinline)) int handle(struct in *p, struct big *b, struct small v, int n)
{
	int made[n];
	for (int i = 0; i < n; i++)
		made[i] = p->b + i;
	asm volatile("" ::"r"(made), "r"(b) : "memory");
	return made[n - 1] + v.b; /* line 11 */
}
int main(void)
{
	struct in in = { 'x', 2, 3, 5, -3, { { 1, 2, 3 }, { 4, 5, 6 } } };
	struct big big = { 100, 200 };
	puts("ready");
	fflush(stdout);
	for (int c; (c = getchar()) >= 0;)
		if (c == '\n') {
			struct small v = { 7, 8 };
			handle(&in, &big, v, 4);
			puts("done");
			fflush(stdout);
		}
	return 0;
}
`

// TestOddTypesAreUnderstoodOrUnknown: members whose place is an expression, the other order of bytes, arrays whose length the program chooses, and types in sections that
// are not read.
func TestOddTypesAreUnderstoodOrUnknown(t *testing.T) {
	m := maker{name: "gcc", suffix: ".c"}
	known := [][2]string{
		{"p->a", "120 'x'"}, {"p->b", "2"}, {"p->c", "3"}, {"p->f", "5"}, {"p->g", "-3"}, {"p->h", "{{1, 2, 3}, {4, 5, 6}}"}, {"p->h[1][2]", "6"}, {"v.b", "8"}, {"n", "4"},
		{"b->x", "0x00000064"}, {"b->y", "0x00c8"},
	}
	for _, dwarf := range []string{"-gdwarf-2", "-gdwarf-3", "-gdwarf-4", "-gdwarf-5"} {
		hold, fail := conditionsOf(known)
		walk(t, m.compile(t, []string{dwarf, "-w", "-O1"}, oddTypes), "handle", known, hold, fail, false)
	}
	for _, flags := range [][]string{{"-g", "-w", "-fdebug-types-section"}, {"-g", "-w", "-O2"}} {
		p := testprog.Start(t, m.compile(t, flags, oddTypes))
		s, err := trace.Attach(t.Context(), p.PID())
		if err != nil {
			t.Fatal(err)
		}
		entry := place(t, s, "handle", trace.Args())
		line := place(t, s, "random.c:11", trace.Locals())
		p.Do("go", "done")
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		for h := range entry.Hits() {
			for _, a := range h.Args {
				if got := a.String(); a.Name == "v" && got != "?" && got != "{a: 7, b: 8}" || a.Name == "n" && got != "?" && got != "4" {
					t.Errorf("%v: %s is %s", flags, a.Name, got)
				}
			}
		}
		for h := range line.Hits() {
			for _, a := range h.Locals {
				if got := a.String(); a.Name == "made" && got != "?" && !strings.HasPrefix(got, "{2, 3, 4, 5") {
					t.Errorf("%v: the array is %s", flags, got)
				}
			}
		}
		p.CheckClean()
		p.Quit()
	}
}

const virtualBases = `#include <cstdio>
struct V { int v; virtual ~V() {} };
struct A : virtual V { int a; };
struct D : A { int d; };
extern "C" __attribute__((noinline)) int handle(D *d, A &r, V v) { return d->v + r.a + v.v; }
int main()
{
	D d;
	d.v = 77, d.a = 22, d.d = 44;
	puts("ready");
	fflush(stdout);
	for (int c; (c = getchar()) >= 0;)
		if (c == '\n') {
			handle(&d, d, d);
			puts("done");
			fflush(stdout);
		}
}
`

// TestVirtualBasesAreUnknown: where one lies is told by the object.
func TestVirtualBasesAreUnknown(t *testing.T) {
	p := testprog.Start(t, maker{name: "g++", suffix: ".cc"}.compile(t, []string{"-g"}, virtualBases))
	s, err := trace.Attach(t.Context(), p.PID())
	if err != nil {
		t.Fatal(err)
	}
	probe := place(t, s, "handle", trace.AsInSource(), trace.Fetch("*d", "r.a", "d.d", "r"))
	if _, err := s.Probe("handle", trace.If("d->v == 77")); err == nil {
		t.Error("a condition over a member of a virtual base was accepted")
	}
	p.Do("go", "done")
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	for h := range probe.Hits() {
		got := fmt.Sprint(h.Args[0].String(), h.Args[1].String(), h.Args[2].String(), h.Args[3].String())
		if strings.Count(got, "V: ?") != 2 || strings.Contains(got, "v: ") || h.Args[1].String() != "22" || h.Args[2].String() != "44" {
			t.Errorf("the values are %s", got)
		}
	}
	p.CheckClean()
	p.Quit()
}
