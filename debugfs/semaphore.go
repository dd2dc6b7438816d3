package debugfs

import (
	"encoding/binary"
	"fmt"
	"os"
	"syscall"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/debugfs/dynevent"
	"github.com/gokprobe/gokprobe/internal/procfs"
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
	if err := t.peek(at, word); err != nil {
		return fmt.Errorf("reading the reference counter at %s: %w", at, err)
	}
	v := int(binary.LittleEndian.Uint16(word)) + n
	switch {
	case v < 0:
		return nil // the library has been loaded anew since it was counted
	case v != int(uint16(v)):
		return fmt.Errorf("%w: the reference counter at %s would be %d", syscall.ERANGE, at, v)
	}
	if err := t.poke(at, binary.LittleEndian.AppendUint16(nil, uint16(v))); err != nil {
		return fmt.Errorf("writing the reference counter at %s: %w", at, err)
	}
	return nil
}

// memory opens the process's memory. Its number may be another process's by now; but not if we still trace the one that has it: what
// was opened before is then that one's.
func (t *Tree) memory(flag int) (*os.File, error) {
	pid := t.session.PID()
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), flag, 0)
	if err != nil {
		return nil, err
	}
	st, err := procfs.ReadStatus(pid, 0)
	if err == nil {
		_, err = os.Stat(fmt.Sprintf("/proc/self/task/%d", st.TracerPid))
	}
	if err != nil {
		_ = mem.Close()
		return nil, fmt.Errorf("process %d is not traced any more: %w", pid, syscall.ESRCH)
	}
	return mem, nil
}

// peek reads memory of the process, with the breakpoints that are in it.
func (t *Tree) peek(at arch.Addr, p []byte) error {
	mem, err := t.memory(os.O_RDONLY)
	if err != nil {
		return err
	}
	defer func() { _ = mem.Close() }()
	_, err = mem.ReadAt(p, int64(at))
	return err
}

// poke writes memory of the process.
func (t *Tree) poke(at arch.Addr, p []byte) error {
	mem, err := t.memory(os.O_WRONLY)
	if err != nil {
		return err
	}
	_, err = mem.WriteAt(p, int64(at))
	if end := mem.Close(); err == nil {
		err = end
	}
	return err
}
