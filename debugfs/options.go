package debugfs

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/gokprobe/gokprobe/internal/escape"
)

// stacktraceOption is options/stacktrace: whether each entry of the trace is followed by its stack.
func (t *Tree) stacktraceOption() *node {
	return &node{
		mode: modeWrite,
		read: func() ([]byte, error) { return digit(t.stacks.Load()), nil },
		write: func(p []byte) error {
			v, err := number(p)
			if err != nil || v > 1 {
				return fmt.Errorf("%w: 0 or 1 is wanted", syscall.EINVAL)
			}
			t.mu.Lock()
			defer t.mu.Unlock()
			t.stacks.Store(v == 1)
			var errs []error
			for _, ev := range t.events {
				errs = append(errs, ev.heedStacks())
			}
			return errors.Join(errs...)
		},
	}
}

// functionNames is available_filter_functions: all functions by their names, those of libraries with the library's.
func (t *Tree) functionNames() string {
	var b strings.Builder
	for _, s := range t.session.Symbols().Symbols("") {
		if s.Func {
			b.WriteString(escape.Line(s.Name+inModule(s.Module)) + "\n")
		}
	}
	return b.String()
}
