package symbols

import (
	"testing"

	"github.com/gokprobe/gokprobe/arch"
)

// addresses is memory in which each word is its own address, and counts the reads.
type addresses struct{ reads int }

func (a *addresses) ReadMemory(at arch.Addr, p []byte) error {
	a.reads++
	for i := range p {
		word := (at + arch.Addr(i)) &^ 7
		p[i] = byte(word >> (8 * ((at + arch.Addr(i)) & 7)))
	}
	return nil
}

func (a *addresses) WriteMemory(at arch.Addr, _ []byte) error {
	return &arch.FaultError{Addr: at, Write: true}
}

// TestWordsThatAFileSpreadsOverMemoryAreNotAllKept: words that lie together are read at once, and of a million pages only some are kept.
func TestWordsThatAFileSpreadsOverMemoryAreNotAllKept(t *testing.T) {
	mem := &addresses{}
	words := pages{t: &Table{mem: mem}}
	check := func(at arch.Addr) {
		t.Helper()
		if got, ok := words.word(at); !ok || got != uint64(at) {
			t.Fatalf("the word at %s is %#x, %v", at, got, ok)
		}
	}
	for at := arch.Addr(pageSize); at < 2*pageSize; at += 8 {
		check(at)
	}
	if mem.reads != 1 {
		t.Errorf("the words of a page took %d reads", mem.reads)
	}
	for n := range arch.Addr(5 * mostPages) {
		check(n*pageSize + 16)
		if len(words.read) > mostPages {
			t.Fatalf("%d pages are kept", len(words.read))
		}
	}
}
