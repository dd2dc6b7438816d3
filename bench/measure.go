package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gokprobe/gokprobe/kprobes"
)

// measure says what a measurer measures: what a call of a function costs.
type measure struct {
	Kind     kind
	Function string
	Threads  int
	Calls    int // per thread
	Warm     int // portions of the calls before that are not measured, beside the first

	// OwnTime counts only the time in which the target runs: what no other process takes
	// part in does not depend on what else the machine does then.
	OwnTime bool

	// Of probed.
	Places   []string // the probes; see places
	NoBoost  bool
	Optimize bool // it is to be optimized; else it is not allowed to
	Load     load

	Work   work // of ptraceLoop
	Return bool // of kernelProbe: a uretprobe

	// Of registering, where Calls is the number of probes.
	Batch  bool // in one call
	ByName bool // not by address
	Undo   bool // unregistering them
}

type kind string

const (
	ptraceLoop  kind = "ptrace loop"      // a bare loop of a tracer
	byHand      kind = "by hand"          // a function with a hand-written detour, or without
	probed      kind = "probed"           // a function under probes
	kernelProbe kind = "kernel's uprobes" // a function under the kernel's own probe
	registering kind = "registering"      // not a call, but a probe's registration
)

// load is what else goes on, where it matters.
type load string

const (
	free         load = "free"          // another processor is free
	busy         load = "busy"          // something else keeps another processor busy
	oneProcessor load = "one processor" // there is no other processor
)

func (j job) run() (ns float64, err error) {
	switch m := j.Measure; m.Kind {
	case ptraceLoop:
		return j.ptraceLoop(m.Work)
	case byHand:
		return j.byHand()
	case kernelProbe:
		return j.kernelProbe()
	case probed:
		return j.probed()
	case registering:
		return j.registering()
	}
	return 0, fmt.Errorf("unknown measurement %q", j.Measure.Kind)
}

// target starts a target, on the first processor if it has one thread.
func (j job) target() (*target, error) {
	t, err := startTarget(j.Image)
	if err != nil || j.Measure.Threads > 1 {
		return t, err
	}
	if _, err := t.do("pin %d", j.CPUs[0]); err != nil {
		t.end()
		return nil, err
	}
	return t, nil
}

// calls makes the target call the function, first to warm up and then for the record.
// It returns the nanoseconds of a call, and the number of all calls. After each portion
// settle, unless it is nil, is told how many there were until then.
func (j job) calls(t *target, settle func(n uint64) error) (ns float64, n uint64, err error) {
	m := j.Measure
	call := func(calls int) (float64, error) {
		command := fmt.Sprintf("hot %s %d", m.Function, calls)
		if m.OwnTime {
			command = fmt.Sprintf("own %s %d %d", m.Function, calls, m.Threads)
		}
		ns, err := t.timed("%s", command)
		n += uint64(calls * m.Threads)
		if err == nil && settle != nil {
			err = settle(n)
		}
		return ns, err
	}
	portion := m.portion()
	if ns, err = call(portion/10 + 1); err != nil {
		return 0, 0, err
	}
	// If a hit takes many times longer than it should, the measurement does not.
	portion = max(min(portion, int(float64(enough)/ns)), 1)
	for range 1 + m.Warm {
		if _, err := call(portion); err != nil {
			return 0, 0, err
		}
	}
	ns, err = portionwise(func() (float64, error) { return call(portion) })
	return ns, n, err
}

// enough is how long a portion has to take at most, to say something.
const enough = 200 * time.Millisecond

// portions is in how many parts the calls of a measurement are made. Disturbances of a
// few parts do not change their median.
const portions = 9

func (m measure) portion() int { return m.Calls/portions + 1 }

// portionwise measures each portion and returns the median.
func portionwise(each func() (ns float64, err error)) (float64, error) {
	var s series
	for range portions {
		ns, err := each()
		if err != nil {
			return 0, err
		}
		s = append(s, ns)
	}
	return s.median(), nil
}

// byHand measures a function with nobody looking.
func (j job) byHand() (ns float64, err error) {
	t, err := j.target()
	if err != nil {
		return 0, err
	}
	defer t.end()
	ns, n, err := j.calls(t, nil)
	if err != nil {
		return 0, err
	}
	answer, err := t.do("counted")
	if err != nil {
		return 0, err
	}
	var calls, counts, records uint64
	if _, err := fmt.Sscanf(answer, "%d %d %d", &calls, &counts, &records); err != nil {
		return 0, err
	}
	want := map[string][2]uint64{"foo_count": {n, 0}, "foo_record": {0, n}}[j.Measure.Function]
	if calls != n || want != [2]uint64{counts, records} {
		return 0, fmt.Errorf("of %d calls %d were made, %d counted, %d recorded", n, calls, counts, records)
	}
	return ns, nil
}

// probed measures a function under gokprobe's probes.
func (j job) probed() (ns float64, err error) {
	if j.Measure.Load == busy {
		stop, err := j.makeBusy()
		if err != nil {
			return 0, err
		}
		defer stop()
	}
	t, err := j.target()
	if err != nil {
		return 0, err
	}
	defer t.end()
	ns, err = j.underProbes(t)
	if err != nil {
		return 0, err
	}
	if _, err := t.do("clean"); err != nil {
		return 0, fmt.Errorf("after detaching: %w", err)
	}
	return ns, nil
}

func (j job) underProbes(t *target) (ns float64, err error) {
	m := j.Measure
	s, err := kprobes.Attach(context.Background(), t.pid(), kprobes.Options{NoBoost: m.NoBoost, NoOptimize: !m.Optimize, Log: func(string) {}})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	var probes []placed
	for _, name := range m.Places {
		p, err := places[name](s, symbolPrefix+m.Function)
		if err != nil {
			return 0, err
		}
		probes = append(probes, p)
	}
	if m.Optimize {
		if err := optimized(s, probes); err != nil {
			return 0, err
		}
	}
	ns, n, err := j.calls(t, func(n uint64) error { return settle(probes, n) })
	if err != nil {
		return 0, err
	}
	for i, p := range probes {
		if got := p.hits(); got != n {
			return 0, fmt.Errorf("the %s counted %d hits of %d", m.Places[i], got, n)
		}
	}
	return ns, nil
}

// optimized waits until the probes are, or says why they are not.
func optimized(s *kprobes.Session, probes []placed) error {
	s.WaitForOptimizer(context.Background())
	for _, p := range probes {
		if why := p.stops(); why != "" {
			return &unavailable{"not optimized: " + why}
		}
	}
	return nil
}

// makeBusy keeps the second processor busy until stop is called.
func (j job) makeBusy() (stop func(), err error) {
	t, err := startTarget(j.Image)
	if err != nil {
		return nil, err
	}
	if _, err = t.do("pin %d", j.CPUs[1]); err == nil {
		_, err = t.do("burn")
	}
	if err != nil {
		t.end()
		return nil, err
	}
	return t.end, nil
}
