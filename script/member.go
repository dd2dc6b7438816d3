package script

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/gokprobe/gokprobe/inject"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/kprobes"
)

// member is a process under the scenario. What may change is guarded by the turn.
type member struct {
	s        *Script
	session  Session
	process  *Process
	injector *inject.Injector // nil without a live process, as are returner's
	returner *inject.Returner
	left     bool         // no handler is called for it any more
	moving   bool         // a goroutine brings it into line
	refused  map[any]bool // what of the scenario's *probes and *injections can't be in it
}

// Process is a process that was, or is, under a scenario, and what became of its probes and faults there.
type Process struct {
	PID  int
	Comm string // of its leader, when it joined
	Ending
	// Probes and Faults are in the scenario's order. Of a process that has gone they are without those that nobody came to.
	Probes []Probe
	Faults []Fault
}

// errOver is why no process joins any more.
var errOver = fmt.Errorf("the scenario has ended: %w", kprobes.ErrClosed)

// errOne is why no other process joins.
var errOne = errors.New("the scenario was loaded for one process: without Options.Session it is for several")

func (s *Script) newMember(session Session) *member {
	comm, err := procfs.Comm(session.PID(), 0)
	if err != nil {
		comm = "?"
	}
	m := &member{s: s, session: session, process: &Process{PID: session.PID(), Comm: comm}, refused: map[any]bool{}}
	if live, ok := session.(*kprobes.Session); ok {
		m.injector = inject.New(live, inject.Options{Log: m.log(), Injected: s.o.Injected})
		m.returner = inject.NewReturner(live)
	}
	return m
}

// log is where warnings about the process go; nil if the user has not said.
func (m *member) log() func(string) {
	if m.s.o.Log == nil || !m.s.several() {
		return m.s.o.Log
	}
	return func(text string) { m.s.o.Log(fmt.Sprintf("process %d: %s", m.process.PID, text)) }
}

// warn tells what is wrong in the process.
func (m *member) warn(format string, args ...any) {
	if m.s.several() {
		format, args = "process %d: "+format, append([]any{m.process.PID}, args...)
	}
	m.s.warn(format, args...)
}

// only is the process that the scenario was loaded for; nil if any may join.
func (s *Script) only() *member {
	if s.several() {
		return nil
	}
	return s.one
}

// several tells that any number of processes may join.
func (s *Script) several() bool { return s.o.Session == nil }

// Join takes a process under a scenario that was loaded without Options.Session. What the scenario has declared is registered there when it returns, and armed
// if the scenario is, or nothing is: then the error is an *Error with the place of the call that declared it. The process leaves with its session, or by Leave.
//
//	sc, err := script.Load("scenario.star", script.Options{})
//	err = sc.Join(ctx, s1) // armed by Arm
//	err = sc.Arm()
//	go sc.Run(ctx)
//	err = sc.Join(ctx, s2) // armed when it returns
//	err = errors.Join(sc.Leave(s1), s1.Close())
//
// Globals, counters and cases are there once. What a handler sees and does is of the process of the hit. What it declares and switches is so there
// at once, in other processes soon. A handler waits while one of another process runs, but not while that waits in ctx.call.
func (s *Script) Join(ctx context.Context, session Session) error {
	if !s.several() {
		return errOne
	}
	m := s.newMember(session)
	over := false
	err := m.catchUp(ctx, func() {
		if over = s.over && s.begun; !over {
			s.members = append(s.members, m)
			s.processes = append(s.processes, m.process)
		}
	})
	if over {
		err = errOver
	}
	if err != nil {
		return errors.Join(err, m.remove())
	}
	go func() {
		<-session.Done()
		s.settle(m)
	}()
	return nil
}

// Leave ends the scenario in a process whose session is about to be closed: no handler is called there any more, and nothing injected.
func (s *Script) Leave(session Session) error {
	give := s.turn.take(nil)
	i := slices.IndexFunc(s.members, func(m *member) bool { return m.session == session })
	if i < 0 {
		give()
		return nil
	}
	m := s.members[i]
	give()
	return m.quit()
}

