package main

import (
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// TestLocalVariablesAtALine, in both formats, and where threads stop.
func TestLocalVariablesAtALine(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "places", "-O0"))
	for _, extra := range [][]string{{}, {"-no-optimize"}} {
		flags := append(extra, "-sym", "places.c:23", "-locals", "-arg", "w=own.weight", "-filter", "i == 3")
		l := attachTo(t, p, append(flags, "-format", "json")...)
		p.Do("work 4", "sum")
		hits, _ := records(t, l.interrupt().stdout)
		if len(hits) != 1 || string(hits[0].Args) != `{"w":7}` || !strings.Contains(string(hits[0].Locals), `"own":{"count":4,"name":"own","weight":7},"i":3,"part":21`) {
			t.Errorf("%v: %d hits: %+v", flags, len(hits), hits)
		}
		l = attachTo(t, p, flags...)
		p.Do("work 4", "sum")
		if out := l.interrupt().stdout; strings.Count(out, "\n") != 1 || !strings.Contains(out, " w=7 locals{sum=21 own=") || !strings.HasSuffix(out, " i=3 part=21}\n") {
			t.Errorf("%v: %s", flags, out)
		}
		p.CheckClean()
	}
	for _, other := range []string{"-ret", "-count"} {
		if r := gokprobe(t, "attach", "-p", pidOf(p), "-sym", "places.c:23", "-locals", other); r.status != 2 || !strings.Contains(r.stderr, "-locals") {
			t.Errorf("%s: status %d, %s", other, r.status, r.stderr)
		}
	}
	p.Quit()
}
