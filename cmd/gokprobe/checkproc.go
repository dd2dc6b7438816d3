package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/gokprobe/gokprobe/internal/escape"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/symbols"
)

// checkProcess is the check command with -p. If really is set it attaches and detaches too.
func checkProcess(f *facts, of target, really bool) error {
	pid := of.pid
	st, err := procfs.ReadStatus(pid, 0)
	if err != nil {
		return f.verdict(attachCause(pid), "")
	}
	f.tell(true, "process %d is %s of user %d with %s", st.Tgid, st.Name, st.UIDs[0], escape.Count(st.Threads, "thread"))
	if err := refusal(pid); err != nil {
		return f.verdict(err, "")
	}
	live := procfs.Living(pid)
	if own, err := procfs.ReadStatus(pid, live); err == nil {
		st = own
	}
	f.tellNamespaces(live)
	f.tellProtections(st)
	f.tellProgram(live)
	if err := of.still(); err != nil { // another process may have got the number meanwhile
		return f.verdict(err, "")
	}
	if !really {
		return f.verdict(nil, "attach is permitted; -attach tries it")
	}
	return f.verdict(attachCause(pid), "attached and detached")
}

// refusal returns the error with which attach would refuse the process, or nil. It does
// not stop the process, unless it must attach to have the reason in a sentence.
func refusal(pid int) error {
	if st, err := procfs.ReadStatus(pid, 0); err == nil && st.TracerPid != 0 {
		return attachCause(pid)
	}
	return notLooked(pid)
}

// notLooked returns why nobody can look into a process, whoever traces it, or nil.
func notLooked(pid int) error {
	st, err := procfs.ReadStatus(pid, 0)
	if err != nil || st.KernelThread || st.State == 'Z' || isForeign(pid) {
		return attachCause(pid)
	}
	return unreadable(pid)
}

// unreadable returns why the memory of a process can't be read, or nil. To open it takes
// the same permission as ptrace, Yama's included (PTRACE_MODE_ATTACH, proc_mem_open in
// fs/proc/base.c). So it tells without a stop whether attaching is permitted.
func unreadable(pid int) error {
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err == nil {
		return mem.Close()
	}
	if cause := attachCause(pid); cause != nil {
		return cause
	}
	return fmt.Errorf("cannot read the memory of process %d: %w", pid, fileError(err))
}

// attachCause attaches and detaches at once, and returns the error of that: Attach knows how
// to say why it is refused.
func attachCause(pid int) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	s, err := kprobes.Attach(ctx, pid, kprobes.Options{Log: func(string) {}})
	if err != nil {
		return err
	}
	return s.Close()
}

// isForeign reports whether a process runs an executable for another processor.
func isForeign(pid int) bool {
	_, err := symbols.ExecutableFacts(procfs.Living(pid))
	return errors.Is(err, symbols.ErrNotELF)
}

func (f *facts) tellNamespaces(pid int) {
	var other []string
	for _, ns := range []string{"user", "pid", "mnt"} {
		ours, err := os.Readlink("/proc/self/ns/" + ns)
		theirs, err2 := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, ns))
		if err == nil && err2 == nil && ours != theirs {
			other = append(other, ns)
		}
	}
	if len(other) == 0 {
		f.tell(true, "in the same user, pid and mount namespaces")
		return
	}
	f.tell(true, "in another namespace: %s (its files are read below /proc/%d/root)", strings.Join(other, ", "), pid)
}

func (f *facts) tellProtections(st procfs.Status) {
	switch st.Seccomp {
	case 0:
		f.tell(true, "no seccomp filter")
	default:
		f.tell(true, "under a seccomp filter (mode %d): it is suspended while memory is mapped, or if that is forbidden, slots go into padding of the code; "+
			"it sees no call but the target's own, unless gokprobe is killed (SECURITY.md)", st.Seccomp)
	}
	if st.ShadowStack {
		f.tell(false, "it uses a shadow stack: calls and returns that need emulation can't be probed")
		return
	}
	f.tell(true, "no shadow stack")
}

// tellProgram describes the executable file.
func (f *facts) tellProgram(pid int) {
	exe, err := symbols.ExecutableFacts(pid)
	if err != nil {
		f.tell(false, "its executable can't be read (%v): only addresses can be probed", fileError(err))
		return
	}
	f.tell(true, "its executable is %s", kindOfProgram(exe))
	switch {
	case exe.Symbols:
		f.tell(true, "it has a symbol table")
	case exe.GoFunctions:
		f.tell(true, "its symbol table was stripped, but Go's function table names its functions")
	default:
		f.tell(false, "its symbol table was stripped: exported functions and addresses can be probed; a debug package helps")
	}
	if exe.DebugInfo {
		f.tell(true, "it has debug information for -args and file:line")
		return
	}
	f.tell(false, "it has no debug information of its own; -args and file:line need it (build with -g, or install a debug package)")
}

func kindOfProgram(exe symbols.FileFacts) string {
	words := []string{"a native program"}
	if exe.Go {
		words = []string{"a Go program"}
	}
	if exe.PositionIndependent {
		words = append(words, "position-independent")
	}
	if exe.Static {
		return strings.Join(append(words, "static"), ", ")
	}
	return strings.Join(append(words, "dynamically linked"), ", ")
}
