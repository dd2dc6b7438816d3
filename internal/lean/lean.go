// Package lean keeps the command's address space small. It must be imported for its effect, by a main package only.
//
// The interpreter of scenarios reserves 4 GiB of addresses when its package is
// initialized, so that small integers need no memory: every command did, which fails
// loudly under ulimit -v. It does without if the kernel refuses. So, unless the command
// line names a scenario, the process may take at most one more gigabyte while packages
// are initialized (setrlimit(2), RLIMIT_AS, the soft limit).
//
// That works since this package is initialized before the interpreter's: packages are initialized in the order of their import paths as
// far as what they import has been (The Go Programming Language Specification, "Program initialization"), and this one's path comes first and
// imports nothing that the interpreter does not. A test looks at the result.
package lean

import (
	"io"
	"log"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// room is what initializing packages may take, in bytes. Go's heap grows by 64 MiB.
const room = 1 << 30

// before is the limit to be put back; nil if it was left alone.
var before = narrow()

// narrow sets the limit for the time of initialization.
func narrow() *unix.Rlimit {
	log.SetOutput(io.Discard) // the interpreter would tell
	if strings.Contains(strings.Join(os.Args, " "), "script") {
		return nil
	}
	var old unix.Rlimit
	has, err := size()
	if err != nil || unix.Getrlimit(unix.RLIMIT_AS, &old) != nil || old.Cur < has+room {
		return nil
	}
	if unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: has + room, Max: old.Max}) != nil {
		return nil
	}
	return &old
}

// size is how large the address space is, in bytes.
func size() (uint64, error) {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, err
	}
	pages, _, _ := strings.Cut(string(b), " ")
	n, err := strconv.ParseUint(pages, 10, 64)
	return n * uint64(os.Getpagesize()), err
}

// Done ends it. It must be the first thing that main does.
func Done() {
	log.SetOutput(os.Stderr)
	if before != nil {
		_ = unix.Setrlimit(unix.RLIMIT_AS, before)
	}
}
