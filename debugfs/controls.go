package debugfs

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// tracingOnFile is tracing_on: whether hits are recorded.
func (t *Tree) tracingOnFile() *node {
	return &node{
		mode: modeWrite,
		read: func() ([]byte, error) { return digit(t.on.Load()), nil },
		write: func(p []byte) error {
			v, err := number(p)
			if err == nil {
				t.on.Store(v != 0)
			}
			return err
		},
	}
}

// maxBufferKB is what buffer_size_kb may be set to.
const maxBufferKB = 4 << 20

// bufferSizeFile is buffer_size_kb.
func (t *Tree) bufferSizeFile() *node {
	return &node{
		mode: modeWrite,
		read: func() ([]byte, error) { return fmt.Appendf(nil, "%d\n", t.trace.size()>>10), nil },
		write: func(p []byte) error {
			v, err := number(p)
			switch {
			case err != nil:
				return err
			case v == 0:
				return fmt.Errorf("%w: the trace needs some room", syscall.EINVAL)
			case v > maxBufferKB:
				return fmt.Errorf("%w: at most %d", syscall.ENOMEM, maxBufferKB)
			}
			t.trace.resize(int(v) << 10)
			return nil
		},
	}
}

const snapshotHelp = `# tracer: nop
#
#
# * %s *
#
# Snapshot commands:
# echo 0 > snapshot : Clears and frees snapshot buffer
# echo 1 > snapshot : Allocates snapshot buffer, if not already allocated.
#                      Takes a snapshot of the main buffer.
# echo 2 > snapshot : Clears snapshot buffer (but does not allocate or free)
`

// snapshotFile is snapshot: the trace's content of some moment.
func (t *Tree) snapshotFile() *node {
	return &node{
		mode: modeWrite,
		read: func() ([]byte, error) {
			if spare := t.spare.Load(); spare != nil && !spare.isEmpty() {
				return spare.text(), nil
			} else if spare != nil {
				return fmt.Appendf(nil, snapshotHelp, "Snapshot is allocated"), nil
			}
			return fmt.Appendf(nil, snapshotHelp, "Snapshot is freed"), nil
		},
		write: func(p []byte) error {
			v, err := number(p)
			switch {
			case err != nil:
				return err
			case v == 0:
				t.spare.Store(nil)
			case v == 1:
				t.tellLosses()
				t.snapshot()
			case t.spare.Load() != nil:
				t.spare.Store(newBuffer(0))
			}
			return nil
		},
	}
}

// snapshot copies the trace's present content.
func (t *Tree) snapshot() { t.spare.Store(t.trace.take()) }

// setEventPIDFile is set_event_pid: the threads whose hits are looked at.
func (t *Tree) setEventPIDFile() *node {
	return &node{
		mode: modeWrite,
		read: func() ([]byte, error) {
			var b []byte
			if pids := t.pids.Load(); pids != nil {
				for _, pid := range slices.Sorted(maps.Keys(*pids)) {
					b = fmt.Appendf(b, "%d\n", pid)
				}
			}
			return b, nil
		},
		write: t.addPIDs,
		clear: func() error { t.pids.Store(nil); return nil },
	}
}

// maxPID is above all IDs of threads (include/linux/threads.h, PID_MAX_LIMIT).
const maxPID = 4 << 20

func (t *Tree) addPIDs(p []byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := map[int]bool{}
	if old := t.pids.Load(); old != nil {
		all = maps.Clone(*old)
	}
	for word := range strings.FieldsSeq(string(p)) {
		pid, err := strconv.Atoi(word)
		if err != nil || pid < 0 || pid >= maxPID {
			return fmt.Errorf("%w: %q is no thread's ID", syscall.EINVAL, word)
		}
		all[pid] = true
	}
	if len(all) > 0 {
		t.pids.Store(&all)
	}
	return nil
}

// setEventFile is set_event: the events that are on.
func (t *Tree) setEventFile() *node {
	return &node{
		mode: modeWrite,
		read: func() ([]byte, error) {
			return []byte(t.eventNames(func(ev *event) bool { return ev.isOn() })), nil
		},
		write: func(p []byte) error {
			for word := range strings.FieldsSeq(string(p)) {
				if err := t.setEvents(word); err != nil {
					return err
				}
			}
			return nil
		},
		clear: func() error { return t.switchAll(t.all(), false) },
	}
}

// setEvents turns on what pattern means, or off with an exclamation mark: GROUP:EVENT, GROUP:, EVENT or GROUP,
// each with * and ?.
func (t *Tree) setEvents(pattern string) error {
	rest, off := strings.CutPrefix(pattern, "!")
	group, name, both := strings.Cut(rest, ":")
	fits := func(p, s string) bool { ok, err := path.Match(p, s); return p == "" || ok && err == nil }
	var meant []*event
	for _, ev := range t.all() {
		if both && fits(group, ev.group) && fits(name, ev.name) || !both && (fits(rest, ev.name) || fits(rest, ev.group)) {
			meant = append(meant, ev)
		}
	}
	if len(meant) == 0 {
		return fmt.Errorf("%w: no event is called %s", syscall.EINVAL, rest)
	}
	return errors.Join(t.switchAll(meant, !off))
}
