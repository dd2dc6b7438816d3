package kprobes

// Upcalls is how many hits s has handled without a stop.
func (s *Session) Upcalls() uint64 { return s.answers.Load() }

// InUpcall tells whether the thread of r spins while the handler runs.
func InUpcall(r *Regs) bool {
	ts, ok := r.thread.Local.(*threadState)
	return ok && ts.box != nil
}

// PollAlways has the tracer look for upcalls after each hit, whether that pays or not.
func (s *Session) PollAlways() { _ = s.do(func() error { s.tracer.PollAlways(); return nil }) }
