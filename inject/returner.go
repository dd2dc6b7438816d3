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

// Returner makes calls return values of their functions' own types. An Injector uses it; probes of other kinds in the
// same session may use it too. Its methods may be called from any goroutine, but a method that takes registers only
// in the handler that was given these.
type Returner struct {
	session *kprobes.Session

	mu    sync.Mutex
	known map[returnPoint]*knownResults

	watch   sync.Once
	keeping sync.Mutex // of keepers, for moments only: the end of a process waits for it
	keepers map[int]*keeper
}

// NewReturner makes a Returner for a session. Values that it stores in the target stay there for ever.
func NewReturner(s *kprobes.Session) *Returner {
	return &Returner{session: s, known: map[returnPoint]*knownResults{}, keepers: map[int]*keeper{}}
}

// returnPoint is a place at which calls are ended.
type returnPoint struct {
	at    arch.Addr // in the function; 0 while its library is not loaded
	after bool      // the body has run
}

// knownResults are compiled results for one function.
type knownResults struct {
	module *symbols.Module // at the time of compiling: another module at the address is another function
	by     map[string]*typedResults
}

// Return ends the call at whose entry the thread is: the caller gets r, and the body does not run. at is an address in
// the function. The PreHandler must then return non-zero. An error is a sentence about r, or an error of
// kprobes.Regs.ReturnNow; after an error nothing has changed.
func (x *Returner) Return(regs *kprobes.Regs, at arch.Addr, r Results) error {
	return x.finish(regs, returnPoint{at: at}, r)
}

// ReturnNumber is Return for an integer. If the function's type is known, v is a number of that type. Else v goes to the
// register for integers; for a Go function that is an error.
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

// plainNumber are Results that are only a number.
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

// wanted are the results that a call shall return.
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

// find compiles a number. In C, if the function's result can't be that number, or it has no result, the number goes to
// the register for integers: the user must know why. In Go that is an error: the caller would read the function's results
// from other registers, which nobody has set.
func (n plainNumber) find(x *Returner, p returnPoint) (*typedResults, error) {
	tr, err := n.Results.find(x, p)
	switch {
	case p.at != 0 && x.session.Symbols().GoFunction(p.at):
		return tr, err
	case err != nil, len(tr.makers) == 0:
		return &typedResults{makers: []maker{constant(words(uint64(n.v)))}, isPlain: true}, nil
	}
	return tr, nil
}

// mostKnown is how many compiled results are kept for one function: a handler may ask for ever new ones.
const mostKnown = 64

// look compiles w for p, once. It does so again when p's address belongs to another module: the process has executed
// another file, or has loaded the library again.
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

// forget drops the keeper of a process that has ended: its memory is gone.
func (x *Returner) forget(pid int) {
	x.keeping.Lock()
	defer x.keeping.Unlock()
	delete(x.keepers, pid)
}

// keeperOf returns the keeper of our values' bytes in a process. Only handlers use it, one at a time.
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
