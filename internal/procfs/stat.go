package procfs

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
)

// Stat holds the fields of /proc/PID/stat that a tracer asks for.
type Stat struct {
	Pid       int    // thread id for a thread's file
	Comm      string // unescaped; may hold spaces, parentheses and newlines
	State     byte   // as Status.State
	PPid      int
	Flags     uint64 // PF_ bits, include/linux/sched.h
	StartTime uint64 // clock ticks (sysconf(_SC_CLK_TCK)) since boot; with Pid it names a process for good
	Processor int    // CPU it last ran on
	StartBrk  uint64 // address at which the heap begins that brk(2) grows; 0 if the reader may not trace the process
}

// PFKthread is the bit of Stat.Flags that marks a kernel thread (PF_KTHREAD).
const PFKthread = 0x00200000

// Bits of Stat.Flags of threads that the kernel has made in a process for work of its own: those of io_uring (iou-wrk,
// iou-sqp; PF_IO_WORKER) and of vhost (PF_USER_WORKER, which newer kernels set for both).
const (
	pfIOWorker   = 0x00000010
	pfUserWorker = 0x00004000
)

// Worker tells of a thread of a process that it never runs code of the program, and never returns from the kernel. Its
// flags are set before anybody can see it (copy_process in kernel/fork.c).
func (s Stat) Worker() bool { return s.Flags&(pfIOWorker|pfUserWorker) != 0 }

// ReadStat reads the stat file of thread tid of process pid. A tid of 0 stands
// for the leader.
func ReadStat(pid, tid int) (Stat, error) { return load(path(pid, tid, "stat"), ParseStat) }

// ParseStat parses a stat file. A malformed one gives an error that matches
// ErrFormat.
func ParseStat(r io.Reader) (Stat, error) {
	b, err := io.ReadAll(r)
	if err != nil {
		return Stat{}, err
	}
	// Comm is not escaped, but no later field can hold a parenthesis.
	open, shut := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 1 || shut < open {
		return Stat{}, fmt.Errorf("%w: stat: no name in parentheses", ErrFormat)
	}
	f := bytes.Fields(b[shut+1:]) // f[0] is field 3 of proc(5)
	if len(f) < 37 || len(f[0]) != 1 {
		return Stat{}, fmt.Errorf("%w: stat: %d fields after the name", ErrFormat, len(f))
	}
	s := Stat{Comm: string(b[open+1 : shut]), State: f[0][0]}
	var errs [6]error
	s.Pid, errs[0] = strconv.Atoi(string(bytes.TrimSpace(b[:open])))
	s.PPid, errs[1] = strconv.Atoi(string(f[4-3]))
	s.Flags, errs[2] = strconv.ParseUint(string(f[9-3]), 10, 64)
	s.StartTime, errs[3] = strconv.ParseUint(string(f[22-3]), 10, 64)
	s.Processor, errs[4] = strconv.Atoi(string(f[39-3]))
	if len(f) > 47-3 {
		s.StartBrk, errs[5] = strconv.ParseUint(string(f[47-3]), 10, 64)
	}
	for _, err := range errs {
		if err != nil {
			return Stat{}, fmt.Errorf("%w: stat: %w", ErrFormat, err)
		}
	}
	return s, nil
}
