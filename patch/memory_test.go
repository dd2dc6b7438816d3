package patch

import (
	"bytes"
	"errors"
	"math/rand"

	"github.com/gokprobe/gokprobe/arch"
)

var errInjected = errors.New("injected")

// memory is a byte slice at base in which accesses can be made to fail.
type memory struct {
	base arch.Addr
	b    []byte

	access int
	// failAt fails the n-th access from now on (1 is the next), 0 none. A
	// failing write first stores short bytes.
	failAt map[int]bool
	short  int
	// readOnly fails every write.
	readOnly bool
	// foreign runs after the n-th access.
	foreign map[int]func(m *memory)
}

const base arch.Addr = 0x400000

func newMemory(n int) *memory {
	m := &memory{base: base, b: make([]byte, n)}
	rand.New(rand.NewSource(1)).Read(m.b)
	for i := range m.b {
		if m.b[i] == 0xcc {
			m.b[i] = 0x90
		}
	}
	return m
}

func (m *memory) at(at arch.Addr, n int) ([]byte, bool) {
	if at < m.base || at+arch.Addr(n) > m.base+arch.Addr(len(m.b)) {
		return nil, false
	}
	return m.b[at-m.base:][:n], true
}

func (m *memory) tick() (fail bool) {
	m.access++
	return m.failAt[m.access]
}

func (m *memory) after() {
	if f := m.foreign[m.access]; f != nil {
		f(m)
	}
}

func (m *memory) inject(failAt ...int) {
	m.access, m.failAt = 0, map[int]bool{}
	for _, n := range failAt {
		m.failAt[n] = true
	}
}

func (m *memory) ReadMemory(at arch.Addr, p []byte) error {
	defer m.after()
	s, ok := m.at(at, len(p))
	if fail := m.tick(); fail || !ok {
		return &arch.FaultError{Addr: at, Cause: errInjected}
	}
	copy(p, s)
	return nil
}

func (m *memory) WriteMemory(at arch.Addr, p []byte) error {
	defer m.after()
	s, ok := m.at(at, len(p))
	if fail := m.tick(); fail || !ok || m.readOnly {
		copy(s, p[:min(m.short, len(p))])
		return &arch.FaultError{Addr: at, Write: true, Cause: errInjected}
	}
	copy(s, p)
	return nil
}

// fakeJournal remembers records and checks that each is made before its bytes
// are written.
type fakeJournal struct {
	mem     *memory
	records map[int]Entry
	next    int
	late    bool
	fail    error
}

func newFakeJournal(m *memory) *fakeJournal {
	return &fakeJournal{mem: m, records: map[int]Entry{}}
}

func (j *fakeJournal) Record(at arch.Addr, original, replacement []byte) (int, error) {
	if j.fail != nil {
		return 0, j.fail
	}
	if s, ok := j.mem.at(at, len(original)); !ok || !bytes.Equal(s, original) {
		j.late = true
	}
	j.next++
	j.records[j.next] = Entry{at, bytes.Clone(original), bytes.Clone(replacement)}
	return j.next, nil
}

func (j *fakeJournal) Erase(id int) error {
	if _, ok := j.records[id]; !ok {
		return errors.New("no such record")
	}
	delete(j.records, id)
	return nil
}

// entries is what a finder of the journal would restore.
func (j *fakeJournal) entries() []Entry {
	var es []Entry
	for id := j.next; id > 0; id-- {
		if e, ok := j.records[id]; ok {
			es = append(es, e)
		}
	}
	return es
}
