package kprobes

// Do runs f on the thread that handlers run on, and waits for it: no handler runs meanwhile,
// except where f, as a handler may, lets others run (Regs.Call). In a handler it calls f at
// once. The error matches ErrClosed after Close; f has not run then.
func (s *Session) Do(f func()) error {
	return s.do(func() error {
		s.tracer.LetAllIdle() // it may wait for another thread
		f()
		return nil
	})
}
