package inject

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
)

// fakeMemory is the memory of a target that Alloc has given out. exec replaces it by that of another executable.
type fakeMemory struct {
	bytes  map[arch.Addr]byte
	next   arch.Addr
	allocs int
	refuse error
}

func newFakeMemory() *fakeMemory { return &fakeMemory{bytes: map[arch.Addr]byte{}, next: 0x10000} }

func (m *fakeMemory) Alloc(size uint64) (arch.Addr, error) {
	if m.refuse != nil {
		return 0, m.refuse
	}
	m.allocs++
	at := m.next
	for i := range arch.Addr(size) {
		m.bytes[at+i] = 0
	}
	m.next += arch.Addr(size) + 4096
	return at, nil
}

func (m *fakeMemory) ReadMemory(at arch.Addr, p []byte) error {
	for i := range p {
		b, ok := m.bytes[at+arch.Addr(i)]
		if !ok {
			return &arch.FaultError{Addr: at}
		}
		p[i] = b
	}
	return nil
}

func (m *fakeMemory) WriteMemory(at arch.Addr, p []byte) error {
	for i, b := range p {
		if _, ok := m.bytes[at+arch.Addr(i)]; !ok {
			return &arch.FaultError{Addr: at, Write: true}
		}
		m.bytes[at+arch.Addr(i)] = b
	}
	return nil
}

func put(t *testing.T, k *keeper, m *fakeMemory, b string) arch.Addr {
	t.Helper()
	at, err := k.put(m, []byte(b))
	if err != nil || at%8 != 0 || !holds(m, at, []byte(b)) {
		t.Fatalf("%q is at %v, %v", b, at, err)
	}
	return at
}

func TestEqualBytesAreKeptOnceAndOthersApart(t *testing.T) {
	m, k := newFakeMemory(), &keeper{}
	at := map[string]arch.Addr{}
	for i := range 3000 {
		b := fmt.Sprintf("%*d", i%100, i%1000)
		if before, ok := at[b]; ok && put(t, k, m, b) != before {
			t.Fatalf("%q has moved", b)
		}
		at[b] = put(t, k, m, b)
	}
	for b, a := range at { // nobody has overwritten anybody
		if !holds(m, a, []byte(b)) {
			t.Errorf("%q at %v is overwritten", b, a)
		}
	}
	if put(t, k, m, "") == put(t, k, m, "x") {
		t.Error("nothing lies where something does")
	}
}

func TestWhatTheProgramHasChangedIsKeptAnew(t *testing.T) {
	m, k := newFakeMemory(), &keeper{}
	at := put(t, k, m, "12345678")
	m.bytes[at+3] = 'x'
	if again := put(t, k, m, "12345678"); again == at {
		t.Error("the changed bytes are given again, or put back")
	}
	if m.bytes[at+3] != 'x' {
		t.Error("what the program wrote is overwritten")
	}
}

// Another executable runs: even if its memory is at the same addresses, nothing is written to it.
func TestNothingIsWrittenToAnotherProgramsMemory(t *testing.T) {
	m, k := newFakeMemory(), &keeper{}
	put(t, k, m, "old")
	for at := range m.bytes {
		m.bytes[at] = 0
	}
	before := fmt.Sprint(m.bytes)
	put(t, k, m, "old")
	for at := range m.bytes {
		if at >= m.next-keptChunk-4096 {
			delete(m.bytes, at)
		}
	}
	if fmt.Sprint(m.bytes) != before || m.allocs != 2 {
		t.Errorf("the other program's memory has changed, or nothing new was allocated (%d)", m.allocs)
	}
	m.bytes = map[arch.Addr]byte{}
	put(t, k, m, "new")
	if m.allocs != 3 {
		t.Error("memory that is gone is used")
	}
}

func TestThereIsALimitToWhatIsKept(t *testing.T) {
	m, k := newFakeMemory(), &keeper{}
	var err error
	n := 0
	for ; err == nil; n++ {
		_, err = k.put(m, bytes.Repeat([]byte{byte(n), byte(n >> 8)}, 2000))
	}
	if !errors.Is(err, errKeptFull) || n*4000 < keptMost*9/10 || k.size > keptMost {
		t.Errorf("%d times 4000 bytes, %d bytes, %v", n, k.size, err)
	}
	if _, err := k.put(m, bytes.Repeat([]byte{0, 0}, 2000)); err != nil {
		t.Errorf("what is there already: %v", err)
	}
	if head, err := (&making{keeper: k, memory: m}).text(string(make([]byte, 5000))); err != nil || !bytes.Equal(head, make([]byte, 16)) {
		t.Errorf("text for which there is no room is % x, %v", head, err)
	}
	k = &keeper{}
	m.refuse = errors.New("no memory")
	if _, err := k.put(m, []byte("x")); !errors.Is(err, m.refuse) {
		t.Error(err)
	}
}
