//go:build linux && amd64

package oracle_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/internal/testsize"
	"github.com/gokprobe/gokprobe/kprobes"
)

var (
	seedFlag  = flag.Uint64("seed", 1, "seed of the cases")
	caseFlag  = flag.Int("case", -1, "run this case only")
	fromFlag  = flag.Int("from", 0, "number of the first case")
	casesFlag = flag.Int("cases", 0, "number of cases; 0 means 6144, or as many as GOKPROBE_ROUNDS says")
)

func numberOfCases() int {
	if *casesFlag > 0 {
		return *casesFlag
	}
	return testsize.Rounds(batch, 12*batch, 200_000)
}

// oracle is the state of the test.
type oracle struct {
	t        *testing.T
	bin      string
	plain    *harness // never traced
	h        *harness // the session's
	s        *kprobes.Session
	seed     uint64
	ran      map[string]int // cases by how they ended
	refused  map[string]int // probes by why they were refused
	failures int
	failed   map[string]int // by instruction
}

// Every case's end state must be the same whether its instruction is probed or not.
func TestOracleAProgramCannotTellThatAnInstructionIsProbed(t *testing.T) {
	o := &oracle{t: t, seed: *seedFlag, ran: map[string]int{}, refused: map[string]int{}, failed: map[string]int{}}
	o.bin = buildHarness(t)
	o.plain = startHarness(t, o.bin)
	o.attach()
	t.Cleanup(func() { o.detach() })
	from, to := *fromFlag, *fromFlag+numberOfCases()
	if *caseFlag >= 0 {
		from, to = *caseFlag, *caseFlag+1
	}
	for from < to {
		first := from / batch * batch
		o.batch(first, from, min(first+batch, to))
		from = first + batch
	}
	o.report()
}

// attach starts the harness that is probed.
func (o *oracle) attach() {
	o.t.Helper()
	o.h = startHarness(o.t, o.bin)
	s, err := kprobes.Attach(context.Background(), o.h.prog.PID(), kprobes.Options{Log: func(m string) { o.t.Errorf("session warns: %s", m) }})
	if err != nil {
		o.t.Fatal(err)
	}
	o.s = s
}

func (o *oracle) detach() {
	if err := o.s.Close(); err != nil {
		o.t.Error(err)
	}
}

// batch runs the cases from up to to, which are in the batch that begins at first.
func (o *oracle) batch(first, from, to int) {
	h := o.plain.shared
	clear(h.In[:])
	for i := range h.Code {
		h.Code[i] = 0xcc
	}
	randomMemory(rand.New(rand.NewPCG(o.seed, uint64(first)<<32)), h)
	var cases []*testCase
	for n := from; n < to; n++ {
		c := newCase(h, o.seed, n)
		if !testprog.StepsEveryInstruction() && (lost.MatchString(c.text()) || c.in.RFlags&flagTF != 0 && strings.Contains(c.text(), "cpuid")) {
			o.t.Logf("%s: left out: a hypervisor's switches may show in it", c)
			continue
		}
		copy(h.Code[c.at-codeAt:], c.code())
		h.In[n%batch] = c.in
		cases = append(cases, c)
	}
	if !testprog.StepsEveryInstruction() {
		o.plain.KeepsPointers, o.h.KeepsPointers = 0, 0 // which a context switch loses as well
	}
	o.h.Code, o.h.Memory, o.h.In = h.Code, h.Memory, h.In
	if err := errors.Join(o.plain.do("load"), o.h.do("load")); err != nil {
		o.t.Fatal(err)
	}
	want, err := o.plain.run("run")
	if err != nil {
		o.t.Fatalf("in place: %v", err)
	}
	for _, c := range cases {
		o.ran[ending(c, &want[c.n%batch])]++
	}
	if !testprog.StepsEveryInstruction() {
		cases = o.asAttached(cases, want)
	}
	for _, m := range []mode{attached, boosted, stepped} {
		o.runAs(m, cases, want)
	}
}

// lost is the instructions whose results a hypervisor that emulates part of the processor may lose at any context
// switch: they write the flag NT, or the bases of fs and gs without the kernel's knowledge (no HWCAP2_FSGSBASE). Or they
// read which processor this is, and the host answers: rdpid, rdtscp, sgdt, sidt. Or they store x87 pointers, whose upper halves may be
// gone: fxsave64, xsave64.
var lost = regexp.MustCompile(`popf|iret|lret|wr[fg]sbase|l[fg]s|pop[wq]? %?[fg]s|mov[wlq]? .*,\s*%?[fg]s\b|mov %?[fg]s|rdpid|rdtscp|s[gi]dt|xsave\w*64`)

// asAttached is the cases that a stop alone does not change: there are hypervisors that lose flags and segments' bases
// when a thread is stopped, by whomever and wherever, and where nobody is resumed whose stack pointer isn't canonical.
func (o *oracle) asAttached(cases []*testCase, want []output) (kept []*testCase) {
	for _, c := range cases {
		if !canonical(c.in.Reg[rsp]) || !canonical(want[c.n%batch].Reg[rsp]) {
			o.plain.In[c.n%batch], o.h.In[c.n%batch] = input{}, input{}
		}
	}
	got, err := o.h.run("run")
	if err != nil {
		o.t.Fatalf("attached: %v", err)
	}
	for _, c := range cases {
		if o.h.In[c.n%batch].Signals == 0 {
			o.t.Logf("%s: left out: nobody is resumed with its stack pointer", c)
		} else if d := c.unexplained(o.h.shared, &want[c.n%batch], &got[c.n%batch]); len(d) > 0 {
			o.t.Logf("%s: left out: %s", c, strings.Join(d, ", "))
		} else {
			kept = append(kept, c)
		}
	}
	return kept
}

