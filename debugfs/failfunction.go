package debugfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gokprobe/gokprobe/inject"
	"github.com/gokprobe/gokprobe/inject/fault"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/program"
)

// failFunction is fail_function (kernel/fail_function.c): functions that return an error instead of running, when
// the attributes say so. Tree.mu is held while anything is changed, and while the session is asked for it.
type failFunction struct {
	tree   *Tree
	points []*failPoint // in the order of their injection
	stop   func()       // watching threads
	ending *inject.Returner

	injectable injectable

	mu      sync.Mutex // for a moment only, since hits wait for it
	decider *fault.Decider
	tasks   map[int]bool      // threads that make-it-fail marks
	forget  int               // how many they may be before those that are gone are looked for
	armed   []*kprobes.Kprobe // of the points
}

// failPoint is a function that is injected.
type failPoint struct {
	ff     *failFunction
	name   string // as it was written
	kind   errorType
	at     uint64        // from the symbol: what each call executes once
	retval atomic.Uint64 // what it returns
	kp     *kprobes.Kprobe
	steps  []fault.Step // that kp's program decides by; nil if the tracer decides
	warned bool         // that it can't return retval
}

func newFailFunction(t *Tree) *failFunction {
	a := fault.Default()
	a.Seed = rand.Uint64()
	d, err := fault.New(a)
	if err != nil {
		panic(err) // they are the kernel's defaults
	}
	ff := &failFunction{tree: t, decider: d, tasks: map[int]bool{}, ending: inject.NewReturner(t.session)}
	ff.injectable.tree = t
	ff.stop = t.session.WatchThreads(kprobes.ThreadWatcher{Born: ff.born, Gone: ff.gone})
	return ff
}

// modeAttr is that of the attributes' files (fault_create_debugfs_attr).
const modeAttr fs.FileMode = 0o600

// folder is fail_function: attributes, the list, and a directory for each function. A function that is called like one
// of the others has none; with its library's name in front it does.
func (ff *failFunction) folder() *node {
	files := map[string]*node{
		"inject":     {mode: modeAttr, read: ff.list, write: ff.inject},
		"injectable": ff.tree.injectable(),
		"tasks":      ff.tasksFolder(),
	}
	for _, name := range failAttributes {
		files[name] = ff.attribute(name)
	}
	fixed := folder(modeTop, files)
	return &node{
		mode: modeTop,
		names: func() []string {
			all := fixed.names()
			for _, p := range ff.all() {
				if files[p.dir()] == nil {
					all = append(all, p.dir())
				}
			}
			return all
		},
		child: func(name string) *node {
			if n := files[name]; n != nil {
				return n
			}
			for _, p := range ff.all() {
				if p.dir() == name {
					return folder(modeTop, map[string]*node{"retval": p.retvalFile()})
				}
			}
			return nil
		},
	}
}

// dir is the name of the function's directory. As in sysfs a slash becomes an exclamation mark.
func (p *failPoint) dir() string { return strings.ReplaceAll(p.name, "/", "!") }

func (ff *failFunction) all() []*failPoint {
	ff.tree.mu.Lock()
	defer ff.tree.mu.Unlock()
	return slices.Clone(ff.points)
}

// list is what inject reads.
func (ff *failFunction) list() ([]byte, error) {
	var b []byte
	for _, p := range ff.all() {
		b = append(b, p.name+"\n"...)
	}
	return b, nil
}

// inject is a write to inject (fei_write): a function's name, one behind an exclamation mark, or nothing.
func (ff *failFunction) inject(text []byte) error {
	name := strings.TrimSpace(string(text))
	ff.tree.mu.Lock()
	defer ff.tree.mu.Unlock()
	switch {
	case name == "":
		return ff.removeAll()
	case name[0] == '!':
		return ff.remove(name[1:])
	}
	return ff.add(name)
}

func (ff *failFunction) add(name string) error {
	p, err := ff.newPoint(name)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(ff.points, func(q *failPoint) bool { return q.name == name }) {
		return fmt.Errorf("%w: %s is injected already", syscall.EBUSY, name)
	}
	ff.points = append(ff.points, p)
	if err := ff.apply(); err != nil {
		return errors.Join(err, ff.remove(name))
	}
	return nil
}

