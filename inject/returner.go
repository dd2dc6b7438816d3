package inject

import (
	"errors"
	"math"
	"strconv"
	"sync"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/symbols"
)

// Returner has calls return values of their functions' own types, for an Injector and for whoever has probes of
// another kind in the same session. Its methods may be called from any goroutine; those that take registers, in
// their handler only.
type Returner struct {
	session *kprobes.Session

	mu    sync.Mutex
	known map[returnPoint]*knownResults

	watch   sync.Once
	keeping sync.Mutex // of keepers, for moments only: the end of a process waits for it
	keepers map[int]*keeper
}

// NewReturner makes a Returner for a session. What it has stored in the program stays there.
func NewReturner(s *kprobes.Session) *Returner {
	return &Returner{session: s, known: map[returnPoint]*knownResults{}, keepers: map[int]*keeper{}}
}

// returnPoint is where calls are ended.
type returnPoint struct {
	at    arch.Addr // in the function; 0 while its library is not loaded
	after bool      // the body has run
}

// knownResults is what has been found out of a function's results.
type knownResults struct {
	module *symbols.Module
	by     map[string]*typedResults
}

// Return ends the call at whose entry the thread is: its caller gets r, and its body does not run. at is an address in
// the function. The PreHandler must then return non-zero. An error is a sentence about r, or one of
// kprobes.Regs.ReturnNow's; then nothing has changed.
func (x *Returner) Return(regs *kprobes.Regs, at arch.Addr, r Results) error {
	return x.finish(regs, returnPoint{at: at}, r)
}

// ReturnNumber is Return for an integer: a number of the function's type where that is known, else, but for Go, what
// the register for integers holds.
func (x *Returner) ReturnNumber(regs *kprobes.Regs, at arch.Addr, v int64) error {
	return x.finish(regs, returnPoint{at: at}, number(v))
}

// Change gives a call that has just returned, in a Kretprobe's Handler, other results.
func (x *Returner) Change(regs *kprobes.Regs, at arch.Addr, r Results) error {
	return x.finish(regs, returnPoint{at, true}, r)
}

// ChangeNumber is Change for an integer.
func (x *Returner) ChangeNumber(regs *kprobes.Regs, at arch.Addr, v int64) error {
	return x.finish(regs, returnPoint{at, true}, number(v))
}

// plainNumber are results that say no more than a number.
type plainNumber struct {
	Results
	v int64
}

func number(v int64) plainNumber {
	text := strconv.FormatInt(v, 10)
	if v > math.MaxInt32 { // may use a sign's bit
		text = "0x" + strconv.FormatInt(v, 16)
	}
	return plainNumber{Results{Value: text}, v}
}

// wanted is what a call is to return.
type wanted interface {
	find(x *Returner, p returnPoint) (*typedResults, error)
	key() string
	results() Results
}

func (r Results) results() Results { return r }
func (r Results) key() string      { return r.String() }

func (r Results) find(x *Returner, p returnPoint) (*typedResults, error) {
	table := x.session.Symbols()
	if p.at == 0 {
		return r.untyped(table, p.at, errors.New("its library is not loaded yet"))
	}
	if r.Errno != 0 && table.GoFunction(p.at) {
		return nil, errors.New("a Go function has no errno; say which error it returns")
	}
	return r.compile(table, p.at, p.after)
}

func (n plainNumber) key() string { return strconv.FormatInt(n.v, 10) }

// find: in C and the like a function whose results have no such value, or that has none, gets it in the register for
// integers: whoever asks for that knows why. In Go the caller would take for results whatever the other registers hold.
func (n plainNumber) find(x *Returner, p returnPoint) (*typedResults, error) {
	tr, err := n.Results.find(x, p)
	switch {
	case p.at != 0 && x.session.Symbols().GoFunction(p.at):
		return tr, err
	case err != nil, len(tr.makers) == 0:
		return &typedResults{makers: []maker{constant(words(uint64(n.v)))}, hidden: true}, nil
	}
	return tr, nil
}

// mostKnown bounds what is remembered of one function, for results that handlers make up.
const mostKnown = 64

// look finds out what w is at p, once. That is forgotten when the function is another one: the process has executed a
// program, or loaded the library again.
func (x *Returner) look(p returnPoint, w wanted) (*typedResults, error) {
	loc, _ := x.session.Symbols().Lookup(p.at)
	x.mu.Lock()
	defer x.mu.Unlock()
	k := x.known[p]
	if k == nil || k.module != loc.Symbol.Module || len(k.by) >= mostKnown {
		k = &knownResults{loc.Symbol.Module, map[string]*typedResults{}}
		x.known[p] = k
	}
	if tr, ok := k.by[w.key()]; ok {
		return tr, nil
	}
	tr, err := w.find(x, p)
	if err == nil {
		k.by[w.key()] = tr
	}
	return tr, err
}

// finish ends a call, or gives one that has returned other results.
func (x *Returner) finish(regs *kprobes.Regs, p returnPoint, w wanted) error {
	tr, err := x.look(p, w)
	if err != nil {
		return err
	}
	if e := w.results().Errno; e != 0 {
		if err := regs.SetErrno(e); err != nil {
			return err
		}
	}
	x.watch.Do(func() { x.session.WatchThreads(kprobes.ThreadWatcher{Ended: x.forget}) })
	k := x.keeperOf(regs.PID())
	if p.after {
		return tr.change(regs, k)
	}
	return tr.end(regs, k)
}

// forget drops what is known of the memory of a process that has ended.
func (x *Returner) forget(pid int) {
	x.keeping.Lock()
	defer x.keeping.Unlock()
	delete(x.keepers, pid)
}

// keeperOf is what keeps our values' bytes in a process. Handlers use it, one at a time.
func (x *Returner) keeperOf(pid int) *keeper {
	x.keeping.Lock()
	defer x.keeping.Unlock()
	k := x.keepers[pid]
	if k == nil {
		k = &keeper{}
		x.keepers[pid] = k
	}
	return k
}
