package kprobes

import "github.com/gokprobe/gokprobe/arch"

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
