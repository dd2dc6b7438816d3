package targetfs

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// ErrTooMany means that as many files of targets are open as may be at once. A target may map as many as it likes.
var ErrTooMany = errors.New("too many of its files are open")

// mostFiles is how many files of all targets are open at once, at most, and no more than half of what this process may have open: the rest is for what it
// needs itself. Programs with the most libraries map some hundreds.
const mostFiles = 2048

var open atomic.Int64

var openLimit = sync.OnceValue(func() int64 {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return mostFiles
	}
	return int64(min(mostFiles, limit.Cur/2))
})

// claim is one of those that may be open; leave gives it back, once.
func claim() (leave func(), err error) {
	if open.Add(1) > openLimit() {
		open.Add(-1)
		collectSoon()
		return nil, ErrTooMany
	}
	return sync.OnceFunc(func() { open.Add(-1) }), nil
}

var collected atomic.Int64

// collectSoon has files closed that nobody holds any more, as those of libraries that have gone. It is done now and then only: it takes time.
func collectSoon() {
	const pause = 10 * time.Second
	now, last := time.Now().UnixNano(), collected.Load()
	if now-last > int64(pause) && collected.CompareAndSwap(last, now) {
		runtime.GC()
	}
}
