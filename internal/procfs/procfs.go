// Package procfs parses the files of /proc that describe a process and its
// threads. Each kind of file has a Parse function over a reader, which is pure,
// and a function that opens the live file.
//
// Every file is a snapshot: the process may have changed before the caller looks
// at the answer. A process or thread that is not there gives an error for which
// Gone is true. All functions are safe for concurrent use.
//
// Source: proc(5); fs/proc/{array,base,task_mmu}.c.
package procfs

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrFormat is a /proc file that is not written as proc(5) says.
var ErrFormat = errors.New("unexpected format")

// Gone reports whether err says that the process or thread does not exist, or
// ceased to exist while its file was read.
func Gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH)
}

// path names a file of process pid, or of its thread tid unless tid is 0.
func path(pid, tid int, name string) string {
	if tid == 0 {
		return "/proc/" + strconv.Itoa(pid) + "/" + name
	}
	return "/proc/" + strconv.Itoa(pid) + "/task/" + strconv.Itoa(tid) + "/" + name
}

func open(pid int, name string) (*os.File, error) { return Open(path(pid, 0, name), os.O_RDONLY) }

// Open opens a regular file of /proc, with flag as for os.OpenFile, which makes five system calls more to find out whether such
// a file can be waited for. Errors are an *os.PathError.
func Open(name string, flag int) (*os.File, error) {
	f, err := openRaw(name, flag)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(f), name), nil
}

// rawFile is the descriptor of a file that is read at once and closed: an os.File of it would be made, asked for its flags, and watched for its end, which
// takes as long as all the reading does.
type rawFile int

func openRaw(name string, flag int) (rawFile, error) {
	for {
		fd, err := unix.Open(name, flag|unix.O_CLOEXEC, 0)
		switch {
		case err == nil:
			return rawFile(fd), nil
		case !errors.Is(err, unix.EINTR):
			return -1, &os.PathError{Op: "open", Path: name, Err: err}
		}
	}
}

// Read implements io.Reader. Its errors name no file.
func (f rawFile) Read(p []byte) (int, error) {
	for len(p) > 0 {
		n, err := unix.Read(int(f), p)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		}
		return n, nil
	}
	return 0, nil
}

func (f rawFile) close() { _ = unix.Close(int(f)) }

// buffers are for files that are short as a rule.
var buffers = sync.Pool{New: func() any { return new([usualSize]byte) }}

const usualSize = 8 << 10

// brief hands parse the whole content of a live file, if it is shorter than usualSize. It is not parse's to keep. Else short is false, and nothing was parsed.
func brief[T any](file string, parse func([]byte) (T, error)) (v T, short bool, err error) {
	f, err := openRaw(file, os.O_RDONLY)
	if err != nil {
		return v, true, err
	}
	defer f.close()
	b := buffers.Get().(*[usualSize]byte)
	defer buffers.Put(b)
	n, err := io.ReadFull(f, b[:])
	if err == nil {
		return v, false, nil
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		v, err = parse(b[:n])
	}
	if err != nil {
		return v, true, fmt.Errorf("%s: %w", file, err)
	}
	return v, true, nil
}

// mostOfFile is how much is read of a file, in bytes: the longest are lists of children, of whom there may be four million.
const mostOfFile = 64 << 20

// readers are used again: of a process with thousands of threads, as many files are read, and none of what is parsed refers to a reader.
var readers = sync.Pool{New: func() any { return bufio.NewReader(nil) }}

// load hands a live file to parse.
func load[T any](file string, parse func(io.Reader) (T, error)) (T, error) {
	var zero T
	f, err := openRaw(file, os.O_RDONLY)
	if err != nil {
		return zero, err
	}
	defer f.close()
	in := readers.Get().(*bufio.Reader)
	in.Reset(io.LimitReader(f, mostOfFile))
	defer func() { in.Reset(nil); readers.Put(in) }()
	v, err := parse(in)
	if err != nil {
		return zero, fmt.Errorf("%s: %w", file, err)
	}
	return v, nil
}

// Tasks lists the thread ids of process pid in the kernel's order, the leader
// first while it exists. Threads that start meanwhile may be missing.
func Tasks(pid int) ([]int, error) {
	d, err := os.Open(path(pid, 0, "task"))
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	tids := make([]int, 0, len(names))
	for _, n := range names {
		if tid, err := strconv.Atoi(n); err == nil {
			tids = append(tids, tid)
		}
	}
	return tids, nil
}

// ErrMany says that there are more processes than were asked for.
var ErrMany = errors.New("more processes than asked for")

// Processes lists the processes that can be seen, of which there are to be no more than most. One that starts or ends meanwhile may be missing; no other is, for the kernel goes by their numbers.
func Processes(most int) ([]int, error) {
	d, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	var pids []int
	for {
		names, err := d.Readdirnames(256)
		for _, n := range names {
			if pid, err := strconv.Atoi(n); err == nil {
				pids = append(pids, pid)
			}
		}
		switch {
		case len(pids) > most:
			return nil, ErrMany
		case errors.Is(err, io.EOF):
			return pids, nil
		case err != nil:
			return nil, err
		}
	}
}

// UserTasks is Tasks without the threads that the kernel has made for itself: see Stat.Worker.
func UserTasks(pid int) ([]int, error) {
	tids, err := Tasks(pid)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(tids, func(tid int) bool {
		st, err := ReadStat(pid, tid)
		return err == nil && st.Worker()
	}), nil
}

