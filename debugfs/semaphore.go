package debugfs

import (
	"encoding/binary"
	"fmt"
	"syscall"

	"github.com/gokprobe/gokprobe/debugfs/dynevent"
)

// A program that has static probes (SystemTap's sys/sdt.h) may look at a 16-bit number in front of each, to
// find out whether somebody wants it. Tracers that do count in there (kernel/events/uprobes.c,
// update_ref_ctr).

// sameSemaphore refuses a probe at the place of another with a semaphore that is not the same (G51).
func (t *Tree) sameSemaphore(d *dynevent.Definition) error {
	for _, p := range t.probesOf(uprobeEvents) {
		o := p.def
		if o.Path == d.Path && o.FileOffset == d.FileOffset && o.Ref != d.Ref && d.Family == dynevent.Uprobe {
			return fmt.Errorf("%w: %s has another reference counter in %s", syscall.EINVAL, o.Place(), p.event.path())
		}
	}
	return nil
}

// count adds n to p's semaphore, if it has one and that is mapped.
func (p *probe) count(n int) error {
	if !p.def.HasRef {
		return nil
	}
	t := p.event.tree
	at, ok := t.mapped(p.def.Path, p.def.Ref)
	if !ok {
		return nil
	}
	word := make([]byte, 2)
	if err := t.session.Peek(at, word); err != nil {
		return fmt.Errorf("reading the reference counter at %s: %w", at, err)
	}
	v := int(binary.LittleEndian.Uint16(word)) + n
	switch {
	case v < 0:
		return nil // the library has been loaded anew since it was counted
	case v != int(uint16(v)):
		return fmt.Errorf("%w: the reference counter at %s would be %d", syscall.ERANGE, at, v)
	}
	if err := t.session.Poke(at, binary.LittleEndian.AppendUint16(nil, uint16(v))); err != nil {
		return fmt.Errorf("writing the reference counter at %s: %w", at, err)
	}
	return nil
}