func canonical(a uint64) bool { return int64(a)>>47 == 0 || int64(a)>>47 == -1 }

// runAs runs the cases in the traced harness, the probed ones also under alarms.
func (o *oracle) runAs(m mode, cases []*testCase, want []output) {
	var probes []*handled
	commands := []string{"run"}
	if m != attached {
		probes = o.register(m, cases)
		pelt := "pelt"
		if !testprog.StepsEveryInstruction() {
			pelt = "pslow" // stops are so dear there that alarms would come faster than hits are done with
		}
		commands = append(commands, pelt)
	}
	for _, command := range commands {
		got, err := o.h.run(command)
		if err != nil {
			o.failures++
			o.t.Errorf("-seed %d -from %d -cases %d: %s: %s: %v", o.seed, cases[0].n, len(cases), m, command, err)
			o.restart()
			return
		}
		for _, c := range cases {
			w := &want[c.n%batch]
			o.judge(c, string(m)+" "+command, c.unexplained(o.h.shared, w, &got[c.n%batch]))
		}
	}
	o.checkAlarms(m, cases)
	var kps []*kprobes.Kprobe
	byAddr := map[arch.Addr]*handled{}
	for _, p := range probes {
		kps, byAddr[p.Addr] = append(kps, &p.Kprobe), p
	}
	for _, c := range cases {
		if p := byAddr[c.at]; p != nil {
			o.judge(c, string(m), p.check(m, c, &want[c.n%batch]))
		}
	}
	if err := o.s.UnregisterKprobes(kps); err != nil {
		o.t.Fatal(err)
	}
}

// restart replaces a harness that has ended.
func (o *oracle) restart() {
	o.detach()
	o.attach()
	o.h.Code, o.h.Memory, o.h.In = o.plain.Code, o.plain.Memory, o.plain.In
	if err := o.h.do("load"); err != nil {
		o.t.Fatal(err)
	}
}

// checkAlarms fails if a signal's handler was told an address in a slot.
func (o *oracle) checkAlarms(m mode, cases []*testCase) {
	maps, err := procfs.Maps(o.h.prog.PID())
	if err != nil {
		o.t.Fatal(err)
	}
	for _, at := range o.h.Alarms[:min(o.h.NAlarms, nAlarms)] {
		for _, mp := range maps {
			if mp.Exec && mp.Range.Contains(arch.Addr(at)) && mp.Path != "[vdso]" {
				o.t.Errorf("-seed %d -from %d -cases %d: %s: the handler of an alarm was told %#x, in %s", o.seed, cases[0].n, len(cases), m, at, mp.Path)
			}
		}
	}
}

// register probes all instructions of the cases; those that are refused are counted.
func (o *oracle) register(m mode, cases []*testCase) (probes []*handled) {
	for _, c := range cases {
		for _, insn := range c.insns {
			p := m.probe(insn.Addr)
			err := o.s.RegisterKprobe(&p.Kprobe)
			if err == nil {
				probes = append(probes, p)
				continue
			}
			reason, known := refusal(err)
			if !known {
				o.t.Errorf("%s: %v", c, err)
			}
			o.refused[reason]++
		}
	}
	return probes
}

// refusal names the reason that a registration may be refused for.
func refusal(err error) (string, bool) {
	for _, e := range []error{arch.ErrBreakpoint, arch.ErrEnclave, arch.ErrOperandSize, kprobes.ErrNoSlot} {
		if errors.Is(err, e) {
			return e.Error(), true
		}
	}
	return "", false
}

// judge reports the differences that a case has shown.
func (o *oracle) judge(c *testCase, how string, d []string) {
	if len(d) == 0 {
		return
	}
	o.failures++
	kind := c.kind + " " + strings.Fields(c.text())[0]
	if o.failed[kind]++; o.failed[kind] <= 4 && len(o.failed) <= 40 {
		if len(d) > 8 {
			d = append(d[:8], fmt.Sprintf("and %d more", len(d)-8))
		}
		o.t.Errorf("%s: %s: %s", c, how, strings.Join(d, ", "))
	}
}

// ending says in a word how a case ended in place.
func ending(c *testCase, out *output) string {
	switch {
	case out.Signo == sigTRAP && out.RIP > uint64(c.end()) && out.RIP <= uint64(c.end())+uint64(len(c.tail))+1:
		return "end"
	case out.Signo == sigTRAP && out.TrapNo == 3:
		return "branch"
	case out.Signo == sigTRAP:
		return "trace"
	}
	return fmt.Sprintf("signal %d", out.Signo)
}

func (o *oracle) report() {
	o.t.Logf("seed %d: ended %s", o.seed, counts(o.ran))
	o.t.Logf("refused %s", counts(o.refused))
	if o.failures > 0 {
		o.t.Errorf("%d failures: %s", o.failures, counts(o.failed))
	}
}

func counts(m map[string]int) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, fmt.Sprintf("%s: %d", k, m[k]))
	}
	return strings.Join(parts, ", ")
}
