package symbols

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/gokprobe/gokprobe/arch"
)

// VectorSetter is an interface of register sets, beside arch.Regs, whose vector registers can
// be changed. Without it floating-point results can't be stored.
type VectorSetter interface {
	// SetVector changes the low 16 bytes of vector register n (xmm n) and nothing else.
	SetVector(n int, v [16]byte) error
}

var (
	errStoreX87    = errors.New("it is returned in the x87 registers, which can't be set")
	errStoreMemory = errors.New("it is returned in memory of the caller")
	errStoreSize   = errors.New("the value has another size than its type")
)

// Storable returns nil if Store can store a value of the result p, or an error that says why
// it can't.
func (p Param) Storable() error {
	err := error(nil)
	switch {
	case !p.place.isKnown(p.typ):
		err = errNoPlace
	case p.place.isIndirect:
		err = errStoreMemory
	}
	for _, x := range p.place.parts {
		if x.off < 0 || !p.place.isIndirect && x.off+x.size > p.typ.size {
			err = errNoPlace
		} else if x.reg == "st" {
			err = errStoreX87
		}
	}
	if err != nil {
		return fmt.Errorf("%s (%s): %w", p.Name, p.Type, err)
	}
	return nil
}

// Store puts raw, the bytes of a value of p's type, into p's place, where the caller looks for
// the result. The call must have just returned, with r's stack pointer above the return
// address. Registers are changed as a whole: integers are extended by zeros. If p is, or
// contains, a floating-point number, r must also be a VectorSetter. After an error the value
// is stored not at all, or only in part.
func (p Param) Store(raw []byte, r arch.Regs, m arch.Memory) error {
	if err := p.Storable(); err != nil {
		return err
	}
	if int64(len(raw)) != p.typ.size {
		return fmt.Errorf("%s (%s): %w", p.Name, p.Type, errStoreSize)
	}
	for _, x := range p.place.parts {
		if err := x.store(raw[x.off:x.off+x.size], r, m); err != nil {
			return fmt.Errorf("%s (%s): %w", p.Name, p.Type, err)
		}
	}
	return nil
}

func (x part) store(b []byte, r arch.Regs, m arch.Memory) error {
	switch x.reg {
	case "":
		if len(b) == 0 {
			return nil
		}
		return m.WriteMemory(r.SP().Add(x.stack), b)
	case "xmm":
		vs, ok := r.(VectorSetter)
		if !ok {
			return errNoVector
		}
		var v [16]byte
		copy(v[:], b)
		return vs.SetVector(x.n, v)
	}
	var v [8]byte
	copy(v[:], b)
	if !r.Set(x.reg, binary.LittleEndian.Uint64(v[:])) {
		return fmt.Errorf("no register %s", x.reg)
	}
	return nil
}

// Bytes are the bytes of p's value, where and when Value reads it.
func (p Param) Bytes(r arch.Regs, m arch.Memory) ([]byte, error) {
	raw, err := p.place.read(p.typ, r, m)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.Name, err)
	}
	return raw, nil
}
