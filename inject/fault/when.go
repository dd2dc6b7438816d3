package fault

import (
	"fmt"
	"strconv"
	"strings"
)

// When is strace's when=first[..last][+[step]]: the calls number First, First+Step,
// and so on up to Last. The first call is number 1. The zero value is all calls.
type When struct {
	First uint64 // 0: all calls
	Last  uint64 // 0: no end
	Step  uint64 // 0: First alone
}

// ParseWhen reads strace's expression: "3" is the third call alone, "3+" the third and all
// later calls, "3+2" every second from the third on, "3..7" the third to the seventh, "3..7+2"
// every second of these. An empty text means all calls.
func ParseWhen(s string) (When, error) {
	if s == "" {
		return When{}, nil
	}
	calls, step, stepped := strings.Cut(s, "+")
	first, last, ranged := strings.Cut(calls, "..")
	w := When{}
	var err error
	if w.First, err = whenNumber(first); err != nil {
		return When{}, whenError(s, err)
	}
	if ranged {
		if w.Last, err = whenNumber(last); err != nil {
			return When{}, whenError(s, err)
		}
	}
	switch {
	case step != "":
		if w.Step, err = whenNumber(step); err != nil {
			return When{}, whenError(s, err)
		}
	case stepped || ranged:
		w.Step = 1
	}
	if err := w.check(); err != nil {
		return When{}, whenError(s, err)
	}
	return w, nil
}

func whenError(s string, err error) error {
	return fmt.Errorf("when %q: %w; it is first[..last][+[step]], such as 3, 3+, 3+2, 3..7 or 3..7+2", s, err)
}

// whenNumber reads a number of calls: decimal digits, not 0.
func whenNumber(s string) (uint64, error) {
	n, err := strconv.ParseUint(s, 10, 63)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q is not a number of calls", s)
	case n == 0:
		return 0, fmt.Errorf("the first call is number 1, there is no 0")
	}
	return n, nil
}

func (w When) check() error {
	switch {
	case w.First == 0 && w != When{}:
		return fmt.Errorf("the first call is number 1, there is no 0")
	case w.Last != 0 && w.Last < w.First:
		return fmt.Errorf("the last call, %d, is before the first, %d", w.Last, w.First)
	}
	return nil
}

// Contains reports whether call number n is one of them. The first call is number 1.
func (w When) Contains(n uint64) bool {
	switch {
	case w.First == 0 || n == w.First:
		return true
	case n < w.First || w.Last != 0 && n > w.Last || w.Step == 0:
		return false
	}
	return (n-w.First)%w.Step == 0
}

// String returns the expression that ParseWhen reads as w.
func (w When) String() string {
	if w.First == 0 {
		return ""
	}
	s := strconv.FormatUint(w.First, 10)
	if w.Last != 0 {
		s += ".." + strconv.FormatUint(w.Last, 10)
	}
	switch {
	case w.Step == 1 && w.Last == 0:
		s += "+"
	case w.Step > 1:
		s += "+" + strconv.FormatUint(w.Step, 10)
	}
	return s
}
