package main

import (
	"strings"
	"testing"
)

// TestASentenceHoldsAnySPEC: an empty one is called so, a long one is cut, and control characters are escaped.
func TestASentenceHoldsAnySPEC(t *testing.T) {
	p := prey(t)
	const most = 1000 // bytes of a sentence
	for _, verb := range [][]string{{"attach", "-sym"}, {"inject", "-errno", "EIO", "-sym"}} {
		for _, c := range []struct{ spec, said string }{
			{"", "an empty SPEC: bad probe specification: it is empty"},
			{" ", "an empty SPEC: bad probe specification: it is empty"},
			{strings.Repeat("a", 5000), "aaa…aaa"},
			{"libc.so.6:" + strings.Repeat("a", 5000), " libc.so.6:aaa"},
			{strings.Repeat("a", 5000) + ":foo", "aaa:foo"},
			{"a\x01\x1b[31mb", `a\x01\x1b[31mb`},
		} {
			r := gokprobe(t, append(append([]string{verb[0], "-p", pidOf(p)}, verb[1:]...), c.spec)...)
			oneSentence(t, r)
			if !strings.Contains(r.stderr, c.said) || len(r.stderr) > most || strings.ContainsAny(r.stderr, "\x01\x1b") || r.status != exitUsage && r.status != exitPlace {
				t.Errorf("%s: status %d, it says %q, want %q", verb[0], r.status, r.stderr, c.said)
			}
		}
	}
	long := strings.Repeat("a", 5000)
	for _, args := range [][]string{
		{"list", "-p", pidOf(p), long},
		{"list", "-p", pidOf(p), long + ":foo"},
		{"attach", "-p", long, "-sym", "foo"},
		{"attach", "-p", pidOf(p), "-addr", long},
		{"script", "-p", pidOf(p), scenarioFile(t, "kprobe('a' * 5000, pre = lambda ctx: None)")},
		{"script", "-p", pidOf(p), scenarioFile(t, "inject('a' * 5000, errno = 'EIO')")},
	} {
		if r := gokprobe(t, args...); r.status == 0 || len(r.stderr) > most || !strings.Contains(r.stderr, "aaa…aaa") {
			t.Errorf("%s: status %d, it says %q", args[0], r.status, r.stderr)
		}
	}
	p.CheckClean()
}
