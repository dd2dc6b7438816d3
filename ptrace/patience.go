package ptrace

import (
	"errors"
	"sync"
	"time"
)

// ErrNoAnswer means that memory is not there, and who is to provide it (a file system, a user of userfaultfd(2)) does not.
var ErrNoAnswer = errors.New("the memory does not answer")

const (
	// patience is how long a page may take to come. Such a read delays its session for
	// so long, once: see waits.
	patience = 3 * time.Second
	// mostSilent is how many sources of one address space are waited for without an answer. After that only memory that is there is read of it.
	mostSilent = 4
)

// waits are those accesses that nobody has waited for to their end. Each keeps a thread of ours in the kernel until its page comes or the program ends. While there
// is one, its source is not asked again.
var waits struct {
	sync.Mutex
	silent map[waitFor]int
}

type waitFor struct {
	id int // the process or thread that the memory was reached by
	source
}

// refused tells whether a source has not answered, or too many.
func (w waitFor) refused() bool {
	waits.Lock()
	defer waits.Unlock()
	n := 0
	for other := range waits.silent {
		if other.id == w.id {
			n++
		}
	}
	return waits.silent[w] > 0 || n >= mostSilent
}

// patiently runs f, which may wait for w and must use nothing that its caller goes on
// to use, on a goroutine of its own. A read that takes longer than patience, or until
// quit is closed, is left to itself.
func patiently(w waitFor, quit <-chan struct{}, f func() error) error {
	if w.refused() {
		return ErrNoAnswer
	}
	var late, over bool // guarded by waits
	done := make(chan error, 1)
	go func() {
		err := f()
		waits.Lock()
		defer waits.Unlock()
		if over = true; late {
			if waits.silent[w]--; waits.silent[w] == 0 {
				delete(waits.silent, w)
			}
		}
		done <- err
	}()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
	case <-quit:
	}
	waits.Lock()
	defer waits.Unlock()
	if over {
		return <-done
	}
	if waits.silent == nil {
		waits.silent = map[waitFor]int{}
	}
	late = true
	waits.silent[w]++
	return ErrNoAnswer
}
