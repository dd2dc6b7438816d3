package debugfs

import (
	"fmt"
	"strings"

	"github.com/gokprobe/gokprobe/debugfs/dynevent"
	"github.com/gokprobe/gokprobe/symbols"
)

// kprobeProfile is kprobe_profile: hits and misses (kernel/trace/trace_kprobe.c,
// probes_profile_seq_show).
func (t *Tree) kprobeProfile() string {
	var b strings.Builder
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.probesOf(kprobeEvents) {
		c := p.now()
		fmt.Fprintf(&b, "  %-44s %15d %15d\n", p.event.name, c.hits, c.missed)
	}
	return b.String()
}

// uprobeProfile is uprobe_profile: file, event and hits.
func (t *Tree) uprobeProfile() string {
	var b strings.Builder
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.probesOf(uprobeEvents) {
		fmt.Fprintf(&b, "  %s %-44s %15d\n", p.def.Path, p.event.name, p.now().hits)
	}
	return b.String()
}

// tellLosses adds the records for which the target had no room to the trace and to
// histograms.
func (t *Tree) tellLosses() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.noteLosses()
}

// noteLosses is tellLosses for who holds Tree.mu.
func (t *Tree) noteLosses() {
	for _, p := range t.probesOf(eventsFile{family: dynevent.Either}) {
		p.noteLosses()
	}
}

// noteLosses tells of those of p.
func (p *probe) noteLosses() {
	n := p.newLosses()
	p.event.triggers.Lose(n)
	if !p.event.quiet.Load() {
		p.event.tree.trace.lose(n)
	}
}

// inModule is the text behind a symbol: empty for the executable, as for the
// kernel.
func inModule(m *symbols.Module) string {
	if m == nil || m.Kind == symbols.KindExecutable {
		return ""
	}
	return " [" + m.Name + "]"
}
