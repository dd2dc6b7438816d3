// Package budget bounds the memory that what a target says may take. There is one Budget for the process: it is asked before memory is
// allocated by sizes and counts that a target, or a file of its, has chosen. What is refused is not read; the rest goes on.
package budget

import (
	"errors"
	"fmt"
	"math"
	"runtime/debug"
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
}

// New makes a Budget of so many bytes.
func New(bytes int64) *Budget { return &Budget{limit: func() int64 { return bytes }} }

var process = &Budget{limit: func() int64 {
	limit := debug.SetMemoryLimit(-1)
	if limit == math.MaxInt64 {
		limit = Memory
	}
	return limit / 8 * 5 // the rest is for what is made of it, and for garbage
}}

// Process is the one Budget of this process: five eighths of the Go runtime's memory limit, so of GOMEMLIMIT; without
// a limit, of Memory.
func Process() *Budget { return process }

// Limit is the whole amount, in bytes.
func (b *Budget) Limit() uint64 { return uint64(max(b.limit(), 0)) }

// Account is what one file, or another thing that ends as a whole, has taken. It is safe for concurrent use.
type Account struct {
	budget *Budget
	held   atomic.Int64
}

// Open begins an account.
func (b *Budget) Open() *Account { return &Account{budget: b} }

// Take asks for n bytes. The error matches ErrOver, is one sentence's end about what, and nothing is taken then.
func (a *Account) Take(n uint64, what string) error {
	b := a.budget
	if n > b.Limit() || !b.take(int64(n)) {
		return fmt.Errorf("%s would take %s, %w of %s (GOMEMLIMIT allows more)", what, size(n), ErrOver, size(b.Limit()))
	}
	a.held.Add(int64(n))
	return nil
}

// Give returns n bytes that were taken.
func (a *Account) Give(n uint64) {
	a.held.Add(-int64(n))
	a.budget.used.Add(-int64(n))
}

// Close returns all that the account has taken. Call it when nobody will look at the memory any more; it may be called again.
func (a *Account) Close() { a.budget.used.Add(-a.held.Swap(0)) }

func (b *Budget) take(n int64) bool {
	if b.used.Add(n) <= b.limit() {
		return true
	}
	b.used.Add(-n)
	return false
}

func size(n uint64) string {
	if n < 1<<20 {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%d MiB", n>>20)
}
