package kprobes

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/escape"
	"github.com/gokprobe/gokprobe/ptrace"
)

// coded is a sentinel that also matches the errno that the kernel returns in its
// place.
type coded struct {
	text  string
	errno unix.Errno
}

func (e *coded) Error() string        { return e.text }
func (e *coded) Is(target error) bool { return target == e.errno }

// Why a probe is refused. Each matches, by errors.Is, the errno that
// register_kprobe returns in the same case (kernel/kprobes.c).
var (
	ErrBothAddrAndSymbol error = &coded{"both Addr and SymbolName are given; give one", unix.EINVAL}
	ErrNoAddrOrSymbol    error = &coded{"neither Addr nor SymbolName is given", unix.EINVAL}
	ErrUnknownSymbol     error = &coded{"no such symbol", unix.ENOENT}
	ErrAmbiguousSymbol   error = &coded{"the symbol is not unique", unix.EADDRNOTAVAIL}
	ErrRegistered        error = &coded{"the probe is registered already", unix.EINVAL}
	ErrPlaced            error = &coded{"another probe of the same pattern is there", unix.EEXIST}
	ErrNotRegistered     error = &coded{"the probe is not registered", unix.EINVAL}
	ErrNotMapped         error = &coded{"the address is in no mapping of the process", unix.EINVAL}
	ErrNotExecutable     error = &coded{"the address is not in executable memory", unix.EINVAL}
	ErrBlacklisted       error = &coded{"the address must not be probed", unix.EINVAL}
	ErrNotBoundary       error = &coded{"the address is not the start of an instruction", unix.EILSEQ}
	ErrUndecodable       error = &coded{"the code up to the address can't be decoded", unix.EILSEQ}
	ErrData              error = &coded{"the address holds data", unix.EILSEQ}
	ErrRestartable       error = &coded{"the address belongs to a restartable sequence (rseq), which a stop does not let come to its end", unix.EINVAL}
	ErrException         error = &coded{"the instruction can't be told from a probe", unix.EILSEQ}
	ErrNotEntry          error = &coded{"the address is not the entry of a function", unix.EINVAL}
	ErrDataSize          error = &coded{"DataSize is not from 0 to 4096", unix.E2BIG}
	ErrUnsupported       error = &coded{"the instruction can't be run out of line", unix.EOPNOTSUPP}
	ErrNoSlot            error = &coded{"there is no memory for the copy of the instruction", unix.ENOMEM}
	ErrShadowStack       error = &coded{"the process uses a shadow stack, so calls and returns can't be emulated", unix.EOPNOTSUPP}
	ErrEntryType         error = &coded{"Entry must be a func with the probed function's parameters and no results", unix.EINVAL}
	ErrJprobeExists      error = &coded{"there is a Jprobe at the address already", unix.EEXIST}
	ErrGone              error = &coded{"the probed code is gone", unix.EINVAL}
	ErrExecuted          error = &coded{"the process has executed another program", unix.EINVAL}
	ErrShortRecord       error = &coded{"a record of the Program has no room for what Time and Thread have returned", unix.EINVAL}
	ErrNoNumbers         error = &coded{"no number of a system call is given", unix.EINVAL}
	ErrIncomplete        error = &coded{"not all places that make the system call can be known", unix.EOPNOTSUPP}
	ErrClosed            error = &coded{"the session is closed", unix.ESRCH}
	ErrExited            error = &coded{"the process has exited", unix.ESRCH}
)

// Why a function can't be called, or did not return.
var (
	ErrNotInHandler = errors.New("the registers are not those of a handler that runs now")
	ErrGoStack      = errors.New("the thread runs Go code, on a stack that is too small for other functions")
	ErrCallFault    = errors.New("the function has raised an exception")
	ErrCallTimeout  = ptrace.ErrCallTimeout
	ErrCallLeft     = ptrace.ErrCallLeft
)

// ErrNoErrno tells that the program has no C library, or none whose functions are known by name.
var ErrNoErrno = errors.New("the target has no errno: no module has a function __errno_location")

// ErrPanic is what the log says of a panic in a handler, or in gokprobe itself.
var ErrPanic = errors.New("panic")

func probeError(kp *Kprobe, err error) error {
	return fmt.Errorf("probe %s: %w", escape.Short(kp.name()), err)
}
