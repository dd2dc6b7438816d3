package symbols

import (
	"context"
	"sync"

	"github.com/gokprobe/gokprobe/arch"
)

// Reading symbols from a file may take seconds, and must not stop halfway: the result is kept for later questions. So
// reading goes on, on a goroutine of its own, when the caller no longer wants to wait.

// asides counts the questions that run on goroutines of their own. Closing the table does not wait for them; the last one
// closes its files.
type asides struct {
	mu      sync.Mutex
	running int
	close   func() // called at the end of the last question; nil if the table is in use
}

func (a *asides) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.running++
}

func (a *asides) end() {
	a.mu.Lock()
	a.running--
	last := a.close
	if a.running > 0 {
		last = nil
	}
	a.mu.Unlock()
	if last != nil {
		last()
	}
}

// later arranges that f is called at the end of the last question. It returns false if none is running.
func (a *asides) later(f func()) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.running > 0 {
		a.close = f
	}
	return a.running > 0
}

// Aside calls f, which may ask the table any question, and waits until f has returned or ctx is done. If ctx is done first,
// Aside returns ctx.Err() at once, and f goes on alone on a goroutine of its own. Then the caller must not use variables that
// f changes. Close may be called meanwhile; the table's files are closed when f has returned.
func (t *Table) Aside(ctx context.Context, f func()) error {
	if ctx.Done() == nil {
		f()
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	done := make(chan any, 1)
	t.asides.begin()
	go func() {
		defer t.asides.end()
		defer func() { done <- recover() }() // who waits is the one to know
		f()
	}()
	select {
	case panicked := <-done:
		if panicked != nil {
			panic(panicked)
		}
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Resolve translates one probe specification:
//
//	foo          the function foo; its implementation in use if foo is indirect (STT_GNU_IFUNC)
//	foo+0x12     an address inside foo, hexadecimal or decimal offset
//	foo+*        every instruction of foo: one Location with Every set
//	lib.so:foo   in the module of that base name, or of that name before a dot or dash if only one fits;
//	             the executable is also found by the base name of argv[0] and by the process's comm
//	lib.so:0x12  a link-time address of the module
//	0x7f12       an address in the process
//	file.c:42    every place that the DWARF line table marks as a statement of the line
//	mem*         every function that matches; *, ? and [a-z]
//
// Names are linkage names or demangled ones, with or without parameters and
// template arguments; main.F[...] is every instance of a generic Go function. A
// Go import path may be cut to its last element: http.ListenAndServe.
// An exact name wins before a pattern.
//
// The result is sorted by address and never empty without an error. Errors
// match ErrBadSpec, ErrUnknownSymbol, ErrUnknownModule, ErrAmbiguous (as
// *AmbiguousError), ErrNotMapped, ErrNotExecutable, ErrNotCode, ErrNoLines, ErrNoLine,
// ErrUnknownSize or ErrIFuncUnbound.
// If ctx is done before the answer is known, Resolve returns ctx.Err() at once.
func (t *Table) Resolve(ctx context.Context, spec string) ([]Location, error) {
	return t.resolveAside(ctx, spec, true)
}

// Find is Resolve without an explanation in its errors. To explain why a name is missing, Resolve reads all symbols and the
// debug information.
func (t *Table) Find(ctx context.Context, spec string) ([]Location, error) {
	return t.resolveAside(ctx, spec, false)
}

func (t *Table) resolveAside(ctx context.Context, spec string, explain bool) ([]Location, error) {
	type answer struct {
		found []Location
		err   error
	}
	got := make(chan answer, 1)
	if err := t.Aside(ctx, func() {
		found, err := t.resolve(spec, explain)
		got <- answer{found, err}
	}); err != nil {
		return nil, err
	}
	a := <-got
	return a.found, a.err
}

// IndexNames prepares for many calls of Resolve. It reads every symbol once and makes an index of linkage names, which holds until the
// modules change. If ctx is done before, IndexNames returns ctx.Err() at once.
func (t *Table) IndexNames(ctx context.Context) error { return t.Aside(ctx, t.indexNames) }

// Ready reads the symbols of the module that contains a, so that Lookup and Function are quick there afterwards. If ctx is done first,
// Ready returns ctx.Err() at once.
func (t *Table) Ready(ctx context.Context, a arch.Addr) error {
	m := t.module(a)
	if ctx.Done() == nil || m == nil || m.img == nil || m.img.ready.Load() {
		return ctx.Err()
	}
	return t.Aside(ctx, func() {
		m.symbols().find(m.link(a))
		m.img.frame(m.link(a))
		m.img.ready.Store(true)
	})
}

// ReadyAll is Ready for all modules in which names are searched.
func (t *Table) ReadyAll(ctx context.Context) error {
	for _, m := range t.snap.Load().named {
		if len(m.Text) == 0 {
			continue
		}
		if err := t.Ready(ctx, m.Text[0].Start); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// ReadyParams reads everything that Params and Results need for a, as Ready does for addresses.
func (t *Table) ReadyParams(ctx context.Context, a arch.Addr) error {
	if ctx.Done() == nil {
		return nil // no deadline: Params and Results may read it themselves
	}
	return t.Aside(ctx, func() {
		_, _ = t.Params(a)
		_, _ = t.Results(a)
	})
}
