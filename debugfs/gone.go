package debugfs

import (
	"errors"

	"github.com/gokprobe/gokprobe/kprobes"
)

// enableRegistered enables p, which is registered. One whose code is gone is left for when its library comes
// back: nobody finds it again that was not defined with one (kernel/trace/trace_kprobe.c,
// trace_kprobe_has_gone, trace_kprobe_module_callback).
func (p *probe) enableRegistered() error {
	err := p.event.tree.session.EnableKprobe(p.kp)
	if !errors.Is(err, kprobes.ErrGone) {
		return err
	}
	if p.def.Module == "" {
		return nil
	}
	if err := p.unregister(); err != nil {
		return err
	}
	return p.register(0)
}