// newPoint finds the function that name stands for.
func (ff *failFunction) newPoint(name string) (*failPoint, error) {
	if ff.tree.closed {
		return nil, kprobes.ErrClosed
	}
	found, err := ff.tree.resolve(name)
	switch {
	case err != nil: // of any kind, as the kernel's
		return nil, fmt.Errorf("%w: %w", syscall.EINVAL, err)
	case len(found) > 1:
		return nil, fmt.Errorf("%w: %s stands for %d functions", syscall.EINVAL, name, len(found))
	}
	fn := found[0].Addr
	at, err := ff.tree.session.Entry(fn)
	if errors.Is(err, kprobes.ErrNotEntry) {
		err = fmt.Errorf("%w: %w", syscall.ERANGE, err)
	}
	if err != nil {
		return nil, err
	}
	p := &failPoint{ff: ff, name: name, kind: ff.tree.errorType(fn), at: uint64(at - fn)}
	p.retval.Store(p.kind.initial())
	return p, nil
}

func (ff *failFunction) remove(name string) error {
	i := slices.IndexFunc(ff.points, func(p *failPoint) bool { return p.name == name })
	if i < 0 {
		return fmt.Errorf("%w: %s is not injected", syscall.ENOENT, name)
	}
	err := ff.points[i].unregister()
	ff.points = slices.Delete(slices.Clone(ff.points), i, i+1)
	return errors.Join(err, ff.apply())
}

func (ff *failFunction) removeAll() error {
	var errs []error
	for _, p := range ff.points {
		errs = append(errs, p.unregister())
	}
	ff.points = nil
	return errors.Join(append(errs, ff.apply())...)
}

func (p *failPoint) unregister() error {
	if p.kp == nil {
		return nil
	}
	return p.ff.tree.session.UnregisterKprobe(p.kp)
}

// close ends all injection.
func (ff *failFunction) close() error {
	ff.stop()
	return ff.removeAll()
}

// register places p's probe, disabled. By steps, if there are any, the target decides.
func (p *failPoint) register(steps []fault.Step) error {
	decided := len(steps) > 0
	kp := &kprobes.Kprobe{SymbolName: p.name, Offset: p.at, Flags: kprobes.FlagDisabled}
	kp.PreHandler = func(kp *kprobes.Kprobe, regs *kprobes.Regs) int { return p.hit(kp, regs, decided) }
	if decided {
		var err error
		if kp.Program, err = program.Decision(p.name, nil, inject.Met(steps)); err != nil {
			return err
		}
	}
	if err := p.ff.tree.session.RegisterKprobe(kp); err != nil {
		return err
	}
	p.kp, p.steps = kp, steps
	return nil
}

// apply makes all points follow the attributes. Where no call can fail their probes are
// disabled, and cost nothing.
func (ff *failFunction) apply() error {
	ff.mu.Lock()
	attr, done := ff.decider.Attr(), ff.decider.Done(time.Now())
	part, err := attr.Static()
	if err != nil || part.Never || attr.Space > 1 || ff.decider.Waiting() {
		part = fault.StaticPart{} // space is told, so it can't be in the target
	}
	ff.mu.Unlock()
	var errs []error
	var kps []*kprobes.Kprobe
	for i, p := range ff.points {
		if err := p.decideBy(ff.steps(part, i)); err != nil {
			errs = append(errs, err)
		}
		if p.kp != nil {
			kps = append(kps, p.kp)
		}
	}
	ff.mu.Lock()
	ff.armed = kps
	ff.mu.Unlock()
	if !done {
		return errors.Join(append(errs, ff.tree.session.EnableKprobes(context.Background(), kps))...)
	}
	return errors.Join(append(errs, ff.disarm())...)
}

// steps is what the target can decide at the i-th point, of part; nil if it is nothing. Counters are common to all
// functions, so with several of them it can only draw random numbers, each function of its own.
func (ff *failFunction) steps(part fault.StaticPart, i int) []fault.Step {
	steps := slices.Clone(part.Steps)
	if len(ff.points) == 1 {
		return steps
	}
	for j, s := range steps {
		if !s.Random {
			return nil
		}
		steps[j].Seed = fault.Mix(s.Seed, uint64(i))
	}
	return steps
}

// decideBy has the target decide by steps, or the tracer if there are none. The probe that p had, if any, is replaced by one
// that is disabled.
func (p *failPoint) decideBy(steps []fault.Step) error {
	old := p.kp
	if old != nil && slices.Equal(steps, p.steps) {
		return nil
	}
	if err := p.register(steps); err != nil || old == nil {
		return err
	}
	return p.ff.tree.session.UnregisterKprobe(old)
}

// disarm disables all probes. It may be called at a hit.
func (ff *failFunction) disarm() error {
	ff.mu.Lock()
	kps := ff.armed
	ff.mu.Unlock()
	var errs []error
	for _, kp := range kps {
		errs = append(errs, ff.tree.session.DisableKprobe(kp))
	}
	return errors.Join(errs...)
}
