package ptrace

import (
	"errors"
	"testing"
)

// TestAMemoryIsReachedByAThreadThatHasIt: the leader's number is preferred, as long as it has not let go, and the oldest process's.
func TestAMemoryIsReachedByAThreadThatHasIt(t *testing.T) {
	s := newSpace(&Tracer{})
	if tid, err := s.TID(); !errors.Is(err, ErrExited) {
		t.Errorf("of nobody: %d, %v", tid, err)
	}
	add := func(pid int, tids ...int) (threads []*Thread) {
		p := &Process{PID: pid, threads: map[int]*Thread{}}
		s.adopt(p)
		for _, tid := range tids {
			th := &Thread{TID: tid, Proc: p, at: &standing{}}
			p.threads[tid] = th
			threads = append(threads, th)
		}
		return threads
	}
	first, second := add(10, 10, 11, 12), add(20, 20)
	for _, c := range []struct {
		over []*Thread
		want map[int]bool
	}{{nil, map[int]bool{10: true}}, {first[:1], map[int]bool{11: true, 12: true}}, {first[1:2], map[int]bool{12: true}}, {first[2:], map[int]bool{20: true}}} {
		for _, th := range c.over {
			th.state = exiting
		}
		if tid, err := s.TID(); err != nil || !c.want[tid] {
			t.Errorf("it is that of %d, %v, want %v", tid, err, c.want)
		}
		if s.Ending() {
			t.Error("it is said to end")
		}
	}
	second[0].state = exiting
	if tid, err := s.TID(); !errors.Is(err, ErrExited) {
		t.Errorf("of nobody that has it still: %d, %v", tid, err)
	}
}

// TestAMemoryEndsWithItsLastThread that runs code of the program's.
func TestAMemoryEndsWithItsLastThread(t *testing.T) {
	for _, c := range []struct {
		name   string
		thread Thread
		reason Reason
		ends   bool
	}{
		{"one that runs", Thread{state: running}, Interrupt, false},
		{"one inside vfork", Thread{state: parked}, Vfork, false},
		{"one that has stopped", Thread{state: stopped}, Signal, false},
		{"one that is on its way out", Thread{state: stopped}, Exiting, true},
		{"one that has gone", Thread{state: stopped}, Killed, true},
		{"one that executes a program", Thread{state: stopped}, Exec, true},
		{"one past its last stop", Thread{state: exiting}, Exiting, true},
	} {
		s, p := newSpace(&Tracer{}), &Process{}
		s.adopt(p)
		th := c.thread
		th.Proc, th.at = p, &standing{halt: halt{stop: Stop{Reason: c.reason}}}
		last := &Thread{Proc: p, state: exiting, at: &standing{}}
		p.threads = map[int]*Thread{1: &th, 2: last}
		if got := s.Ending(); got != c.ends {
			t.Errorf("%s: %v, want %v", c.name, got, c.ends)
		}
		if p.leaving = true; !s.Ending() {
			t.Errorf("%s, of a process that is let go: it does not end", c.name)
		}
	}
}
