package symbols

import "testing"

// HasPrefix and Symbols agree where names are not mangled, and on what is mangled before it is demangled.
func TestHasPrefixAgreesWithSymbols(t *testing.T) {
	for _, f := range []string{
		build(t, "members.c", "-g", "-O2"), build(t, "results.go"), build(t, "plain.go", "-ldflags=-s -w"),
		build(t, "results.cc", "-g", "-O1", "-std=c++17"), "/lib/x86_64-linux-gnu/libstdc++.so.6",
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
