package debugfs

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gokprobe/gokprobe/inject/fault"
)

// failAttributes are files of fail_function: the kernel's, and those that are new here.
var failAttributes = []string{
	"probability", "interval", "times", "space", "verbose", "verbose_ratelimit_interval_ms", "verbose_ratelimit_burst", "task-filter",
	"stacktrace-depth", "require-start", "require-end", "reject-start", "reject-end",
	"when", "rate", "for", "per-thread", "seed",
}

// attribute is the file of an attribute. It shows the rest of times and space.
func (ff *failFunction) attribute(name string) *node {
	return &node{
		mode: modeAttr,
		read: func() (text []byte, err error) {
			ff.decider.Do(func(d *fault.Decider) {
				if name == "space" {
					text = fmt.Appendf(nil, "%d\n", d.Space(ff.tree.session.PID()))
				} else {
					text = []byte(d.Attr().Get(name) + "\n")
				}
			})
			return text, nil
		},
		write: func(p []byte) error {
			ff.tree.mu.Lock()
			defer ff.tree.mu.Unlock()
			var err error
			ff.decider.Do(func(d *fault.Decider) { err = setAttribute(d, name, strings.TrimSpace(string(p))) })
			if err != nil {
				return fmt.Errorf("%w: %w", syscall.EINVAL, err)
			}
			return ff.apply()
		},
	}
}

func setAttribute(d *fault.Decider, name, value string) error {
	a := d.Attr()
	if err := a.Set(name, value); err != nil {
		return err
	}
	if err := d.Update(a); err != nil {
		return err
	}
	switch name {
	case "space":
		d.SetSpace(a.Space) // also if it is the same again
	case "for":
		d.Start(time.Now())
	}
	return nil
}

// retvalFile is what the function returns. It ends with the function's injection, also where it is open.
func (p *failPoint) retvalFile() *node {
	stale := func() error {
		for _, q := range p.ff.points {
			if q == p {
				return nil
			}
		}
		return fmt.Errorf("%w: %s is not injected any more", syscall.ENOENT, p.name)
	}
	return &node{
		mode: modeAttr,
		read: func() ([]byte, error) {
			p.ff.tree.mu.Lock()
			defer p.ff.tree.mu.Unlock()
			return fmt.Appendf(nil, "%x\n", p.retval.Load()), stale()
		},
		write: func(text []byte) error {
			v, err := word(strings.TrimSpace(string(text)))
			p.ff.tree.mu.Lock()
			defer p.ff.tree.mu.Unlock()
			switch gone := stale(); {
			case gone != nil:
				return gone
			case err != nil:
				return err
			case !p.kind.allows(v):
				return fmt.Errorf("%w: %s returns %s: %s", syscall.EINVAL, p.name, p.kind, p.kind.values())
			}
			p.retval.Store(v)
			return nil
		},
	}
}

// word reads a number as the kernel does with base 0, or a negative one, which the kernel has to be given in hex.
func word(s string) (uint64, error) {
	if v, err := strconv.ParseInt(s, 0, 64); err == nil && v < 0 {
		return uint64(v), nil
	}
	v, err := strconv.ParseUint(strings.TrimPrefix(s, "+"), 0, 64)
	if err != nil || strings.Contains(s, "_") {
		return 0, fmt.Errorf("%w: a number is wanted", syscall.EINVAL)
	}
	return v, nil
}
