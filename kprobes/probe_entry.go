package kprobes

import "github.com/gokprobe/gokprobe/arch"

// Programs is how many other programs the process has executed. What was found out before one of them, addresses too, is no longer so.
func (s *Session) Programs() (n uint64) {
	_ = s.tracer.Do(func() { n = s.target.images })
	return n
}

// Entry is the instruction of the function that begins at fn that every call executes once, before it has done anything: the
// first one or, in Go, the one behind the check of the stack, which is executed again when the stack has grown. The error
// matches ErrNotEntry where no function begins.
func (s *Session) Entry(fn arch.Addr) (at arch.Addr, err error) {
	err = s.do(func() error {
		d := s.mainDomain()
		if d == nil {
			return ErrExited
		}
		if r, known := d.linker.symbols().Function(fn); known && fn != r.Start {
			return ErrNotEntry
		}
		at, _, err = d.look.checkEntry(fn, true)
		return err
	})
	return at, err
}