// Living is the thread by whose files the memory, mappings and program of process pid are read: its leader, or another one if that has ended
// before it, whose own show nothing any more. It is pid if no thread lives, or nobody can tell.
func Living(pid int) int {
	lives := func(tid int) bool {
		st, err := ReadStat(pid, tid)
		return err == nil && st.State != 'Z' && st.State != 'X' && !st.Worker()
	}
	if lives(pid) {
		return pid
	}
	tids, _ := Tasks(pid)
	if i := slices.IndexFunc(tids, lives); i >= 0 {
		return tids[i]
	}
	return pid
}

// Children lists the processes that thread tid of pid has forked and not yet
// reaped. A tid of 0 stands for the leader. The kernel must be built with
// CONFIG_PROC_CHILDREN, else the error says that the file is not there.
func Children(pid, tid int) ([]int, error) {
	if tid == 0 {
		tid = pid
	}
	return load(path(pid, tid, "children"), parseInts)
}

func parseInts(r io.Reader) ([]int, error) {
	b, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	var ints []int
	for f := range strings.FieldsSeq(string(b)) {
		n, err := strconv.Atoi(f)
		if err != nil {
			return nil, fmt.Errorf("%w: not a number: %q", ErrFormat, f)
		}
		ints = append(ints, n)
	}
	return ints, nil
}

// Comm is the name of thread tid of pid, at most 15 bytes for a user thread; any
// byte but NUL may occur. A tid of 0 stands for the leader.
func Comm(pid, tid int) (string, error) {
	name, _, err := brief(path(pid, tid, "comm"), func(b []byte) (string, error) { return string(bytes.TrimSuffix(b, []byte("\n"))), nil })
	return name, err
}

// mostArguments is how much is read of a command line, in bytes. A process may have any of its memory taken for that (prctl(2), PR_SET_MM).
const mostArguments = 256 << 10

// Cmdline is the beginning of the argument vector of process pid as its memory holds it now, up to 256 KiB. It
// is empty for a kernel thread and for a zombie.
func Cmdline(pid int) ([]string, error) {
	split := func(b []byte) ([]string, error) {
		if len(b) == 0 {
			return nil, nil
		}
		return strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00"), nil
	}
	args, short, err := brief(path(pid, 0, "cmdline"), split)
	if short {
		return args, err
	}
	return load(path(pid, 0, "cmdline"), func(r io.Reader) ([]string, error) {
		b, err := io.ReadAll(io.LimitReader(r, mostArguments))
		if err != nil {
			return nil, err
		}
		return split(b)
	})
}

// Exe is the path of the executable of process pid, as its mount namespace names
// it; " (deleted)" is cut off. To open the file itself, even when it was deleted
// or lies in another mount namespace, open /proc/PID/exe. A kernel thread has
// none, which looks like a process that is gone.
func Exe(pid int) (string, error) {
	s, err := os.Readlink(path(pid, 0, "exe"))
	return strings.TrimSuffix(s, deletedMark), err
}

// Auxv is the auxiliary vector that the kernel gave to process pid at exec, by
// AT_ type (getauxval(3), <elf.h>). The process must be a 64-bit one.
func Auxv(pid int) (map[uint64]uint64, error) {
	return load(path(pid, 0, "auxv"), ParseAuxv)
}

// ParseAuxv reads an auxiliary vector of 64-bit words in the host's byte order,
// up to AT_NULL.
func ParseAuxv(r io.Reader) (map[uint64]uint64, error) {
	v := make(map[uint64]uint64)
	var pair [16]byte
	for {
		if _, err := io.ReadFull(r, pair[:]); err == io.EOF {
			return v, nil
		} else if err != nil {
			return nil, fmt.Errorf("auxiliary vector: %w", err)
		}
		typ := binary.NativeEndian.Uint64(pair[:8])
		if typ == 0 { // AT_NULL
			return v, nil
		}
		v[typ] = binary.NativeEndian.Uint64(pair[8:])
	}
}

// MountOf is the ID of the mount that a descriptor of this process leads to, by its fdinfo: the file system is not asked.
func MountOf(fd int) (id int, err error) {
	id, short, err := brief("/proc/self/fdinfo/"+strconv.Itoa(fd), func(b []byte) (int, error) {
		for line := range bytes.Lines(b) {
			if id, ok := bytes.CutPrefix(line, []byte("mnt_id:")); ok {
				return strconv.Atoi(string(bytes.TrimSpace(id)))
			}
		}
		return 0, errors.New("the kernel does not tell a descriptor's mount")
	})
	if !short {
		err = fmt.Errorf("%w: fdinfo of a descriptor is very long", ErrFormat)
	}
	return id, err
}

// MinMapAddr is below what a process may map (vm.mmap_min_addr).
func MinMapAddr() (uint64, error) {
	low, _, err := brief("/proc/sys/vm/mmap_min_addr", func(b []byte) (uint64, error) { return strconv.ParseUint(string(bytes.TrimSpace(b)), 10, 64) })
	return low, err
}

// YamaScope is the Yama security module's ptrace_scope: 0 classic, 1 descendants
// only, 2 CAP_SYS_PTRACE only, 3 nobody (Documentation/admin-guide/LSM/Yama.rst).
// present is false on a kernel without Yama.
func YamaScope() (scope int, present bool) {
	b, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope")
	return parseScope(b, err)
}

func parseScope(b []byte, err error) (scope int, present bool) {
	if err != nil {
		return 0, false
	}
	scope, err = strconv.Atoi(string(bytes.TrimSpace(b)))
	return scope, err == nil
}
