package symbols

import (
	"os/exec"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
)

// TestRendezvousIsFoundHoweverTheProgramIsLinked: the oracle is the symbol table, which names
// the function that the dynamic linker calls.
func TestRendezvousIsFoundHoweverTheProgramIsLinked(t *testing.T) {
	const ldso = "/lib64/ld-linux-x86-64.so.2"
	for _, c := range []struct {
		name  string
		flags []string
		by    []string // the command line in front of the target's
		none  bool
	}{
		{name: "PIE"},
		{name: "fixed", flags: []string{"-no-pie"}},
		{name: "by ld.so", by: []string{ldso}},
		{name: "static", flags: []string{"-static", "-w"}},
		{name: "static PIE", flags: []string{"-static-pie", "-w"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			argv := append(c.by, build(t, "loader.c", c.flags...))
			tg := startCmd(t, exec.Command(argv[0], argv[1:]...))
			tab := tg.open(t)
			r, ok := tab.Rendezvous()
			if !ok {
				t.Fatal("it is not found")
			}
			want := one(t, tab, "_dl_debug_state").Addr
			if r.Brk != want {
				t.Errorf("it is at %v, want %v", r.Brk, want)
			}
			if r.Busy(tg.mem) {
				t.Error("the dynamic linker is busy at rest")
			}
		})
	}
	t.Run("no dynamic linker", func(t *testing.T) {
		tg := start(t, build(t, "plain.go"))
		if r, ok := tg.open(t).Rendezvous(); ok {
			t.Errorf("it is found: %+v", r)
		}
	})
}

// wordMemory is memory of the words in it.
type wordMemory map[arch.Addr]uint64

func (m wordMemory) ReadMemory(at arch.Addr, p []byte) error {
	for i := range p {
		w, ok := m[(at+arch.Addr(i))&^7]
		if !ok {
			return &arch.FaultError{Addr: at}
		}
		p[i] = byte(w >> (8 * (uint64(at+arch.Addr(i)) % 8)))
	}
	return nil
}

func (m wordMemory) WriteMemory(at arch.Addr, p []byte) error {
	return &arch.FaultError{Addr: at, Write: true}
}

// TestBusyLooksAtAllNamespaces, and a damaged list neither hangs nor fails it.
func TestBusyLooksAtAllNamespaces(t *testing.T) {
	at := func(a arch.Addr, version, state, next uint64) wordMemory {
		return wordMemory{a: version, a + 8: 0, a + 16: 0, a + 24: state, a + 32: 0, a + 40: next}
	}
	join := func(ms ...wordMemory) wordMemory {
		all := wordMemory{}
		for _, m := range ms {
			for a, w := range m {
				all[a] = w
			}
		}
		return all
	}
	for name, c := range map[string]struct {
		mem  wordMemory
		want bool
	}{
		"at rest":               {at(0x1000, 1, 0, 0), false},
		"adding":                {at(0x1000, 1, 1, 0), true},
		"removing":              {at(0x1000, 1, 2, 0), true},
		"old, garbage behind":   {join(at(0x1000, 1, 0, 0x2000), at(0x2000, 1, 1, 0)), false},
		"in another namespace":  {join(at(0x1000, 2, 0, 0x2000), at(0x2000, 2, 1, 0)), true},
		"namespaces at rest":    {join(at(0x1000, 2, 0, 0x2000), at(0x2000, 2, 0, 0)), false},
		"a list without an end": {at(0x1000, 2, 0, 0x1000), false},
		"a list into nowhere":   {at(0x1000, 2, 0, 0x2000), false},
		"unmapped":              {wordMemory{}, false},
	} {
		if got := (Rendezvous{debug: 0x1000}).Busy(c.mem); got != c.want {
			t.Errorf("%s: busy is %v", name, got)
		}
	}
}

func TestLibraryOfASpecification(t *testing.T) {
	for spec, want := range map[string]string{
		"libx.so:foo": "libx.so", "libx.so.1:foo+0x4": "libx.so.1", "/a/libx.so:ns::foo(int)": "/a/libx.so",
		"libx.so:0x1139": "libx.so", "libx.so:x.c:42": "libx.so", "foo": "", "prog:foo": "", "0x1234": "", "a::b": "", "x.c:42": "", "": "",
	} {
		if got := Library(spec); got != want {
			t.Errorf("%q: %q, want %q", spec, got, want)
		}
	}
}
