package ptrace

import "testing"

// TestAGuardRunsWhereThereIsRoom: on the alternate stack where the program has no handler of its own, or has one there; also before one of a program whose
// stacks have no room for a signal's frame.
func TestAGuardRunsWhereThereIsRoom(t *testing.T) {
	for _, c := range []struct {
		name           string
		own            sigaction
		small, onStack bool
	}{
		{"default", sigaction{}, false, true},
		{"default, small stacks", sigaction{}, true, true},
		{"ignored", sigaction{handler: sigIgn}, false, true},
		{"handler on the thread's stack", sigaction{handler: 0x1000}, false, false},
		{"handler on the alternate stack", sigaction{handler: 0x1000, flags: saOnStack}, false, true},
		{"handler on the thread's stack, small stacks", sigaction{handler: 0x1000}, true, true},
	} {
		sa := guardAction(&c.own, GuardHandler{Handler: 0x2000, Restorer: 0x3000, OnStack: c.small})
		if got := sa.flags&saOnStack != 0; got != c.onStack || sa.handler != 0x2000 {
			t.Errorf("%s: handler %#x on the alternate stack: %t, want %t", c.name, sa.handler, got, c.onStack)
		}
	}
}
