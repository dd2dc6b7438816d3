package kprobes

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/ptrace"
	"github.com/gokprobe/gokprobe/symbols"
)

// Regs is what a handler sees of the thread that hit: its registers and, through
// them, its memory. It is valid during the handler's call only.
type Regs struct {
	arch.Regs
	thread  *ptrace.Thread
	domain  *domain
	hit     *threadState // whose registers they are
	running *Kprobe      // whose PreHandler or PostHandler runs
	undo    *undo        // while the body of a Jprobe runs
}

// TID is the thread's ID.
func (r *Regs) TID() int { return r.thread.TID }

// PID is the ID of the thread's process.
func (r *Regs) PID() int { return r.thread.Proc.PID }

// Comm is the thread's name. It may be a tenth of a second old.
func (r *Regs) Comm() string { return r.thread.Comm(time.Now()) }

// Symbols is the table of what the thread's process has mapped. Of a followed child, which may have loaded other libraries or executed another program,
// it is another one than Session.Symbols. It may be used during the handler's call only.
func (r *Regs) Symbols() *symbols.Table { return r.domain.linker.symbols() }

// Place is the address of the probe in the thread's process, in a handler of its hit; at a return, the address that is returned to.
func (r *Regs) Place() arch.Addr {
	if hit := r.state(); hit != nil && hit.site != nil && !hit.left {
		return hit.site.returnsTo()
	}
	return r.domain.followed.relays.behind(r.IP())
}

// ReadMemory fills p from target memory at at. A failure is an *arch.FaultError.
func (r *Regs) ReadMemory(at arch.Addr, p []byte) error {
	err := rawMemory{r}.ReadMemory(at, p)
	if err != nil && r.mended() {
		err = rawMemory{r}.ReadMemory(at, p)
	}
	return err
}

// WriteMemory stores p in target memory at at, where the target itself could. A
// failure is an *arch.FaultError.
func (r *Regs) WriteMemory(at arch.Addr, p []byte) error {
	if r.undo != nil {
		r.undo.note(rawMemory{r}, at, len(p))
	}
	err := r.domain.space.WriteMemory(at, p)
	if err != nil && r.mended() {
		err = r.domain.space.WriteMemory(at, p)
	}
	return err
}

// ReadUint64 reads 8 bytes of target memory.
func (r *Regs) ReadUint64(at arch.Addr) (uint64, error) {
	var b [8]byte
	err := r.ReadMemory(at, b[:])
	return binary.LittleEndian.Uint64(b[:]), err
}

// ReadString reads the NUL-terminated string at at, at most limit bytes of it.
func (r *Regs) ReadString(at arch.Addr, limit int) (string, error) {
	const page = 4096
	var text []byte
	for len(text) < limit {
		// Piecewise to page ends: what follows may not be mapped.
		n := min(limit-len(text), page-int(at%page))
		b := make([]byte, n)
		if err := r.ReadMemory(at, b); err != nil {
			return string(text), err
		}
		if i := bytes.IndexByte(b, 0); i >= 0 {
			return string(append(text, b[:i]...)), nil
		}
		text = append(text, b...)
		at += arch.Addr(n)
	}
	return string(text), nil
}

// WriteUint64 stores 8 bytes in target memory.
func (r *Regs) WriteUint64(at arch.Addr, v uint64) error {
	return r.WriteMemory(at, binary.LittleEndian.AppendUint64(nil, v))
}

// WriteString stores text and a NUL behind it at at.
func (r *Regs) WriteString(at arch.Addr, text string) error {
	return r.WriteMemory(at, append([]byte(text), 0))
}

// Processor is the number of the processor that the thread was on when it stopped.
func (r *Regs) Processor() int { return r.thread.Processor() }

func (r *Regs) processor() uint64 { return uint64(r.Processor()) }

// ThreadPointer is where the thread's local storage begins (fs:0): variables of the
// executable lie below it, at offsets that the linker has chosen (ELF Handling For
// Thread-Local Storage, variant II).
func (r *Regs) ThreadPointer() arch.Addr { return r.Regs.ThreadPointer() }

// XMM returns the low 128 bits of vector register n (0 to 15).
func (r *Regs) XMM(n int) (lo, hi uint64, err error) {
	if n < 0 || n > 15 {
		return 0, 0, errors.New("vector registers are numbered 0 to 15")
	}
	if err := r.stopped(); err != nil {
		return 0, 0, err
	}
	return r.thread.XMM(n)
}

// SetXMM changes the low 128 bits of vector register n (0 to 15); what lies above them stays.
func (r *Regs) SetXMM(n int, lo, hi uint64) error {
	if n < 0 || n > 15 {
		return errors.New("vector registers are numbered 0 to 15")
	}
	if err := r.stopped(); err != nil {
		return err
	}
	return r.thread.SetXMM(n, lo, hi)
}

// Vector implements symbols.FloatRegs.
func (r *Regs) Vector(n int) (v [16]byte, ok bool) {
	lo, hi, err := r.XMM(n)
	binary.LittleEndian.PutUint64(v[:8], lo)
	binary.LittleEndian.PutUint64(v[8:], hi)
	return v, err == nil
}

// SetVector implements symbols.VectorSetter.
func (r *Regs) SetVector(n int, v [16]byte) error {
	return r.SetXMM(n, binary.LittleEndian.Uint64(v[:8]), binary.LittleEndian.Uint64(v[8:]))
}

// ST returns x87 register st(n) (0 to 7), where a long double is returned.
func (r *Regs) ST(n int) (v [10]byte, err error) {
	if n < 0 || n > 7 {
		return v, errors.New("x87 registers are numbered 0 to 7")
	}
	if err := r.stopped(); err != nil {
		return v, err
	}
	return r.thread.ST(n)
}

// StackArg is the n-th (from 0) stack argument word of the function that is about to
// run its first instruction.
func (r *Regs) StackArg(n int) (uint64, error) {
	return r.ReadUint64(r.SP() + arch.Addr(8*(n+1)))
}

// Backtrace unwinds the thread's stack, at most limit frames; the first is the probed
// address itself.
func (r *Regs) Backtrace(limit int) []symbols.Frame {
	at := r.Regs.Clone()
	at.SetIP(r.Place())
	return r.domain.linker.symbols().Backtrace(at, trueMemory{r}, limit)
}

// String dumps the registers, four a line.
func (r *Regs) String() string {
	var b bytes.Buffer
	for i, name := range r.Names() {
		v, _ := r.Get(name)
		sep := "  "
		if i%4 == 3 {
			sep = "\n"
		}
		fmt.Fprintf(&b, "%-8s%016x%s", name, v, sep)
	}
	return b.String()
}

var _ arch.Memory = (*Regs)(nil)
