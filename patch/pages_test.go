package patch

import (
	"errors"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
)

// paged is memory of two pages, of which the reads are counted.
type paged struct {
	b     [2 * pageSize]byte
	reads int
}

func (p *paged) ReadMemory(at arch.Addr, b []byte) error {
	if p.reads++; at < pageSize || int(at)-pageSize+len(b) > len(p.b) {
		return errors.New("not mapped")
	}
	copy(b, p.b[at-pageSize:])
	return nil
}

func (p *paged) WriteMemory(at arch.Addr, b []byte) error {
	copy(p.b[at-pageSize:], b)
	return nil
}

func TestPagesAreReadOnce(t *testing.T) {
	mem := &paged{}
	for i := range mem.b {
		mem.b[i] = byte(i)
	}
	pages, end := NewPages(mem), arch.Addr(2*pageSize)
	for range 3 {
		if !pages.Holds(end-2, []byte{254, 255, 0, 1}) || pages.Holds(end-2, []byte{254, 255, 0, 2}) {
			t.Error("across two pages it is not what is there")
		}
		if pages.Holds(3*pageSize-1, []byte{255, 0}) || pages.Holds(pageSize-1, []byte{0}) {
			t.Error("what can't be read is told")
		}
	}
	if mem.reads != 4 { // two pages, and two that are not there
		t.Errorf("%d reads", mem.reads)
	}
	_ = mem.WriteMemory(end-1, []byte{7, 7})
	if pages.Forget(end-1, 2); !pages.Holds(end-1, []byte{7, 7}) || mem.reads != 6 {
		t.Errorf("%d reads, or a page that was forgotten is known", mem.reads)
	}
}
