package debugfs

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"syscall"
)

// list is kprobes/list.
func (t *Tree) list() string {
	var b strings.Builder
	for _, l := range t.session.Probes() {
		b.WriteString(l.String() + "\n")
	}
	return b.String()
}

// blacklist is kprobes/blacklist.
func (t *Tree) blacklist() string {
	var b strings.Builder
	for _, e := range t.session.BlacklistEntries() {
		b.WriteString(e.String() + "\n")
	}
	return b.String()
}

// enabledFile is kprobes/enabled.
func (t *Tree) enabledFile() *node {
	return &node{
		mode: 0o600,
		read: func() ([]byte, error) { return digit(!t.session.Disarmed()), nil },
		write: func(p []byte) error {
			on, err := kernelBool(p)
			switch {
			case err != nil:
				return err
			case on:
				return t.session.ArmAll()
			}
			return t.session.DisarmAll()
		},
	}
}

// optimizationFile is the sysctl debug.kprobes-optimization.
func (t *Tree) optimizationFile() *node {
	return &node{
		mode: 0o644,
		read: func() ([]byte, error) { return digit(t.session.Optimization()), nil },
		write: func(p []byte) error {
			v, err := number(p)
			if err != nil || v > 1 {
				return fmt.Errorf("%w: 0 or 1 is wanted", syscall.EINVAL)
			}
			return t.session.SetOptimization(v == 1)
		},
	}
}

func digit(on bool) []byte {
	if on {
		return []byte("1\n")
	}
	return []byte("0\n")
}

// kernelBool reads a boolean as the kernel does (lib/kstrtox.c, kstrtobool): by its first letter,
// or two.
func kernelBool(p []byte) (bool, error) {
	s := strings.ToLower(string(p[:min(len(p), 2)]))
	switch {
	case s == "on", strings.HasPrefix(s, "y"), strings.HasPrefix(s, "t"), strings.HasPrefix(s, "1"):
		return true, nil
	case s == "of", strings.HasPrefix(s, "n"), strings.HasPrefix(s, "f"), strings.HasPrefix(s, "0"):
		return false, nil
	}
	return false, fmt.Errorf("%w: 0 or 1 is wanted", syscall.EINVAL)
}

// number reads a decimal number as the kernel does (kstrtoul): with a newline behind it or not.
func number(p []byte) (uint64, error) {
	v, err := strconv.ParseUint(strings.TrimPrefix(strings.TrimSuffix(string(p), "\n"), "+"), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: a number is wanted", syscall.EINVAL)
	}
	return v, nil
}

// choice is a file that shows its only possible value.
func choice(text, only string) *node {
	return &node{
		mode: modeWrite,
		read: func() ([]byte, error) { return []byte(text + "\n"), nil },
		write: func(p []byte) error {
			if s := strings.TrimSpace(string(p)); s != only {
				return fmt.Errorf("%w: there is only %s", syscall.EINVAL, only)
			}
			return nil
		},
	}
}

var _ fs.FS = (*Tree)(nil)
