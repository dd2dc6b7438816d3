package ptrace

import (
	"testing"
	"time"
)

// TestWhatAProcessDoesWithItsTraps: what is to stand as the action of SIGTRAP, and what the program does by itself, behind each thing that happens.
func TestWhatAProcessDoesWithItsTraps(t *testing.T) {
	handler, guard := &sigaction{handler: 0x1000, flags: saRestorer, restorer: 0x1100}, &sigaction{handler: 0x2000, flags: saRestorer, restorer: 0x2100}
	ignore, byDefault := &sigaction{handler: sigIgn}, &sigaction{}
	guarded := func(own *sigaction) func(a *trapAction) { return func(a *trapAction) { a.guardedBy(guard, own) } }
	exec := func(ignored bool) func(a *trapAction) {
		return func(a *trapAction) {
			inherited := a.execed()
			if a.seen(ignored, false); inherited != nil {
				a.taken(inherited)
			}
		}
	}
	for _, c := range []struct {
		name                               string
		do                                 []func(a *trapAction)
		stands                             *sigaction
		guarded, ignored, handled, matters bool
	}{
		{"nothing is known", nil, nil, false, false, false, false},
		{"it is ignored, as /proc tells", []func(*trapAction){func(a *trapAction) { a.seen(true, false) }}, nil, false, true, false, true},
		{"and its action is read", []func(*trapAction){func(a *trapAction) { a.seen(true, false); a.read(ignore) }}, ignore, false, true, false, true},
		{"it is handled", []func(*trapAction){func(a *trapAction) { a.taken(handler) }}, handler, false, false, true, true},
		{"a guard in front of a handler", []func(*trapAction){guarded(handler)}, guard, true, false, true, true},
		{"a guard that ignores it", []func(*trapAction){guarded(ignore)}, guard, true, false, false, false},
		{"which goes", []func(*trapAction){guarded(ignore), (*trapAction).unguarded}, ignore, false, true, false, true},
		{"which the program replaces", []func(*trapAction){guarded(ignore), func(a *trapAction) { a.taken(handler) }}, handler, false, false, true, true},
		{"a guard whose action is read", []func(*trapAction){guarded(handler), func(a *trapAction) { a.read(guard) }}, guard, true, false, true, true},
		{"a child's guard, told that it has the default", []func(*trapAction){guarded(handler), func(a *trapAction) { a.believesDefault() }}, guard, true, false, false, false},
		{"a program without a guard, told so", []func(*trapAction){func(a *trapAction) { a.taken(ignore); a.believesDefault() }}, ignore, false, true, false, true},
		{"a handler is executed away", []func(*trapAction){func(a *trapAction) { a.taken(handler) }, exec(false)}, nil, false, false, false, false},
		{"a guard is", []func(*trapAction){guarded(handler), exec(false)}, nil, false, false, false, false},
		{"a guard that ignores it is", []func(*trapAction){guarded(ignore), exec(false)}, ignore, false, true, false, true},
		{"the default, ignored since, unseen", []func(*trapAction){func(a *trapAction) { a.taken(byDefault) }, exec(true)}, nil, false, true, false, true},
		{"what is ignored is inherited", []func(*trapAction){func(a *trapAction) { a.taken(ignore) }, exec(true)}, ignore, false, true, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var a trapAction
			for _, do := range c.do {
				do(&a)
			}
			if a.stands() != c.stands || a.guarded() != c.guarded || a.ignored() != c.ignored || a.handled() != c.handled || a.matters() != c.matters {
				t.Errorf("%+v is to stand; guarded %v, ignored %v, handled %v, matters %v; want %+v", a.stands(), a.guarded(), a.ignored(), a.handled(), a.matters(), c)
			}
			if a.guardOnly() != (c.guarded && !c.handled) {
				t.Errorf("nothing behind the guard: %v", a.guardOnly())
			}
		})
	}
}

// TestWhatIsOwedToAGuardEndsWithIt, and is not its child's.
func TestWhatIsOwedToAGuardEndsWithIt(t *testing.T) {
	guard, own := &sigaction{handler: 0x2000, restorer: 0x2100}, &sigaction{}
	a := trapAction{}
	if a.believesDefault() || !a.doubted() {
		t.Error("there is a guard")
	}
	a.guardedBy(guard, own)
	if now := time.Now(); a.doubted() || !a.left(&sigaction{restorer: 0x2100}) || a.left(&sigaction{}) || a.left(guard) || !a.toCheck(now) || a.toCheck(now) || !a.toCheck(now.Add(checkDelay)) {
		t.Errorf("%+v", a)
	}
	a.doubts(&sigaction{restorer: 0x1100})
	if a.regaining = true; !a.doubted() || a.toCheck(time.Now().Add(time.Hour)) {
		t.Errorf("nothing is doubted of %+v", a)
	}
	if c := a.child(); c.doubted() || c.stands() != guard || c.own != a.own {
		t.Errorf("the child has %+v", c)
	}
	if a.regaining = false; !a.doubted() {
		t.Errorf("nothing is doubted of %+v", a)
	}
	a.unguarded()
	if a.guardedBy(guard, own); a.doubted() {
		t.Errorf("the next guard is doubted: %+v", a)
	}
}
