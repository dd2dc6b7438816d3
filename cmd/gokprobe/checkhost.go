package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/gokprobe/gokprobe/internal/procfs"
)

// checkHost is the check command without -p.
func checkHost(f *facts) error {
	f.tell(true, "Linux %s on %s, %d CPUs (%s)", kernelRelease(), runtime.GOARCH, runtime.NumCPU(), cpuModel())
	own, err := procfs.ReadStatus(os.Getpid(), 0)
	if err != nil {
		return f.verdict(fmt.Errorf("/proc is not readable: %w; mount it", err), "")
	}
	f.tellUser(own)
	f.tellYama(own)
	f.tellOwnSeccomp(own)
	return f.verdict(f.trial(), "attached to a child, probed a function, counted its hit, detached; the child was not disturbed")
}

// capSysPtrace is CAP_SYS_PTRACE of capabilities(7).
const capSysPtrace = 19

func hasPtraceCap(st procfs.Status) bool { return st.CapEff>>capSysPtrace&1 != 0 }

func (f *facts) tellUser(own procfs.Status) {
	uid := own.UIDs[1]
	if hasPtraceCap(own) {
		f.tell(true, "user %d with CAP_SYS_PTRACE: may attach to processes of all users", uid)
		return
	}
	f.tell(true, "user %d without CAP_SYS_PTRACE: may attach to own processes only; for others run gokprobe as root or with --cap-add=SYS_PTRACE", uid)
}

func (f *facts) tellYama(own procfs.Status) {
	scope, present := procfs.YamaScope()
	const file = "/proc/sys/kernel/yama/ptrace_scope"
	switch {
	case !present:
		f.tell(true, "no Yama: it does not restrict ptrace")
	case scope == 0:
		f.tell(true, "Yama's ptrace_scope is 0: it does not restrict ptrace")
	case scope == 1 && hasPtraceCap(own), scope == 2 && hasPtraceCap(own):
		f.tell(true, "Yama's ptrace_scope is %d, which CAP_SYS_PTRACE overrides", scope)
	case scope == 1:
		f.tell(false, "Yama's ptrace_scope is 1: you may trace your own descendants only; use gokprobe run, or root, or set %s to 0", file)
	case scope == 2:
		f.tell(false, "Yama's ptrace_scope is 2: CAP_SYS_PTRACE is needed; use root, or set %s to 0", file)
	default:
		f.tell(false, "Yama's ptrace_scope is %d: nobody may use ptrace until the next boot", scope)
	}
}

func (f *facts) tellOwnSeccomp(own procfs.Status) {
	if own.Seccomp == 0 {
		f.tell(true, "no seccomp filter on gokprobe")
		return
	}
	f.tell(true, "gokprobe runs under a seccomp filter, as in a container; the next lines try what it permits")
}

// tellRegion finds out whether the region, the memory that gokprobe adds, could be mapped
// from a memfd into a probed child. Then gokprobe shares it, and writes without system calls.
func (f *facts) tellRegion(pid int) {
	maps, err := procfs.Maps(pid)
	if err != nil {
		f.tell(false, "the child's mappings can't be read: %v", err)
		return
	}
	for _, m := range maps {
		if strings.HasPrefix(m.Path, regionName) {
			f.tell(true, "memory of a memfd can be mapped into a child")
			return
		}
	}
	f.tell(false, "no memfd can be mapped into a child, so slots are written with one system call each")
}

// firstCode is the address of the first code of a process.
func firstCode(pid int) (int64, error) {
	maps, err := procfs.Maps(pid)
	if err != nil {
		return 0, err
	}
	for _, m := range maps {
		if m.Exec {
			return int64(m.Range.Start), nil
		}
	}
	return 0, errors.New("it maps no code")
}

func kernelRelease() string {
	b, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "(unknown release)"
	}
	return strings.TrimSpace(string(b))
}

func cpuModel() string {
	file, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "unknown model"
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown model"
}
