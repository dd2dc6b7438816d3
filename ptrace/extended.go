package ptrace

import (
	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
)

// ST returns x87 register st(n), n being 0 to 7. It returns ErrExited if the thread is gone.
func (th *Thread) ST(n int) (v [10]byte, err error) {
	v, err = host.X87(th.TID, n)
	return v, th.gone(err)
}

// XMM returns the low 128 bits of vector register n. The thread must be stopped.
func (th *Thread) XMM(n int) (lo, hi uint64, err error) {
	lo, hi, err = host.Vector(th.TID, n)
	return lo, hi, th.gone(err)
}

// SetXMM changes the low 128 bits of vector register n and nothing else. The thread must be
// stopped.
func (th *Thread) SetXMM(n int, lo, hi uint64) error {
	image, err := th.extended()
	if err != nil {
		return err
	}
	host.SetVector(image, n, lo, hi)
	return th.setExtended(image)
}

// MoveLastFPUInsn makes the thread remember to as the address of the last x87 instruction that it executed, if it remembers from. The thread must be
// stopped.
func (th *Thread) MoveLastFPUInsn(from, to arch.Addr) error {
	image, err := th.extended()
	if err != nil || !host.MoveLastFPUInsn(image, from, to) {
		return err
	}
	return th.setExtended(image)
}

// extended reads the extended state: all registers but the general ones. The slice is valid until the next call.
func (th *Thread) extended() ([]byte, error) {
	t := th.Proc.tracer
	if t.fpu == nil {
		t.fpu = make([]byte, 64<<10)
	}
	image, err := host.ReadExtended(th.TID, t.fpu)
	return image, th.gone(err)
}

func (th *Thread) setExtended(image []byte) error {
	return th.gone(host.WriteExtended(th.TID, image))
}
