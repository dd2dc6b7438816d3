package ptrace

import (
	"bytes"
	"errors"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/testprog"
)

// patient keeps what a tracer panics with.
type patient struct {
	Nop
	mu     sync.Mutex
	values []any
}

func (p *patient) Panicked(v any, _ []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.values = append(p.values, v)
}

func (p *patient) panics() []any {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.values
}

// losing is memory that a tracer shares, of which a part is lost when lose is called: its file gets shorter.
func losing(t *testing.T) (tr *Tracer, p *patient, m *Shared, lose func()) {
	t.Helper()
	tr, p = must2(New()), &patient{}
	tr.SetHandler(p)
	t.Cleanup(tr.Close)
	f := os.NewFile(uintptr(must2(unix.MemfdCreate("gokprobe", unix.MFD_CLOEXEC))), "memfd")
	t.Cleanup(func() { f.Close() })
	const at = arch.Addr(0x10000)
	e := Extent{Data: arch.Range{Start: at, End: at + 4*pageSize}, Code: arch.Range{Start: at + 4*pageSize, End: at + 5*pageSize}}
	must(f.Truncate(int64(e.fileEnd())))
	m = must2(newShared(tr, &memfd{File: f}, e))
	t.Cleanup(m.Unmap)
	for i := range m.Data {
		m.Data[i] = byte(i / pageSize)
	}
	return tr, p, m, func() { must(f.Truncate(2 * pageSize)) }
}

// checkLost: of memory that was lost what could be read still is there, the rest is zero, and nothing of it faults any more.
func checkLost(t *testing.T, m *Shared) {
	t.Helper()
	for page, want := range []byte{0, 1, 0, 0} {
		if got := m.Data[page*pageSize : (page+1)*pageSize]; !bytes.Equal(got, bytes.Repeat([]byte{want}, pageSize)) {
			t.Errorf("page %d begins with % x", page, got[:8])
		}
	}
	m.Data[3*pageSize], m.Code[0] = 1, 1
}

// TestMemoryThatIsLostEndsTheSessionOnly: a reader on any goroutine begins again, and the tracer is told.
func TestMemoryThatIsLostEndsTheSessionOnly(t *testing.T) {
	tr, p, m, lose := losing(t)
	_, bystander, other, _ := losing(t)
	lose()
	tries, last := 0, byte(9)
	Tolerate(func() {
		tries++
		last = m.Data[0]
		last = m.Data[3*pageSize]
	})
	if tries != 2 || last != 0 {
		t.Errorf("read in %d attempts, the value is %d", tries, last)
	}
	checkLost(t, m)
	testprog.Await(t, "a word to the tracer", func() bool { _ = tr.Do(func() {}); return len(p.panics()) > 0 })
	if v := p.panics(); len(v) != 1 || !errors.Is(v[0].(error), ErrShared) {
		t.Errorf("it panics with %v", v)
	}
	if other.lost || other.Data[3*pageSize] != 3 || len(bystander.panics()) > 0 {
		t.Error("another session's memory has gone, too")
	}
	tr.Close()
	m.lost = false // a session that has ended is not told
	if Tolerate(func() { _ = m.Data[0] }); len(p.panics()) != 1 {
		t.Errorf("it panics with %v", p.panics())
	}
}

// TestATracersOwnFaultIsItsPanic: the tracer goes on for as long as its session does.
func TestATracersOwnFaultIsItsPanic(t *testing.T) {
	tr, p, m, lose := losing(t)
	lose()
	must(tr.Do(func() { m.Data[3*pageSize] = 1 }))
	done := false
	must(tr.Do(func() { done = true }))
	if v := p.panics(); !done || len(v) != 1 || !errors.Is(v[0].(error), ErrShared) {
		t.Errorf("it goes on: %v; it panics with %v", done, v)
	}
	checkLost(t, m)
}

// TestAPartThatIsLostInTheMiddleIsAll that is lost.
func TestAPartThatIsLostInTheMiddleIsAll(t *testing.T) {
	tr, p, m, _ := losing(t)
	must(unix.Mprotect(m.Data[pageSize:2*pageSize], unix.PROT_NONE))
	must(tr.Do(func() { m.Data[pageSize] = 1 }))
	if v := p.panics(); len(v) != 1 || !errors.Is(v[0].(error), ErrShared) {
		t.Errorf("it panics with %v", v)
	}
	for page, want := range []byte{0, 0, 2, 3} {
		if got := m.Data[page*pageSize : (page+1)*pageSize]; !bytes.Equal(got, bytes.Repeat([]byte{want}, pageSize)) {
			t.Errorf("page %d begins with % x", page, got[:8])
		}
	}
}

// TestOtherPanicsAreNotTolerated, nor taken for a fault of shared memory.
func TestOtherPanicsAreNotTolerated(t *testing.T) {
	_, _, m, _ := losing(t)
	var nobody *Shared
	for _, f := range []func(){func() { panic("a bug") }, func() { _ = nobody.lost }, func() { _ = m.Data[len(m.Data)+len(tids(t, os.Getpid()))] }} {
		func() {
			defer func() {
				if v := recover(); v == nil || Faulted(v) {
					t.Errorf("it panics with %v", v)
				}
			}()
			Tolerate(f)
		}()
	}
	if m.lost {
		t.Error("the memory is given up")
	}
}

// TestUnmappedMemoryIsNobodys: it can be unmapped again, and its addresses are not known any more.
func TestUnmappedMemoryIsNobodys(t *testing.T) {
	_, _, m, _ := losing(t)
	sharing.Lock()
	known := ownerOfShared(uintptr(arch.Addr(0))) != nil || !sharing.all[m]
	sharing.Unlock()
	if known {
		t.Error("it is not known, or what is not shared is")
	}
	for range 2 {
		m.Unmap()
	}
	sharing.Lock()
	defer sharing.Unlock()
	if m.Data != nil || m.Code != nil || sharing.all[m] {
		t.Error("it is known still")
	}
	(*Shared)(nil).Unmap()
}
