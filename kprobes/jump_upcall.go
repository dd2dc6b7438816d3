package kprobes

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/halts"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/ptrace"
)

// A hit whose handlers run while its thread spins: arch.BoxState tells the protocol,
// ptrace.Poller when the tracer looks. To handlers it is a hit as any other. What needs a
// thread that has stopped (Regs.Call, XMM, ST; a session that ends meanwhile) stops it
// for real first: its registers move from the mailbox to where a breakpoint's hit has them, and
// the rest of the hit is a breakpoint's.
//
// A thread that traps, since the tracer did not look or declined, is at the detour's breakpoint
// with its registers as at the site, and is hit there.

// answering is what a session knows of upcalls.
type answering struct {
	s       *Session
	boards  []*board
	inBox   []*threadState // whose handlers run, the last one's now
	looking bool
	answers atomic.Uint64
}

// upcalls is what a domain does.
type upcalls struct {
	d       *domain
	boards  []*board
	callers callers
}

// polling implements ptrace.Poller.
type polling struct{ *Session }

func (s polling) Look(on bool) {
	s.answering.looking = on
	for _, b := range s.answering.boards {
		b.SetLooking(on)
	}
}

func (s polling) Poll() bool {
	for _, b := range s.answering.boards {
		if box := b.Poll(); box != nil {
			s.answering.upcall(b.domain, box)
			return true
		}
	}
	return false
}

// upcall answers a mailbox.
func (an *answering) upcall(d *domain, box arch.Mailbox) {
	regs := box.Regs()
	st := d.siteAt(regs.Trapped())
	th := d.upcalls.callerOf(box.Thread())
	if th == nil || st == nil || st.jump() == nil || regs.TrapFlag() {
		box.Decline()
		return
	}
	ts := an.s.hits.stateOf(th, d)
	th.Halts().Stop(host.Ticks(), halts.Spun)
	if ran, k, ok := th.Halts().Gap(); ok {
		an.s.tracer.Latencies()[k].Ran(ran)
	}
	an.s.hits.count++
	an.inBox = append(an.inBox, ts)
	ts.regs.Regs, ts.site, ts.hit, ts.box, ts.detour = regs, st, an.s.hits.count, box, st.jump()
	ts.noted = st.jump().work.notes != arch.NoWord
	st.jump().inUpcall.answered++
	an.answers.Add(1)
	diverted := !ts.resumed(th, st, regs) && an.s.hits.newHit(ts, d, st)
	switch {
	case ts.box == nil:
		an.s.hits.afterStop(th, ts, d, diverted)
	case diverted:
		th.Halts().Resume(host.Ticks())
		box.Call()
	default:
		th.Halts().Resume(host.Ticks())
		box.Answer()
	}
	ts.box, ts.detour, ts.site = nil, nil, nil
	an.inBox = slices.Delete(an.inBox, len(an.inBox)-1, len(an.inBox))
}

// afterStop ends a hit whose thread was stopped on the way.
func (hs *hits) afterStop(th *ptrace.Thread, ts *threadState, d *domain, diverted bool) {
	if d.released || ts.over {
		return
	}
	if regs, err := th.Regs(); err == nil && !diverted {
		regs.SetIP(ts.detour.Start())
	}
	th.Proceed()
}

// stopped makes sure that the handler's thread is stopped. If handlers want that often, a breakpoint's hits
// cost less.
func (r *Regs) stopped() error {
	ts := r.spinning()
	if ts == nil {
		return nil
	}
	det := ts.detour
	if err := ts.halt(r.thread); err != nil {
		return err
	}
	if det.halted() {
		r.domain.optimizer.enqueue(det.site)
	}
	return nil
}

// upcallHits is the hits of a detour whose threads the tracer has answered, and those of them whose thread had to be stopped nevertheless. A handler may want
// that of one hit in a hundred, for as long as the program runs.
type upcallHits struct {
	answered, halted int  // since the last look
	tooMany          bool // a breakpoint at the site would cost less
}

// halted notes that a thread had to be stopped. It tells whether the jump is to be taken back because of it: such a hit costs about two of a breakpoint's.
func (det *detour) halted() bool {
	u := &det.inUpcall
	if u.halted++; u.halted < demotion || u.tooMany {
		return false
	}
	u.tooMany = u.answered <= 2*demotion
	u.answered, u.halted = 0, 0
	return u.tooMany
}

// spinning is the state of the handler's thread if that has not stopped, else nil.
func (r *Regs) spinning() *threadState {
	ts := r.state()
	if ts == nil || ts.box == nil {
		return nil
	}
	return ts
}

// halt stops a thread that spins.
func (ts *threadState) halt(th *ptrace.Thread) error {
	if err := th.Halt(); err != nil {
		return err
	}
	return ts.outOfBox(th)
}

