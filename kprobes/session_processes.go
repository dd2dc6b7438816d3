package kprobes

import "slices"

// Processes lists the processes that the session holds now: its own, followed children, and those that share their
// memory. It is empty when the session has ended.
func (s *Session) Processes() []int {
	var pids []int
	_ = s.do(func() error {
		for d := range s.settled() {
			for _, p := range d.space.Processes() {
				pids = append(pids, p.PID)
			}
		}
		return nil
	})
	slices.Sort(pids)
	return pids
}
