package ptrace

import (
	"errors"
	"runtime"
	"testing"
)

// TestWhoDoesNotAnswerIsNotAskedAgain, until it has answered; and of an address space there are only so many that are waited for.
func TestWhoDoesNotAnswerIsNotAskedAgain(t *testing.T) {
	atOnce := make(chan struct{})
	close(atOnce)
	never := func() error { t.Error("it was asked again"); return nil }
	answer := make(chan struct{})
	const id = -1 // no process's
	for i := range uint64(mostSilent) {
		w := waitFor{id, source{inode: i}}
		if err := patiently(w, atOnce, func() error { <-answer; return nil }); !errors.Is(err, ErrNoAnswer) {
			t.Fatalf("source %d: %v", i, err)
		}
		if err := patiently(w, nil, never); !errors.Is(err, ErrNoAnswer) {
			t.Errorf("source %d again: %v", i, err)
		}
	}
	if err := patiently(waitFor{id, source{inode: mostSilent}}, nil, never); !errors.Is(err, ErrNoAnswer) {
		t.Errorf("one more source: %v", err)
	}
	if err := patiently(waitFor{id - 1, source{}}, nil, func() error { return nil }); err != nil {
		t.Errorf("another address space: %v", err)
	}
	close(answer)
	for i := range uint64(mostSilent) {
		w := waitFor{id, source{inode: i}}
		for w.refused() {
			runtime.Gosched()
		}
		if err := patiently(w, nil, func() error { return nil }); err != nil {
			t.Errorf("source %d, which has answered: %v", i, err)
		}
	}
}