// quit takes what is known of m's probes only while its session lasts, and ends its faults. No handler is called any more.
func (m *member) quit() error {
	give := m.s.turn.take(nil)
	m.left = true
	parts := m.parts()
	give()
	for _, pt := range parts {
		pt.waits.Remove() // first, lest more come
	}
	last := map[*site]kprobes.Status{}
	look := func() {
		for _, pt := range parts {
			for _, at := range pt.places.All() {
				last[at] = m.session.Status(at.kp)
			}
		}
	}
	if m.session.Do(look) != nil { // one by one its thread would be asked thousands of times
		look()
	}
	give = m.s.turn.take(nil)
	for at, st := range last {
		if st.Mechanism != kprobes.NoMechanism {
			at.last = st
		}
	}
	give()
	if m.injector == nil {
		return nil
	}
	return m.injector.Close()
}

// parts are the probes in m.
func (m *member) parts() (all []*part) {
	for _, p := range m.s.probes {
		if pt := p.in(m); pt != nil {
			all = append(all, pt)
		}
	}
	return all
}

// remove takes away what was placed in a process that does not join.
func (m *member) remove() error {
	err := m.quit()
	give := m.s.turn.take(nil)
	parts := m.parts()
	m.forget()
	give()
	for _, pt := range parts {
		pt.unregister()
	}
	return err
}

// ending are those of several processes whose sessions have ended, and that have not been settled yet.
func (s *Script) ending() (all []*member) {
	defer s.turn.take(nil)()
	for _, m := range s.members {
		if s.several() && m.ended() {
			all = append(all, m)
		}
	}
	return all
}

// settle keeps of a process that has ended what became of it, and nothing else: there may be thousands.
func (s *Script) settle(m *member) {
	_ = m.quit() // the session has ended all
	defer s.turn.take(nil)()
	if !slices.Contains(s.members, m) {
		return
	}
	m.process.Probes = slices.DeleteFunc(m.probes(), func(p Probe) bool { return p.Hits|p.Missed == 0 })
	m.process.Faults = slices.DeleteFunc(m.faults(), func(f Fault) bool { return f.Stats.Calls|f.Stats.Missed == 0 })
	if k, ok := m.session.(*kprobes.Session); ok {
		if exit := k.Exit(); exit != nil {
			m.process.Ending = Ending{Exited: true, Status: exit.Code}
		}
	}
	for _, p := range s.probes {
		if pt := p.in(m); pt != nil {
			p.gone = p.gone.plus(pt.summary())
		}
	}
	m.forget()
	maps.DeleteFunc(s.calls, func(_ uint64, call *followed) bool { return call.of == m })
	s.members = slices.DeleteFunc(s.members, func(o *member) bool { return o == m })
}

// forget lets go of what the scenario has in m.
func (m *member) forget() {
	for _, p := range m.s.probes {
		p.parts = slices.DeleteFunc(p.parts, func(pt *part) bool { return pt.m == m })
	}
	for _, f := range m.s.injections {
		f.parts = slices.DeleteFunc(f.parts, func(fp *faultPart) bool { return fp.m == m })
	}
}

// probes is what became of the probes in m.
func (m *member) probes() (all []Probe) {
	for _, pt := range m.parts() {
		all = append(all, pt.summary())
	}
	return all
}

// faults is what became of the faults in m.
func (m *member) faults() (all []Fault) {
	for _, f := range m.s.injections {
		if fp := f.in(m); fp != nil {
			all = append(all, Fault{f.name(), fp.fault.Counts(), f.rule.Attr.Seed})
		}
	}
	return all
}

// Gone tells that of a process' probes and faults no place is left, why, and that none will come back.
func (s *Script) Gone(session Session) (why string, gone bool) {
	var parts []*part
	var faults []*inject.Fault
	give := s.turn.take(nil)
	for _, m := range s.members {
		if m.session != session {
			continue
		}
		parts = append(parts, m.parts()...)
		for _, f := range s.injections {
			if fp := f.in(m); fp != nil {
				faults = append(faults, fp.fault)
			}
		}
	}
	give()
	for _, pt := range parts {
		reason, over := pt.waits.Over()
		if !over {
			return "", false
		}
		why, gone = cmp.Or(reason, why), gone || reason != ""
		for _, kp := range pt.kprobes() {
			st := session.Status(kp)
			if st.Flags&kprobes.FlagGone == 0 || st.Waiting {
				return "", false
			}
			why, gone = st.Reason, true
		}
	}
	for _, f := range faults {
		if why, gone = f.Gone(); !gone {
			return "", false
		}
	}
	return why, gone
}

