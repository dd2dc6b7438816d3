package kprobes

// Upcalls is how many hits s has handled without a stop.
func (s *Session) Upcalls() uint64 { return s.answers.Load() }