// outOfBox moves the registers of a thread, which is stopped while its handlers run, from the
// mailbox to the thread.
func (ts *threadState) outOfBox(th *ptrace.Thread) error {
	regs, err := th.Regs()
	if err != nil {
		return err
	}
	regs.CopyFrom(ts.box.Regs())
	ts.box.Free()
	ts.regs.Regs, ts.box = regs, nil
	return nil
}

// upcallTrap deals with a breakpoint of det's body.
func (hs *hits) upcallTrap(th *ptrace.Thread, d *domain, det *detour, stop arch.Stop, regs arch.Regs) ptrace.Verdict {
	if stop.Why == arch.StopWaiting {
		ip, taken := d.upcalls.leaveUpcall(det, regs)
		if taken {
			regs.SetIP(stop.At) // its handlers run, above us: it comes back until they are done
		}
		if ip != det.Addr {
			return ptrace.AsTold()
		}
	}
	d.upcalls.learn(th, regs)
	hs.s.tracer.WouldPoll(th)
	return hs.hitInDetour(th, d, det, regs)
}

// signalInUpcall is signalInDetour for a thread in the body of det. What the body itself has
// raised is that the thread's stack has no room for it: it is hit without. done is false if the
// thread is where signalInDetour knows what to do.
func (hs *hits) signalInUpcall(th *ptrace.Thread, det *detour, info *ptrace.Siginfo, regs arch.Regs) (_ ptrace.Delivery, _ ptrace.Verdict, done bool) {
	d := det.site.domain
	ip, _ := d.upcalls.leaveUpcall(det, regs)
	switch {
	case !det.Range().Contains(ip):
		return ptrace.Deliver, hs.stateOf(th, d).leave(regs, ip), true
	case info.Synchronous() && ip == det.Addr:
		return ptrace.Drop, hs.hitInDetour(th, d, det, regs), true
	}
	return 0, ptrace.AsTold(), false
}

// hitInDetour is hit for a thread whose registers are as at the site.
func (hs *hits) hitInDetour(th *ptrace.Thread, d *domain, det *detour, regs arch.Regs) ptrace.Verdict {
	st := det.site
	ts := hs.stateOf(th, d)
	ts.entering = nil // its next trap is behind an instruction of its own
	if d.sites[st.addr] != st {
		if regs.SetIP(det.Start()); ts.leaving == nil {
			return ptrace.AsTold()
		}
		v, _ := hs.leaveCopy(th, d, det, regs)
		return v
	}
	th.TrappedAt(st.addr)
	ts.detour = det
	v := hs.hit(th, d, st, regs)
	ts.detour = nil
	return v
}

// notedMemory is rawMemory for the words by which calls are followed. What a thread that spins has noted
// of its stack needs no system call.
type notedMemory struct{ *Regs }

func (m notedMemory) ReadMemory(at arch.Addr, p []byte) error {
	if ts := m.spinning(); ts != nil && ts.noted && len(p) == 8 {
		if word, ok := ts.box.Noted(at); ok {
			binary.LittleEndian.PutUint64(p, word)
			return nil
		}
	}
	return rawMemory(m).ReadMemory(at, p)
}

// leaveUpcall takes a stopped thread out of det's body, in which it may make an upcall. It is
// then, by its registers, at det's entry, if no handler has run; else where the handlers sent it, usually at
// the first copy. It stays where it is if its handlers still run.
func (u *upcalls) leaveUpcall(det *detour, regs arch.Regs) (ip arch.Addr, taken bool) {
	end, _, err := det.upcall.Unwind(det.Body.Start, regs, u.d.space)
	switch {
	case err != nil:
		u.d.session.warn("taking a thread out of the detour of %s: %v", det.site.addr, err)
		return 0, false
	case end == arch.UpcallTaken:
		return 0, true
	case end == arch.UpcallUndone:
		regs.SetIP(det.Addr)
	case regs.IP() == 0:
		regs.SetIP(det.Start())
	}
	return regs.IP(), false
}

// knownUpcall tells whether a breakpoint of an upcall stands at at.
func (u *upcalls) knownUpcall(at arch.Addr) bool {
	det := u.d.detours.holding(at)
	return det != nil && det.upcall != nil && det.Body.Contains(at)
}

// upcaller is the body of a detour that calls the tracer.
type upcaller struct {
	arch.UpcallBody
	board *board
}

func (u *upcalls) newUpcaller(st *site, w work, redZone bool) (*upcaller, error) {
	b, err := u.boardNear(st.addr)
	if err != nil {
		return nil, fmt.Errorf("mailboxes: %w", err)
	}
	body := hostUpcalls.UpcallBody(arch.UpcallWork{Boxes: b.Mailboxes, Site: st.addr, RedZone: redZone, Notes: w.notes})
	return &upcaller{body, b}, nil
}

// demotedFor says why det's jump is taken back.
func (det *detour) demotedFor() string {
	if det.inUpcall.tooMany {
		return "its handlers need threads that have stopped"
	}
	return "jumps from elsewhere lead into the optimized region"
}
