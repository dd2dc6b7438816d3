// Package helper runs work that may crash, or never end, in a process of its own: this program's executable, started again. The process is told from others by the name that it is started with.
// It has no right that its parent lacks, and holds nothing open but the files that it is given. It ends with its parent at the latest.
package helper

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/guardian"
)

// ErrNoMain is why there is no such process.
var ErrNoMain = errors.New("it needs a process of its own, which is this program started again: call kprobes.GuardianMain first in its main function, or in TestMain")

var (
	works  = map[string]func(){}
	hooked atomic.Bool
)

// Register says what a process does that is started with a name. Packages call it in init.
func Register(name string, work func()) { works[name] = work }

// Main does the work that this process was started for, and does not return then.
func Main() {
	if len(os.Args) == 1 && isSocket(socketFD) {
		if work := works[os.Args[0]]; work != nil {
			go guardian.CloseInherited() // nobody is to wait for what that may wait for
			work()
			os.Exit(0)
		}
	}
	hooked.Store(true)
}

// socketFD is the descriptor of the conversation with the parent, of a helper; those of other files follow.
const socketFD = 3

func isSocket(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFSOCK
}

// Socket is the conversation with the parent, of a helper.
func Socket() *os.File { return os.NewFile(socketFD, "parent") }

// Confine limits the calling process for good: so many bytes more than it has mapped, no core dumps, and no byte written to a file.
func Confine(bytes uint64) error {
	mapped, err := mapped()
	if err != nil {
		return fmt.Errorf("limiting itself: %w", err)
	}
	for what, limit := range map[int]uint64{unix.RLIMIT_AS: mapped + bytes, unix.RLIMIT_CORE: 0, unix.RLIMIT_FSIZE: 0, unix.RLIMIT_NOFILE: 64} {
		var now unix.Rlimit
		if err := unix.Getrlimit(what, &now); err != nil {
			return fmt.Errorf("limiting itself: %w", err)
		}
		limit = min(limit, now.Max) // only root may raise it
		if err := unix.Setrlimit(what, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
			return fmt.Errorf("limiting itself: %w", err)
		}
	}
	return nil
}

// mapped is how large the address space is, in bytes. Go reserves much of it when it starts.
func mapped() (uint64, error) {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, err
	}
	pages, _, _ := strings.Cut(string(b), " ")
	n, err := strconv.ParseUint(pages, 10, 64)
	return n * uint64(os.Getpagesize()), err
}

// OpenNoMore has the calling process open nothing any more.
func OpenNoMore() error { return unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{}) }

// Process is a helper, as its parent sees it.
type Process struct {
	Socket *os.File
	ended  chan struct{}
	of     *os.Process
}

// Start starts a helper for the work of a name. Descriptor 4 is file, there.
func Start(name string, file *os.File) (*Process, error) {
	if !hooked.Load() {
		return nil, ErrNoMain
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	p := &Process{Socket: os.NewFile(uintptr(pair[0]), name), ended: make(chan struct{})}
	theirs := os.NewFile(uintptr(pair[1]), name)
	defer theirs.Close()
	started := make(chan error)
	go p.keep(name, []*os.File{theirs, file}, started)
	if err := <-started; err != nil {
		_ = p.Socket.Close()
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	return p, nil
}

// keep starts the process, and waits for its end, on a thread that lives as long: the kernel kills the process when the thread that has started it ends.
func (p *Process) keep(name string, files []*os.File, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		started <- err
		return
	}
	defer null.Close()
	p.of, err = os.StartProcess("/proc/self/exe", []string{name}, &os.ProcAttr{
		Dir: "/", Env: []string{"GOMEMLIMIT=768MiB", "GOMAXPROCS=2", "GOTRACEBACK=none"},
		Files: append([]*os.File{null, null, null}, files...),
		Sys:   &syscall.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL},
	})
	started <- err
	if err != nil {
		return
	}
	_, _ = p.of.Wait() // ECHILD, if somebody else has waited: it has ended, too
	close(p.ended)
}

// PID is the process's number.
func (p *Process) PID() int { return p.of.Pid }

// Kill ends the process, and the conversation with it.
func (p *Process) Kill() {
	_ = p.of.Kill()
	_ = p.Socket.Close()
}

// Wait waits for the process's end.
func (p *Process) Wait() { <-p.ended }
