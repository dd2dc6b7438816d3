// Package budget bounds the memory that what a target says may take. There is one
// Budget for the process: it is asked before memory is allocated by sizes and counts
// that a target, or a file of its, has chosen. Data that is refused is not read; the
// rest goes on.
//
// Memory that is taken belongs to an Account, and an Account ends as a whole. A file's
// reader has one for the data that it keeps; a single question has one while it is
// answered. No amount is given back by a number, which could differ from the one that
// was taken. So the sum is always that of the data that is alive.
package budget

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// ErrOver matches all refusals.
var ErrOver = errors.New("over the memory budget")

// Memory is how much memory the command lets the Go runtime use before it collects garbage ever more often (debug.SetMemoryLimit), if
// GOMEMLIMIT says nothing else. In bytes.
const Memory = 400 << 20

// Budget is an amount of memory, and how much of it is taken. It is safe for concurrent use.
type Budget struct {
	limit func() int64
	used  atomic.Int64
	spare atomic.Pointer[func() bool]
}

// New makes a Budget of so many bytes.
func New(bytes int64) *Budget { return &Budget{limit: func() int64 { return bytes }} }

var process = &Budget{limit: func() int64 {
	limit := debug.SetMemoryLimit(-1)
	if limit == math.MaxInt64 {
		limit = Memory
	}
	return limit / 8 * 5 // the rest is for data made from it, and for garbage
}}

// Process is the one Budget of this process: five eighths of the Go runtime's memory limit, so of GOMEMLIMIT; without
// a limit, of Memory.
func Process() *Budget { return process }

// Limit is the whole amount, in bytes.
func (b *Budget) Limit() uint64 { return uint64(max(b.limit(), 0)) }

// Used is how much is taken now, in bytes.
func (b *Budget) Used() uint64 { return uint64(max(b.used.Load(), 0)) }

// Spare names the function that gives back what nobody uses, and that is only kept to be faster. It is called before anything is refused, and returns false if
// there was nothing. It must not ask for memory.
func (b *Budget) Spare(f func() bool) { b.spare.Store(&f) }

func (b *Budget) take(n int64) bool {
	if b.used.Add(n) <= b.limit() {
		return true
	}
	b.used.Add(-n)
	return false
}

// Account is what one thing has taken that ends as a whole. It is safe for concurrent use. One that nobody holds any more gives back by itself
// when the garbage is collected, with the memory that it stands for.
type Account struct{ s *share }

// share is apart from its Account so that it can be closed when that is gone.
type share struct {
	budget  *Budget
	mu      sync.Mutex
	held    int64
	closes  int  // how often it was closed: a Part of before has nothing any more
	watched bool // whether it is closed with its Account: most of a question's take nothing
}

// Open begins an account.
func (b *Budget) Open() *Account { return &Account{&share{budget: b}} }

// Brief begins an account that the function which begins it is sure to close. Nothing sees to it that it gives back otherwise, which takes long for thousands
// of short questions.
func (b *Budget) Brief() *Account { return &Account{&share{budget: b, watched: true}} }

// Open begins another account of the same budget: for what one question needs, which closes it when it is answered.
func (a *Account) Open() *Account { return a.s.budget.Open() }

// Take asks for n bytes more. The error matches ErrOver, is one sentence's end about what, and nothing is taken then.
func (a *Account) Take(n uint64, what string) error { return a.Part(what).Set(n) }

// Held is how much the account has taken, in bytes.
func (a *Account) Held() uint64 {
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	return uint64(a.s.held)
}

// Close returns all that the account has taken. Call it when nobody will look at the
// memory any more. It may be called again; memory that is taken later is counted as
// before.
func (a *Account) Close() { a.s.close() }

func (s *share) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.budget.used.Add(-s.held)
	s.held = 0
	s.closes++
}

// Part is an amount within an account that changes: for a list that grows, or for data
// whose size is known only after reading. It is not safe for concurrent use.
type Part struct {
	a      *Account
	what   string
	held   int64
	closes int
}

// Part begins one of 0 bytes. The error of a refusal says what it is for.
func (a *Account) Part(what string) *Part { return &Part{a: a, what: what} }

// Set makes the part n bytes. The error is that of Take, and nothing has changed then; less is never refused.
func (p *Part) Set(n uint64) error {
	err := p.set(n)
	if err == nil || n > p.a.s.budget.Limit() {
		return err
	}
	if spare := p.a.s.budget.spare.Load(); spare != nil && (*spare)() {
		return p.set(n)
	}
	return err
}

func (p *Part) set(n uint64) error {
	s := p.a.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.closes != s.closes {
		p.held, p.closes = 0, s.closes
	}
	b := s.budget
	if n > uint64(p.held) && (n > b.Limit() || !b.take(int64(n)-p.held)) {
		return fmt.Errorf("%s would take %s, %w of %s (GOMEMLIMIT allows more)", p.what, size(n), ErrOver, size(b.Limit()))
	}
	if !s.watched {
		s.watched = true
		runtime.AddCleanup(p.a, (*share).close, s)
	}
	if n < uint64(p.held) {
		b.used.Add(int64(n) - p.held)
	}
	s.held += int64(n) - p.held
	p.held = int64(n)
	return nil
}

func size(n uint64) string {
	if n < 1<<20 {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%d MiB", n>>20)
}
