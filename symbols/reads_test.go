package symbols

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
)

// capture is what Reads tells to take of a hit, and the registers and memory that it makes. What it
// has not is not there.
type capture struct {
	arch.Regs
	t     *testing.T
	name  string
	regs  map[string]uint64
	reads []captured
}

type captured struct {
	at    arch.Addr
	bytes []byte // nil if they can't be read
	want  int    // bytes that were asked for
}

func (c *capture) SP() arch.Addr { return arch.Addr(c.regs["rsp"]) }

func (c *capture) Get(name string) (uint64, bool) {
	v, ok := c.regs[name]
	if !ok {
		c.t.Errorf("%s: Value reads register %s, which Reads does not tell", c.name, name)
	}
	return v, ok
}

func (c *capture) ReadMemory(at arch.Addr, p []byte) error {
	for _, x := range c.reads {
		if at < x.at || at-x.at > arch.Addr(x.want) || arch.Addr(len(p)) > arch.Addr(x.want)-(at-x.at) {
			continue
		}
		if in := int(at - x.at); in+len(p) <= len(x.bytes) {
			copy(p, x.bytes[in:])
			return nil
		}
		return &arch.FaultError{Addr: at}
	}
	c.t.Errorf("%s: Value reads %d bytes at %s, which Reads does not tell", c.name, len(p), at)
	return &arch.FaultError{Addr: at}
}

func (c *capture) WriteMemory(at arch.Addr, p []byte) error {
	return &arch.FaultError{Addr: at, Write: true}
}

// take follows the reads of one parameter.
func (c *capture) take(r arch.Regs, m arch.Memory, regs []string, reads []Read) {
	c.regs["rsp"] = uint64(r.SP())
	for _, name := range regs {
		c.regs[name], _ = r.Get(name)
	}
	word := func(w Word) uint64 {
		if w.IsConst {
			return uint64(w.Plus)
		}
		if w.Reg != "" {
			v, ok := r.Get(w.Reg)
			if !ok {
				c.t.Errorf("%s: no register %s", c.name, w.Reg)
			}
			return v + uint64(w.Plus)
		}
		if b := c.reads[w.Read].bytes; w.At+8 <= int64(len(b)) {
			return binary.LittleEndian.Uint64(b[w.At:]) + uint64(w.Plus)
		}
		return uint64(w.Plus)
	}
	for _, x := range reads {
		at, n := arch.Addr(word(x.Addr)+uint64(x.Off)), int(x.Max)
		if x.Kind == ReadCounted {
			n = int(min(word(x.Count), uint64(x.Max/x.Elem)) * uint64(x.Elem))
		}
		b := make([]byte, n)
		if m.ReadMemory(at, b) != nil {
			b = nil
		}
		if x.Kind == ReadText && b == nil {
			b = (&formatter{mem: m}).prefix(at, n)
		}
		c.reads = append(c.reads, captured{at, b, n})
	}
}

// What Reads tells is enough to print the same, for all parameters but those of which it says
// that it can't.
func TestReadsAreWhatValueReads(t *testing.T) {
	for _, c := range []struct {
		src     string
		flags   []string
		calls   []struct{ fn, want string }
		without string // parameters that can't be told
	}{
		{"params.c", []string{"-g", "-O1"}, cCalls, "floats.f floats.d floats.e structs.q structs.m many.x split.m split.p cplx.f cplx.d nine.a nine.b nine.c nine.d nine.e nine.f nine.g nine.h"},
		{"params.cc", []string{"-g", "-O1", "-std=c++17"}, cppCalls, ""},
		{"params.go", nil, goCalls, "main.Scalars.d main.Scalars.e main.Structs.c main.Pointers.m main.Pointers.e main.Pointers.none main.Pointers.any main.(*Box[...]).Put.v"},
		{"params.rs", []string{"-g"}, rustCalls, "params::scalars.d params::aggregates.q"},
	} {
		t.Run(c.src, func(t *testing.T) {
			x := trace(t, build(t, c.src, c.flags...), mainOf(c.src))
			var without []string
			for _, call := range c.calls {
				x.runTo(one(t, x.tab, call.fn).Addr)
				r := x.vectorRegs()
				params, err := x.tab.Params(r.IP())
				if err != nil {
					t.Fatal(err)
				}
				for _, p := range params {
					if _, _, ok := p.Reads("rsp"); !ok {
						without = append(without, call.fn+"."+p.Name)
						p = p.Brief()
					}
					regs, reads, ok := p.Reads("rsp")
					if !ok {
						continue
					}
					cap := &capture{t: t, name: call.fn + "." + p.Name, regs: map[string]uint64{}}
					cap.take(r, x.mem, regs, reads)
					if got, want := p.Value(cap, cap).Text, p.Value(r, x.mem).Text; got != want {
						t.Errorf("%s.%s: got %s, want %s; %+v", call.fn, p.Name, got, want, reads)
					}
				}
			}
			if got := strings.Join(without, " "); got != c.without {
				t.Errorf("not told: %s", got)
			}
		})
	}
}
