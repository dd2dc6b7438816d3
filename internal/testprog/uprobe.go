package testprog

import (
	"encoding/binary"
	"fmt"
	"math/rand"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/procfs"
)

// Uprobe is one of the kernel's, by perf_event_open(2), as perf and bpftrace make them.
type Uprobe struct{ fd int }

// OpenUprobe puts a uprobe on a place of a file, for one process or, with -1, for all. ret makes it a uretprobe.
func OpenUprobe(pid int, file string, offset uint64, ret bool) (*Uprobe, error) {
	b, err := os.ReadFile("/sys/bus/event_source/devices/uprobe/type")
	if err != nil {
		return nil, err
	}
	kind, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 32)
	if err != nil {
		return nil, err
	}
	name, err := unix.BytePtrFromString(file)
	if err != nil {
		return nil, err
	}
	attr := unix.PerfEventAttr{Type: uint32(kind), Ext1: uint64(uintptr(unsafe.Pointer(name))), Ext2: offset, Sample: 1}
	attr.Size = uint32(unsafe.Sizeof(attr))
	if ret {
		attr.Config = 1
	}
	cpu := -1
	if pid < 0 {
		cpu = 0 // which counts; others have its breakpoint too
	}
	fd, err := unix.PerfEventOpen(&attr, pid, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("a uprobe on %s+%#x: %w", file, offset, err)
	}
	return &Uprobe{fd}, nil
}

// Hits is how often the process's first thread has come there.
func (u *Uprobe) Hits() uint64 {
	var b [8]byte
	_, _ = unix.Read(u.fd, b[:])
	return binary.NativeEndian.Uint64(b[:])
}

// Close takes the uprobe away.
func (u *Uprobe) Close() { unix.Close(u.fd) }

// NeedUprobes skips a test, and says why, where uprobes can't be made.
func NeedUprobes(t testing.TB) {
	t.Helper()
	u, err := OpenUprobe(os.Getpid(), "/proc/self/exe", 0x1000, false)
	if err != nil {
		t.Skipf("kernel uprobes can't be made here, which needs root and perf_event_open: %v", err)
	}
	u.Close()
}

// Place is where a process has mapped a place of a file.
type Place struct {
	File   string
	Offset uint64
}

// PlaceOf tells what process pid has mapped at at.
func PlaceOf(pid int, at arch.Addr) (Place, error) {
	maps, err := procfs.Maps(liveTask(pid))
	if err != nil {
		return Place{}, err
	}
	for _, m := range maps {
		if m.Range.Contains(at) && !m.Anonymous() {
			return Place{m.Path, m.Offset + uint64(at-m.Range.Start)}, nil
		}
	}
	return Place{}, fmt.Errorf("process %d has no file mapped at %s", pid, at)
}

// UprobeStorm is uprobes that come and go.
type UprobeStorm struct {
	stop atomic.Bool
	wait sync.WaitGroup
	came atomic.Uint64
}

// StormOfUprobes has uprobes come and go at random at places of process pid, several at a time, until Stop. What is tried in vain, at instructions
// that the kernel refuses, does not matter. rets makes some uretprobes, which a program must bear that leaves functions in other ways than by returning.
func StormOfUprobes(pid int, seed uint64, places []Place, rets bool) *UprobeStorm {
	s := &UprobeStorm{}
	for w := range 6 {
		r := rand.New(rand.NewSource(int64(seed) + int64(w)<<32))
		s.wait.Go(func() {
			var standing []*Uprobe
			for !s.stop.Load() {
				if n := len(standing); n > 0 && (n == 4 || r.Intn(2) == 0) {
					i := r.Intn(n)
					standing[i].Close()
					standing = append(standing[:i], standing[i+1:]...)
					continue
				}
				p := places[r.Intn(len(places))]
				if u, err := OpenUprobe(pid, p.File, p.Offset, rets && r.Intn(4) == 0); err == nil {
					standing = append(standing, u)
					s.came.Add(1)
				} else if _, gone := procfs.ReadStat(pid, 0); gone != nil {
					break
				}
			}
			for _, u := range standing {
				u.Close()
			}
		})
	}
	return s
}

// Stop ends the storm and tells how many uprobes there have been.
func (s *UprobeStorm) Stop() uint64 {
	s.stop.Store(true)
	s.wait.Wait()
	return s.came.Load()
}
