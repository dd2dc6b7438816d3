package symbols

import "testing"

// HasPrefix and Symbols agree where names are not mangled, and on what is mangled before it is demangled.
func TestHasPrefixAgreesWithSymbols(t *testing.T) {
	for _, f := range []string{
		build(t, "members.c", "-O2"), build(t, "plain.go"), build(t, "results.cc", "-std=c++17"),
	} {
		tab := file(t, f)
		some := 0
		for _, prefix := range []string{"runtime.sigtramp", "runtime.sigtrampgone", "main", "main.", "_Z", "_ZNSt", "mem", "nothing at all"} {
			want := len(tab.Symbols(prefix+"*")) > 0
			if got := tab.HasPrefix(prefix); got != want {
				t.Errorf("%s: a name with prefix %q: %v, want %v", f, prefix, got, want)
			}
			if want {
				some++
			}
		}
		if some == 0 {
			t.Errorf("%s has none of the prefixes", f)
		}
	}
}
