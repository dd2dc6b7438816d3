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

	"github.com/gokprobe/gokprobe/inject"
	"github.com/gokprobe/gokprobe/inject/fault"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/symbols"
)

// failFunction is fail_function (kernel/fail_function.c): functions that return an error instead of running, when
// the attributes say so. It is one rule of inject's, about all of them. Tree.mu is held while anything is changed, and while the session is
// asked for it.
type failFunction struct {
	tree     *Tree
	points   []*failPoint // in the order of their injection
	stop     func()       // watching threads
	injector *inject.Injector
	decider  *inject.Decider
	fault    *inject.Fault // of the points; nil if there are none

	injectable injectable

	mu     sync.Mutex   // for a moment only, since hits wait for it
	tasks  map[int]bool // threads that make-it-fail marks
	forget int          // how many they may be before those that are gone are looked for
}

// failPoint is a function that is injected.
type failPoint struct {
	ff     *failFunction
	name   string // as it was written
	kind   errorType
	retval atomic.Uint64 // what it returns
	warned bool          // that it can't return retval
}

func newFailFunction(t *Tree) *failFunction {
	a := fault.Default()
	a.Seed = rand.Uint64()
	d, err := inject.NewDecider(a)
	if err != nil {
		panic(err) // they are the kernel's defaults
	}
	silent := inject.Options{Log: func(string) {}} // the kernel says nothing of calls that were inlined
	ff := &failFunction{tree: t, decider: d, tasks: map[int]bool{}, injector: inject.New(t.session, silent)}
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
	return ff.inPlaceOf(append(slices.Clone(ff.points), p))
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
	if _, err := ff.tree.session.Entry(fn); errors.Is(err, kprobes.ErrNotEntry) {
		return nil, fmt.Errorf("%w: %w", syscall.ERANGE, err)
	} else if err != nil {
		return nil, err
	}
	p := &failPoint{ff: ff, name: name, kind: ff.tree.errorType(fn)}
	p.retval.Store(p.kind.initial())
	return p, nil
}

func (ff *failFunction) remove(name string) error {
	i := slices.IndexFunc(ff.points, func(p *failPoint) bool { return p.name == name })
	if i < 0 {
		return fmt.Errorf("%w: %s is not injected", syscall.ENOENT, name)
	}
	rest := slices.Delete(slices.Clone(ff.points), i, i+1)
	err := ff.inPlaceOf(rest)
	if err != nil { // none fails rather than one too many
		err = errors.Join(err, ff.removeAll())
		ff.points = rest
	}
	return err
}

func (ff *failFunction) removeAll() error {
	ff.points = nil
	if ff.fault == nil {
		return nil
	}
	err := ff.fault.Remove()
	ff.fault = nil
	return err
}

// close ends all injection.
func (ff *failFunction) close() error {
	ff.stop()
	return errors.Join(ff.removeAll(), ff.injector.Close())
}

// inPlaceOf injects points, after an error those that were there. Functions that are gone since the target executed another program are left out.
func (ff *failFunction) inPlaceOf(points []*failPoint) error {
	r := ff.rule(points)
	if len(r.Specs) == 0 {
		err := ff.removeAll()
		ff.points = points
		return err
	}
	f, err := ff.injector.Replace(context.Background(), ff.fault, r)
	if err == nil {
		ff.fault, ff.points = f, points
	}
	return err
}

// rule is what is injected: all of points, whose calls are one sequence.
func (ff *failFunction) rule(points []*failPoint) inject.Rule {
	r := inject.Rule{Name: "fail_function", Decider: ff.decider, Task: ff.marked}
	byName := map[string]*failPoint{}
	for _, p := range points {
		if _, err := ff.tree.resolve(p.name); !errors.Is(err, symbols.ErrUnknownSymbol) {
			r.Specs = append(r.Specs, p.name)
			byName[p.name] = p
		}
	}
	r.Handler = func(c *inject.Call) bool {
		p := byName[c.Place()]
		return p != nil && p.fail(c)
	}
	return r
}

// apply makes all points follow the attributes. Where no call can fail their probes are
// disabled, and cost nothing.
func (ff *failFunction) apply() error {
	if ff.fault != nil && ff.fault.Current() {
		return ff.fault.Start()
	}
	return ff.inPlaceOf(ff.points)
}
