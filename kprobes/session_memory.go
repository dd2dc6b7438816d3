package kprobes

import "github.com/gokprobe/gokprobe/arch"

// Peek fills p from at in the main process's memory, with the breakpoints that are in
// it. The memory's protection does not matter. A failure is an *arch.FaultError, or
// matches ErrClosed. Safe for concurrent use.
func (s *Session) Peek(at arch.Addr, p []byte) error {
	return s.do(func() error { return s.main.Space.Text().ReadMemory(at, p) })
}

// Poke stores p at at likewise.
func (s *Session) Poke(at arch.Addr, p []byte) error {
	return s.do(func() error { return s.main.Space.Text().WriteMemory(at, p) })
}
