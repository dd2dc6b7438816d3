package kprobes

import (
	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/program"
)

// Programs at returns. Where the target follows a call itself, the body at the entry
// notes the time in the call table. The body at the return runs the programs of all
// Kretprobes whose calls return there; each checks first whether the call was its own.
// Elsewhere the tracer interprets them.

// timed tells whether the times of rp's calls are wanted.
func (rp *Kretprobe) timed() bool { return rp.KP.Program != nil }

// returnPrograms is what det does when a call has returned, nil if that is nothing.
func (fo *followed) returnPrograms(det *detour, dead arch.Dead) (arch.Body, error) {
	var all sequence
	for _, rp := range det.site.calls.recorders {
		entry := rp.entryIn(fo.d)
		if entry == nil {
			continue
		}
		line, err := fo.newCallLine(entry, rp)
		if err != nil {
			return nil, err
		}
		rec, err := fo.d.recorder.newRecordingOf(&rp.KP, det.site.addr, func(p program.Program) program.Program { return p.Where("line", int32(line.id)) })
		if err != nil {
			return nil, err
		}
		det.returned = append(det.returned, rec)
		body, err := fo.d.recorder.compile(rec, program.Target{Site: det.site.returnsTo() - arch.Addr(host.Arch.BreakpointAdvance()), Dead: dead, Below: arch.ThenBelow, Words: arch.ThenWords})
		if err != nil {
			return nil, err
		}
		all = append(all, body)
	}
	if all == nil {
		return nil, nil
	}
	return all, nil
}

// entryIn is the site of rp's function in an address space.
func (rp *Kretprobe) entryIn(d *domain) *site {
	for _, pl := range rp.KP.placements {
		if pl.domain == d {
			return pl.site
		}
	}
	return nil
}
