package event

import (
	"bytes"
	"testing"
	"time"
)

func TestInjectedCalls(t *testing.T) {
	h := &Hit{Time: when, PID: 4711, TID: 4712, Comm: "x\n", Probe: "open", Kind: "kprobe", Addr: 0x1000, Symbol: "open+0x0", Module: "libc.so.6",
		Args: []Arg{{Name: "path", Value: "/a"}}, Injected: &Injected{N: 3, Actions: []string{"return -1 errno ENOENT", "delay\x1b 1ms"}}}
	dry := *h
	dry.Args, dry.Injected = nil, &Injected{N: 4, Actions: []string{"return 0"}, DryRun: true}
	s := &Summary{PID: 4711, Probes: []ProbeSummary{{"open", "kprobe", 0x1000, "open+0x0", 10, 1, "optimized", "", "target", nil, 0}},
		Faults: []FaultSummary{{Fault: "op\x1ben", Calls: 10, Eligible: 9, Injected: 4, Refused: 2, Missed: 1, Seed: 7,
			Actions: []ActionSummary{{"return \"0\"", 4}, {"delay 1ms", 3}}}, {Fault: "b", DryRun: true}}}
	for _, c := range []struct {
		name, want string
		printer    func(*bytes.Buffer) Printer
	}{
		{"text", `15:04:05.000000001  x\n-4712                 open path="/a" => return -1 errno ENOENT, delay\x1b 1ms
15:04:05.000000001  x\n-4712                 open => would return 0
FAULT     CALLS  ELIGIBLE  INJECTED  REFUSED  MISSED  WHAT
op\x1ben  10     9         4         2        1       return "0": 4, delay 1ms: 3
b         0      0         0         0        0       dry run, nothing was done
PROBE  KIND    ADDRESS  SYMBOL    HITS  MISSED  MECHANISM
open   kprobe  0x1000   open+0x0  10    1       optimized, the target decides
`, func(b *bytes.Buffer) Printer { return NewText(b, TextOptions{Location: time.UTC}) }},
		{"JSON", `{"type":"injected","time":"2026-01-02T15:04:05.000000001Z","pid":4711,"tid":4712,"comm":"x\n","probe":"open","kind":"kprobe","addr":"0x1000","symbol":"open+0x0","module":"libc.so.6","args":{"path":"/a"},"n":3,"actions":["return -1 errno ENOENT","delay\u001b 1ms"]}
{"type":"injected","time":"2026-01-02T15:04:05.000000001Z","pid":4711,"tid":4712,"comm":"x\n","probe":"open","kind":"kprobe","addr":"0x1000","symbol":"open+0x0","module":"libc.so.6","args":{},"n":4,"actions":["return 0"],"dry_run":true}
{"type":"summary","pid":4711,"probes":[{"probe":"open","kind":"kprobe","addr":"0x1000","symbol":"open+0x0","hits":10,"nmissed":1,"mechanism":"optimized","reason":"","decides":"target"}],"faults":[{"fault":"op\u001ben","calls":10,"eligible":9,"injected":4,"refused":2,"missed":1,"actions":[{"action":"return \"0\"","n":4},{"action":"delay 1ms","n":3}],"seed":7,"dry_run":false},{"fault":"b","calls":0,"eligible":0,"injected":0,"refused":0,"missed":0,"actions":[],"seed":0,"dry_run":true}],"lost":0}
`, func(b *bytes.Buffer) Printer { return NewJSON(b) }},
	} {
		var out bytes.Buffer
		p := c.printer(&out)
		for _, h := range []*Hit{h, &dry} {
			if err := p.Hit(h); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Summary(s); err != nil {
			t.Fatal(err)
		}
		if out.String() != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, out.String(), c.want)
		}
	}
}

func TestInjectedCallsOfSeveralProcesses(t *testing.T) {
	some := func(n uint64) []FaultSummary {
		return []FaultSummary{{Fault: "open", Calls: 2 * n, Eligible: n + 1, Injected: n, Seed: 7, Actions: []ActionSummary{{"return 0", n}}}}
	}
	s := &Summary{Probes: []ProbeSummary{{Probe: "open", Kind: "kprobe", Symbol: "open+0x0", Hits: 8}}, Faults: some(4), Processes: []ProcessSummary{
		{PID: 11, Comm: "first", Hits: 2, Faults: some(1), Probes: []ProbeSummary{{"open", "kprobe", 0x1000, "open+0x0", 2, 0, "optimized", "", "target", nil, 0}}},
		{PID: 12, Comm: "sec\nond", Hits: 6, NMissed: 1, Faults: some(3), Probes: []ProbeSummary{}},
	}}
	for _, c := range []struct {
		name, want string
		printer    func(*bytes.Buffer) Printer
	}{
		{"text", `FAULT  CALLS  ELIGIBLE  INJECTED  REFUSED  MISSED  WHAT
open   8      5         4         0        0       return 0: 4
PROBE  KIND    HITS  MISSED
open   kprobe  8     0

PROCESS  NAME      CALLS  ELIGIBLE  INJECTED  REFUSED  MISSED
12       sec\nond  6      4         3         0        0
11       first     2      2         1         0        0
`, func(b *bytes.Buffer) Printer { return NewText(b, TextOptions{}) }},
		{"JSON", `{"type":"summary","probes":[{"probe":"open","kind":"kprobe","symbol":"open+0x0","hits":8,"nmissed":0}],"processes":[` +
			`{"pid":11,"comm":"first","hits":2,"nmissed":0,"probes":[{"probe":"open","kind":"kprobe","addr":"0x1000","symbol":"open+0x0","hits":2,"nmissed":0,` +
			`"mechanism":"optimized","reason":"","decides":"target"}],"faults":[{"fault":"open","calls":2,"eligible":2,"injected":1,"refused":0,"missed":0,` +
			`"actions":[{"action":"return 0","n":1}],"seed":7,"dry_run":false}],"lost":0},` +
			`{"pid":12,"comm":"sec\nond","hits":6,"nmissed":1,"probes":[],"faults":[{"fault":"open","calls":6,"eligible":4,"injected":3,"refused":0,"missed":0,` +
			`"actions":[{"action":"return 0","n":3}],"seed":7,"dry_run":false}],"lost":0}],` +
			`"faults":[{"fault":"open","calls":8,"eligible":5,"injected":4,"refused":0,"missed":0,"actions":[{"action":"return 0","n":4}],"seed":7,"dry_run":false}],"lost":0}
`, func(b *bytes.Buffer) Printer { return NewJSON(b) }},
	} {
		var out bytes.Buffer
		if err := c.printer(&out).Summary(s); err != nil {
			t.Fatal(err)
		}
		if out.String() != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, out.String(), c.want)
		}
	}
	many := &Summary{Processes: []ProcessSummary{}, Faults: some(0)}
	for i := range mostProcesses + 2 {
		many.Processes = append(many.Processes, ProcessSummary{PID: i + 1, Hits: 2, Faults: some(1)})
	}
	var out bytes.Buffer
	if err := NewText(&out, TextOptions{}).Summary(many); err != nil || !bytes.Contains(out.Bytes(), []byte("\n2 more processes: 4 calls, 2 injected (-format json has them all)\n")) {
		t.Errorf("%v: %s", err, out.String())
	}
}
