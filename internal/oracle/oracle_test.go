//go:build linux && amd64

package oracle_test

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/arch/amd64"
	"github.com/gokprobe/gokprobe/kprobes"
)

var (
	seedFlag  = flag.Uint64("seed", 1, "seed of the cases")
	caseFlag  = flag.Int("case", -1, "run this case only")
	fromFlag  = flag.Int("from", 0, "number of the first case")
	casesFlag = flag.Int("cases", 0, "number of cases; 0 means 6144, or 200,000 when GOKPROBE_TORTURE is set")
)

func numberOfCases() int {
	switch {
	case *casesFlag > 0:
		return *casesFlag
	case os.Getenv("GOKPROBE_TORTURE") != "":
		return 200000
	}
	return 12 * batch
}

// mode is how a probed instruction is run.
type mode string

const (
	attached mode = "attached" // traced, but not probed
	boosted  mode = "boosted"
	stepped  mode = "stepped"
)

func (m mode) probe(at arch.Addr) *kprobes.Kprobe {
	kp := &kprobes.Kprobe{Addr: at, PreHandler: func(*kprobes.Kprobe, *kprobes.Regs) int { return 0 }}
	if m == stepped {
		kp.PostHandler = func(*kprobes.Kprobe, *kprobes.Regs, uint64) {}
	}
	return kp
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
	s, err := kprobes.Attach(o.h.prog.PID(), kprobes.Options{Log: func(m string) { o.t.Errorf("session warns: %s", m) }})
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
		copy(h.Code[n%batch*stride:], slices.Concat(c.insn.Bytes, c.tail))
		h.In[n%batch] = c.in
		cases = append(cases, c)
	}
	o.h.Code, o.h.Memory, o.h.In = h.Code, h.Memory, h.In
	if err := errors.Join(o.plain.do("load"), o.h.do("load")); err != nil {
		o.t.Fatal(err)
	}
	want, err := o.plain.run()
	if err != nil {
		o.t.Fatalf("in place: %v", err)
	}
	for _, c := range cases {
		o.ran[ending(c, &want[c.n%batch])]++
	}
	for _, m := range []mode{attached, boosted, stepped} {
		o.runAs(m, cases, want)
	}
}

// runAs runs the cases in the traced harness.
func (o *oracle) runAs(m mode, cases []*testCase, want []output) {
	kps := make([]*kprobes.Kprobe, len(cases))
	if m != attached {
		var err error
		if kps, err = o.register(m, cases); err != nil {
			o.t.Fatal(err)
		}
	}
	got, err := o.h.run()
	if err != nil {
		o.failures++
		o.t.Errorf("-seed %d -from %d -cases %d: %s: %v", o.seed, cases[0].n, len(cases), m, err)
		o.detach()
		o.attach()
		o.h.Code, o.h.Memory, o.h.In = o.plain.Code, o.plain.Memory, o.plain.In
		if err := o.h.do("load"); err != nil {
			o.t.Fatal(err)
		}
		return
	}
	for i, c := range cases {
		if m == attached || kps[i] != nil {
			o.compare(c, m, kps[i], &want[c.n%batch], &got[c.n%batch])
		}
	}
	kps = slices.DeleteFunc(kps, func(kp *kprobes.Kprobe) bool { return kp == nil })
	if err := o.s.UnregisterKprobes(kps); err != nil {
		o.t.Fatal(err)
	}
}

// register probes the cases; those that are refused are nil.
func (o *oracle) register(m mode, cases []*testCase) ([]*kprobes.Kprobe, error) {
	kps := make([]*kprobes.Kprobe, len(cases))
	for i, c := range cases {
		kp := m.probe(c.at)
		err := o.s.RegisterKprobe(kp)
		if err == nil {
			kps[i] = kp
			continue
		}
		reason, known := refusal(err)
		if !known {
			return nil, fmt.Errorf("%s: %w", c, err)
		}
		o.refused[reason]++
	}
	return kps, nil
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

func (o *oracle) compare(c *testCase, m mode, kp *kprobes.Kprobe, want, got *output) {
	d := c.unexplained(o.h.shared, want, got)
	if kp != nil && kp.Hits() == 0 {
		d = append(d, "no hit")
	}
	if len(d) == 0 {
		return
	}
	o.failures++
	kind := mnemonic(c)
	if o.failed[kind]++; o.failed[kind] <= 4 && len(o.failed) <= 40 {
		if len(d) > 8 {
			d = append(d[:8], fmt.Sprintf("and %d more", len(d)-8))
		}
		o.t.Errorf("%s: %s: %s", c, m, strings.Join(d, ", "))
	}
}

// String is the line that reproduces the case.
func (c *testCase) String() string {
	return fmt.Sprintf("-seed %d -case %d: %s: % x: %s", c.seed, c.n, c.kind, c.insn.Bytes, amd64.Arch{}.Disassemble(c.insn))
}

func mnemonic(c *testCase) string {
	return c.kind + " " + strings.Join(strings.Fields(amd64.Arch{}.Disassemble(c.insn))[:1], " ")
}

// ending says in a word how a case ended in place.
func ending(c *testCase, out *output) string {
	switch {
	case out.Signo == sigTRAP && out.RIP > uint64(c.insn.End()) && out.RIP <= uint64(c.insn.End())+uint64(len(c.tail))+1:
		return "next"
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
