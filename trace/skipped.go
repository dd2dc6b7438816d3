package trace

import (
	"errors"
	"fmt"
	"sort"
	"strings"

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
	reasons := make([]string, 0, len(s.reasons))
	for reason := range s.reasons {
		reasons = append(reasons, reason)
	}
	sort.Slice(reasons, func(i, j int) bool {
		if a, b := s.reasons[reasons[i]], s.reasons[reasons[j]]; a != b {
			return a > b
		}
		return reasons[i] < reasons[j]
	})
	for i, reason := range reasons {
		reasons[i] = fmt.Sprintf("%s (%d)", reason, s.reasons[reason])
	}
	return strings.Join(reasons, ", ")
}
