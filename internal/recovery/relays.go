package recovery

import (
	"bytes"
	"encoding/binary"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/ptrace"
)

// Return addresses that a killed tracer has replaced lead to relays (arch.Relays), which need nobody, and stay. The target's own
// unwinders know nothing of them. So the true addresses come back, as far as they are found: on the stacks that threads are on. The relays by which
// calls were followed have breakpoints, of which the journal tells.

// relaysOf is the relays with breakpoints, and where they lead.
func (r *recovery) relaysOf() map[arch.Addr]arch.Addr {
	if host.Relays == nil {
		return nil
	}
	lead := map[arch.Addr]arch.Addr{}
	code := host.Relays.Relay(0)
	for _, l := range r.found {
		for _, rec := range l.original.records.records {
			if !bytes.HasPrefix(host.Relays.Relay(0), rec.Original) || !r.work.spend(pageWork) {
				continue
			}
			if l.original.ReadMemory(rec.At, code) != nil {
				continue
			}
			if to, ok := host.Relays.RelayTo(code); ok {
				lead[rec.At] = to
			}
		}
	}
	return lead
}

// straighten puts true return addresses back into the stacks of threads.
func (r *recovery) straighten(_ *ptrace.Frozen, threads []*ptrace.Thread) {
	lead := r.relaysOf()
	if len(lead) == 0 {
		return
	}
	seen := map[arch.Addr]bool{} // pages
	page := make([]byte, stackPage)
	for _, th := range threads {
		regs, err := th.Regs()
		if !th.Stopped() || err != nil {
			continue
		}
		start := regs.SP() &^ (stackPage - 1)
		for at := start; at < start+stackScan && !seen[at]; at += stackPage {
			if seen[at] = true; !r.work.spend(2*pageWork) || r.space.ReadMemory(at, page) != nil {
				break
			}
			for off := 0; off < stackPage; off += 8 {
				if to, ok := lead[arch.Addr(binary.LittleEndian.Uint64(page[off:]))]; ok {
					_ = r.space.WriteMemory(at+arch.Addr(off), binary.LittleEndian.AppendUint64(nil, uint64(to)))
				}
			}
		}
	}
}
