package ptrace

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
)

// Memory that is shared with a target may fail us at any access. Its size is sealed,
// but the kernel may have no memory for a page (vm.overcommit_memory=2, a limit of the
// target's), or the machine may have lost it. The kernel says so by SIGBUS, which ends
// a Go program. So
//
//   - who touches such memory does it on the tracer's goroutine, or in Tolerate: there a fault is a panic;
//   - Faulted, which all who recover from panics ask, tells such a fault from others, and puts private memory in the place of all
//     that the session shares, with what can still be read: nothing that comes after it can fault;
//   - the session ends, as after a bug of ours, and the target is put right by ptrace, which needs none of that memory.

// ErrShared is why a session ends whose memory could not be read or written.
var ErrShared = errors.New("memory that is shared with the process has failed")

// Shared is the tracer's own mapping of an Extent's pages.
type Shared struct {
	Data, Code []byte

	tracer *Tracer
	lost   bool // it is private now
}

// sharing is all mappings of this process that are shared with targets.
var sharing struct {
	sync.Mutex
	all map[*Shared]bool
}

// newShared is a mapping of e's pages.
func newShared(t *Tracer, f *memfd, e Extent) (*Shared, error) {
	n := e.Data.Len()
	size := uintptr(n + e.Code.Len())
	start, err := unix.MmapPtr(int(f.Fd()), int64(e.Offset), nil, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mmap: %w", err)
	}
	own := unsafe.Slice((*byte)(start), size)
	m := &Shared{Data: own[:n], Code: own[n:], tracer: t}
	sharing.Lock()
	defer sharing.Unlock()
	if sharing.all == nil {
		sharing.all = map[*Shared]bool{}
	}
	sharing.all[m] = true
	return m, nil
}

// Unmap ends the tracer's mapping; the target's stays.
func (m *Shared) Unmap() {
	if m == nil || m.Data == nil {
		return
	}
	sharing.Lock()
	delete(sharing.all, m)
	whole := m.Data[:cap(m.Data)]
	m.Data, m.Code = nil, nil
	sharing.Unlock()
	_ = unix.MunmapPtr(unsafe.Pointer(&whole[0]), uintptr(len(whole))) // which may take long, and nobody uses it any more
}

// Tolerate runs f, which reads memory that is shared with targets, and does nothing
// else, on a goroutine that is not a tracer's. If the memory fails, f begins again and
// reads the content that is known, and the session ends.
func Tolerate(f func()) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	for again := true; again; {
		func() {
			defer func() {
				v := recover()
				if again = v != nil && Faulted(v); v != nil && !again {
					panic(v)
				}
			}()
			f()
		}()
	}
}

// Faulted tells whether v, which was recovered, is a fault of memory that is shared with a target. Then none of what that session shares
// can fault any more, and the session ends soon.
func Faulted(v any) bool {
	fault, ok := v.(interface {
		runtime.Error
		Addr() uintptr
	})
	if !ok {
		return false
	}
	sharing.Lock()
	defer sharing.Unlock()
	t := ownerOfShared(fault.Addr())
	if t == nil {
		return false
	}
	for m := range sharing.all {
		if m.tracer == t && !m.lost {
			m.lost = true
			if err := m.replace(); err != nil {
				panic(fmt.Errorf("%w, and can't be replaced: %w", ErrShared, err))
			}
		}
	}
	if !t.Own() {
		t.postUnlessClosed(func() { panic(ErrShared) })
	}
	return true
}

func ownerOfShared(at uintptr) *Tracer {
	for m := range sharing.all {
		if start := uintptr(unsafe.Pointer(&m.Data[0])); at >= start && at < start+uintptr(cap(m.Data)) {
			return m.tracer
		}
	}
	return nil
}

// replace puts private memory in the place of m, at once for all who use it. Nobody reads code.
func (m *Shared) replace() error {
	const chunk = 64 * pageSize
	size := uintptr(cap(m.Data))
	private, err := unix.MmapPtr(-1, 0, nil, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return err
	}
	copied := unsafe.Slice((*byte)(private), size)
	from := arch.Addr(uintptr(unsafe.Pointer(&m.Data[0])))
	for off := 0; off < len(m.Data); off += chunk {
		end := min(off+chunk, len(m.Data))
		if processVM(unix.Getpid(), from+arch.Addr(off), copied[off:end], false) == nil {
			continue
		}
		for p := off; p < end; p += pageSize { // nothing is known of a part that fails
			_ = processVM(unix.Getpid(), from+arch.Addr(p), copied[p:p+pageSize], false)
		}
	}
	_, err = unix.MremapPtr(private, size, unsafe.Pointer(&m.Data[0]), size, unix.MREMAP_MAYMOVE|unix.MREMAP_FIXED)
	return err
}
