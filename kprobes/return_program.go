package kprobes

import (
	"slices"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/program"
)

// Programs at returns. Where the target follows a call itself, the body at the entry
// notes the time in the call table. The body at the return runs the programs of all
// Kretprobes whose calls return there; each checks first whether the call was its own.
// Elsewhere the tracer interprets them.

// returnsOf notes that calls of rp return to st, or, if n is -1, no longer do. It
// matters for a jump at st if the tracer must see these returns, or a program must run.
func (st *site) returnsOf(rp *Kretprobe, n int) error {
	switch {
	case rp.needsTracer() != "":
		st.retracing += n
	case rp.timed():
		st.recounted++
		st.recorders = slices.DeleteFunc(slices.Clone(st.recorders), func(o *Kretprobe) bool { return o == rp })
		if n > 0 {
			st.recorders = append(st.recorders, rp)
		}
	default:
		return nil
	}
	if n > 0 && st.jump() != nil {
		return st.domain.refresh(st)
	}
	return nil
}

// timed tells whether the times of rp's calls are wanted.
func (rp *Kretprobe) timed() bool { return rp.KP.Program != nil }

// returnPrograms is what det does when a call has returned, nil if that is nothing.
func (fo *followed) returnPrograms(det *detour, dead arch.Dead) (arch.Body, error) {
	var all sequence
	for _, rp := range det.site.recorders {
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
