package ptrace

import (
	"time"

	"golang.org/x/sys/unix"
)

// trapAction is what a process does with SIGTRAP: what the program does with it by itself (own), and the guard, if one stands in the program's place.
//
//	not guarded   own is the process's action. Its sigaction is read late: until then it is nil, and only known to be ignored, handled or neither
//	guarded       guard is the process's action, and own is what it does for the program. That is known as a whole
//
// A breakpoint may reset the process's action to the default. So nothing here is what the kernel has at this moment: it is what is to stand there
// (stands), and what is owed for that. Only the methods below change it:
//
//	seen, read       the kernel was asked, when no breakpoint of ours could have changed the answer
//	taken            the program has set an action, in the guard's place if there was one
//	guardedBy, unguarded, believesDefault, execed
//	doubts           a breakpoint has reset what the program had set in the guard's place, unseen: rest is all that is known of that
//
// What is doubted of a guard ends with it. A forked child has the same action (child), but what is owed to its parent's guard is not owed to its own.
type trapAction struct {
	own   trapDisposition
	guard *sigaction // nil without one
	doubt *sigaction // what a breakpoint has left of one that the program has set in the guard's place

	regaining bool // the guard is to be put back soon
	missing   bool // it could not be put back yet
	checked   time.Time
}

// trapDisposition is what a program does with SIGTRAP by itself. A guard may do it instead.
type trapDisposition struct {
	ignored, handled bool
	action           *sigaction // nil if it is not known
}

func (sa *sigaction) disposition() trapDisposition {
	return trapDisposition{sa.handler == sigIgn, sa.handler > sigIgn, sa}
}

func (a *trapAction) guarded() bool { return a.guard != nil }

// guardOnly tells that a guard stands in front of no handler: who resets it takes nothing away from the program, and it may be put back later.
func (a *trapAction) guardOnly() bool { return a.guarded() && !a.own.handled }

// ignored tells that the kernel drops the signal: where a guard does so for the program, it does not.
func (a *trapAction) ignored() bool { return a.own.ignored && !a.guarded() }

// handled tells that the program has a handler, be it behind a guard.
func (a *trapAction) handled() bool { return a.own.handled }

// matters tells that there is something which a breakpoint can take away: else the kernel has the default action already.
func (a *trapAction) matters() bool { return a.ignored() || a.handled() }

// stands is what is to be put back after a breakpoint has reset the action; nil if it is not known.
func (a *trapAction) stands() *sigaction {
	if a.guarded() {
		return a.guard
	}
	return a.own.action
}

// left tells of sa, which is the process's action now, that it is what a breakpoint leaves of the handler that is to stand.
func (a *trapAction) left(sa *sigaction) bool {
	known := a.stands()
	return sa.handler == 0 && known != nil && known.handler > sigIgn && sa.rest() == known.rest()
}

// doubted tells that nobody knows just now what the kernel has in the guard's place.
func (a *trapAction) doubted() bool {
	return !a.guarded() || a.doubt != nil || a.regaining || a.missing
}

// tellsOfMask tells that a breakpoint which has reset the action has found SIGTRAP blocked: the guard has it, which the program can't replace unseen, in
// front of a handler. To look costs as much as a hit. It is not done for handlers that look like Go's, which blocks all signals or none.
func (a *trapAction) tellsOfMask() bool {
	const likeGo = saOnStack | saSiginfo | saRestart
	return a.guarded() && a.own.handled && !(a.own.action.mask.Full() && a.own.action.flags&likeGo == likeGo)
}

// seen: a process without a guard ignores or handles the signal, as /proc tells. An action that was known and is another one is past.
func (a *trapAction) seen(ignored, handled bool) {
	if sa := a.own.action; sa != nil && ((sa.handler == sigIgn) != ignored || (sa.handler > sigIgn) != handled) {
		a.own.action = nil
	}
	a.own.ignored, a.own.handled = ignored, handled
}

// read: sa is the process's action.
func (a *trapAction) read(sa *sigaction) {
	if a.guarded() {
		a.guard = sa
	} else {
		a.own.action = sa
	}
}

// taken: sa is the program's action, as it has set it, and the process's: there is no guard any more.
func (a *trapAction) taken(sa *sigaction) { a.own, a.guard, a.doubt = sa.disposition(), nil, nil }

// guardedBy: guard stands in the place of own.
func (a *trapAction) guardedBy(guard, own *sigaction) {
	a.own, a.guard, a.doubt = own.disposition(), guard, nil
}

// unguarded: the program's own action stands again.
func (a *trapAction) unguarded() { a.guard, a.doubt = nil, nil }

// believesDefault: the program takes its action for the default one. That can only be where a guard hides it.
func (a *trapAction) believesDefault() bool {
	if a.guarded() {
		a.own = (&sigaction{}).disposition()
	}
	return a.guarded()
}

// doubts: sa is what a breakpoint has left of an action which was not the guard's.
func (a *trapAction) doubts(sa *sigaction) { a.doubt = sa }

// execed: a new program has no handler and no guard, but goes on ignoring what the one before has ignored. If a guard did that for it, the action
// to set is returned. What /proc tells of the new program is to be seen next.
func (a *trapAction) execed() (inherited *sigaction) {
	if !a.guarded() {
		return nil
	}
	if a.own.ignored {
		inherited = a.own.action
	}
	a.unguarded()
	a.own = trapDisposition{}
	return inherited
}

// child is that of a process that is born with it.
func (a *trapAction) child() trapAction { return trapAction{own: a.own, guard: a.guard} }

// toCheck tells whether the process is to be asked now whether it has its guard still, at most every checkDelay.
func (a *trapAction) toCheck(now time.Time) bool {
	if !a.guardOnly() || a.regaining || now.Sub(a.checked) < checkDelay {
		return false
	}
	a.checked = now
	return true
}

// takeTrap notes that sa is p's action for SIGTRAP, as the program has set it. If there was a guard, there is none any more.
func (t *Tracer) takeTrap(p *Process, sa *sigaction) {
	guarded := p.trap.guarded()
	if guarded && sa.handler == p.trap.guard.handler {
		return
	}
	if p.trap.taken(sa); guarded {
		t.handler.GuardTaken(p)
	}
}

// rest is what a breakpoint leaves of an action.
func (sa *sigaction) rest() sigaction {
	rest := *sa
	rest.handler = 0
	return rest
}

// fallsBack tells of a default action that it is the one by which a guard has the program die.
func (sa *sigaction) fallsBack() bool {
	return sa.flags == 0 && sa.restorer == 0 && sa.mask|unblockable == allSignals
}

// NoteTrapAction remembers the process's action for SIGTRAP, if it has one, so that
// it can be put back when a breakpoint in a thread that blocks the signal resets it.
func (p *Process) NoteTrapAction() error {
	if !p.trap.matters() {
		return nil
	}
	return p.Remote(func(r *Remote) error {
		sa, err := r.sigaction(unix.SIGTRAP)
		if err == nil {
			p.trap.read(sa)
		}
		return err
	})
}