// follow brings all processes but one into line with what the scenario declares and switches, without waiting for them: threads of theirs may wait
// for the turn, which the caller has.
func (s *Script) follow(but *member) {
	if !s.begun {
		return
	}
	for _, m := range s.members {
		if m == but || m.moving || m.left {
			continue
		}
		m.moving = true
		go func() {
			for {
				err := m.catchUp(context.Background(), func() { m.moving = false })
				if err == nil {
					return
				}
				m.lags(err)
			}
		}()
	}
}

// lags tells why something is not in m, where the scenario goes on without it.
func (m *member) lags(err error) {
	defer m.s.turn.take(nil)()
	if m.left || errors.Is(err, kprobes.ErrExited) || errors.Is(err, kprobes.ErrClosed) {
		m.left = true // there is nothing to bring into line
		return
	}
	e := *m.s.asError(err)
	e.Message = fmt.Sprintf("process %d: %s", m.process.PID, e.Message)
	m.s.problem(&e)
}

// catchUp brings m into line, and calls done with the turn when it is. It must be called without the turn. After an error it can be called
// again: what could not be done is left out then.
func (m *member) catchUp(ctx context.Context, done func()) error {
	for {
		give := m.s.turn.take(nil)
		step := m.next()
		if step == nil {
			done()
			give()
			return nil
		}
		give()
		if err := step(ctx); err != nil {
			return err
		}
	}
}

// next is what is to be done in m to bring it into line; nil if it is. The caller has the turn, the step is made without.
func (m *member) next() func(context.Context) error {
	s := m.s
	if m.left || s.over {
		return nil
	}
	var faults []*injection
	for _, f := range s.injections {
		if f.in(m) == nil && !m.refused[f] {
			faults = append(faults, f)
		}
	}
	if len(faults) > 0 {
		return func(ctx context.Context) error { return m.injectAll(ctx, faults) }
	}
	for _, p := range s.probes {
		if pt := p.in(m); (pt == nil || !pt.registered) && !m.refused[p] {
			return func(ctx context.Context) error { return m.place(ctx, p, pt) }
		}
	}
	if s.begun {
		return m.switches()
	}
	return nil
}

// place registers a probe; pt is nil if its places are to be found first.
func (m *member) place(ctx context.Context, p *probe, pt *part) (err error) {
	found := pt != nil
	if !found {
		if pt, err = p.newPart(ctx, m); err != nil {
			err = m.s.errorAt(p.pos, fmt.Errorf("%s: %w", p.kind(), err))
		}
	}
	if err == nil {
		err = pt.register(ctx)
	}
	defer m.s.turn.take(nil)()
	if err != nil {
		m.refused[p] = true
		return err
	}
	if pt.registered = true; !found {
		p.parts = append(p.parts, pt)
	}
	return nil
}

// switches is next for what is there, and is to be armed or disarmed.
func (m *member) switches() func(context.Context) error {
	var on []*part
	for _, pt := range m.parts() {
		switch want := pt.p.wanted(); {
		case m.refused[pt] || pt.on == want:
		case want:
			on = append(on, pt)
		default:
			return func(ctx context.Context) error {
				return m.switched(pt, pt.switchTo(ctx, false), func() { pt.on = false })
			}
		}
	}
	if len(on) > 0 {
		return func(ctx context.Context) error { return m.enable(ctx, on) }
	}
	for _, f := range m.s.injections {
		if fp := f.in(m); fp != nil && fp.on == f.off && !m.refused[fp] {
			want := !f.off
			return func(context.Context) error { return m.switched(fp, fp.switchTo(want), func() { fp.on = want }) }
		}
	}
	return nil
}

// switched notes that a part of a probe or a fault is as it was wanted, or that it can't be.
func (m *member) switched(what any, err error, note func()) error {
	defer m.s.turn.take(nil)()
	if err != nil {
		m.refused[what] = true
		return err
	}
	note()
	return nil
}

// enable arms probes in one go.
func (m *member) enable(ctx context.Context, parts []*part) error {
	var all []*kprobes.Kprobe
	for _, pt := range parts {
		pt.arms.Store(true)
		all = append(all, pt.kprobes()...)
	}
	if m.session.EnableWhenThere(ctx, all) == nil {
		defer m.s.turn.take(nil)()
		for _, pt := range parts {
			pt.on = true
		}
		return nil
	}
	for _, pt := range parts { // one of them is to blame
		if err := m.switched(pt, pt.switchTo(ctx, true), func() { pt.on = true }); err != nil {
			return pt.placeError(err)
		}
	}
	return nil
}
