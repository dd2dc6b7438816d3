package debugfs

import (
	"fmt"

	"github.com/gokprobe/gokprobe/debugfs/dynevent"
)

// Boot defines events and turns them on, as the kernel does with those of its boot
// parameter kprobe_event=: a semicolon ends a definition, commas stand between its
// words. It ends at the first wrong one; events that were defined before stay.
func (t *Tree) Boot(parameter string) error {
	if err := t.usable(); err != nil {
		return fmt.Errorf("kprobe_event: %w", err)
	}
	for line, err := range dynevent.Boot(parameter) {
		if err == nil {
			err = t.command(kprobeEvents, line)
		}
		if err != nil {
			return fmt.Errorf("kprobe_event: %w", err)
		}
	}
	var events []*event
	for _, ev := range t.all() {
		if ev.family == dynevent.Kprobe {
			events = append(events, ev)
		}
	}
	return t.switchAll(events, true)
}
