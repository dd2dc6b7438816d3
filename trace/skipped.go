package trace

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/symbols"
)

// Skipped counts optional places that are not probed, by why. The zero value is empty and ready to use.
type Skipped struct{ reasons map[string]int }

// Add counts one place that was refused with err.
func (s *Skipped) Add(err error) {
	if s.reasons == nil {
		s.reasons = map[string]int{}
	}
	s.reasons[skipReason(err)]++
}

// AddAll adds what others have skipped.
func (s *Skipped) AddAll(o Skipped) {
	for reason, n := range o.reasons {
		if s.reasons == nil {
			s.reasons = map[string]int{}
		}
		s.reasons[reason] += n
	}
}

// skips is Skipped that grows while others look at it.
type skips struct {
	mu  sync.Mutex
	all Skipped
}

func (s *skips) add(o Skipped) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all.AddAll(o)
}

func (s *skips) copied() (out Skipped) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out.AddAll(s.all)
	return out
}

// Len is how many places were skipped.
func (s *Skipped) Len() int {
	n := 0
	for _, k := range s.reasons {
		n += k
	}
	return n
}

// refusals are the errors with which one place is refused, while others may be probed.
var refusals = []error{
	kprobes.ErrNotExecutable, kprobes.ErrBlacklisted, kprobes.ErrNotBoundary, kprobes.ErrUndecodable, kprobes.ErrData, kprobes.ErrRestartable,
	kprobes.ErrNotEntry, kprobes.ErrException, kprobes.ErrUnsupported, kprobes.ErrShadowStack, symbols.ErrIFuncUnbound,
}

// Skippable tells the refusal of one place from a failure of everything.
func Skippable(err error) bool { return match(err, refusals) != nil }

// causes are more specific than refusals.
var causes = []error{arch.ErrOperandSize, arch.ErrTruncated, arch.ErrUndecodable, arch.ErrBreakpoint, arch.ErrEnclave, arch.ErrReach}

// skipReason is the most specific sentinel's text: reasons are counted, so they must not hold addresses.
func skipReason(err error) string {
	if e := match(err, causes); e != nil {
		return e.Error()
	}
	if e := match(err, refusals); e != nil {
		return e.Error()
	}
	return err.Error()
}

func match(err error, sentinels []error) error {
	for _, e := range sentinels {
		if errors.Is(err, e) {
			return e
		}
	}
	return nil
}

// String lists the reasons with their numbers, the most frequent first.
func (s *Skipped) String() string {
	var told []string
	for reason, n := range s.All() {
		told = append(told, fmt.Sprintf("%s (%d)", reason, n))
	}
	return strings.Join(told, ", ")
}

// All yields the reasons with their numbers, the most frequent first.
func (s *Skipped) All() iter.Seq2[string, int] {
	reasons := slices.SortedFunc(maps.Keys(s.reasons), func(a, b string) int {
		return cmp.Or(cmp.Compare(s.reasons[b], s.reasons[a]), cmp.Compare(a, b))
	})
	return func(yield func(string, int) bool) {
		for _, reason := range reasons {
			if !yield(reason, s.reasons[reason]) {
				return
			}
		}
	}
}
