package kprobes

import (
	"encoding/binary"
	"fmt"
	"sort"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/ptrace"
)

// checkAddress makes register_kprobe's checks of an address (A18–A26) and moves the
// address behind an entry's landing pad (A15). entry tells a function's entry.
func (d *domain) checkAddress(at arch.Addr) (moved arch.Addr, entry bool, err error) {
	if err := d.checkMapping(at); err != nil {
		return at, false, err
	}
	if err := d.checkCode(at); err != nil {
		return at, false, err
	}
	bounds, known := d.session.table.Function(at)
	if !known || d.region.Contains(at) {
		return at, false, nil
	}
	pad, err := d.landingPad(bounds.Start)
	if err != nil {
		return at, false, err
	}
	switch at {
	case bounds.Start, bounds.Start + pad:
		return bounds.Start + pad, true, nil
	}
	return at, false, d.checkBoundary(bounds, at)
}

func (d *domain) landingPad(entry arch.Addr) (arch.Addr, error) {
	code, err := d.original(entry, ptrace.Host.MaxInsnLen())
	if err != nil {
		return 0, err
	}
	return arch.Addr(ptrace.Host.EntrySkip(code)), nil
}

// checkMapping refuses what is no code of the target.
func (d *domain) checkMapping(at arch.Addr) error {
	maps, err := d.surveyed().mappings(d)
	if err != nil {
		return err
	}
	for _, m := range maps {
		switch {
		case !m.Range.Contains(at):
			continue
		case d.region.Contains(at):
			return fmt.Errorf("%w: it is code of gokprobe's own", ErrBlacklisted)
		case m.Path == "[vsyscall]":
			return fmt.Errorf("%w: the kernel emulates the vsyscall page and runs none of its code", ErrBlacklisted)
		case !m.Exec:
			return fmt.Errorf("%w (%s)", ErrNotExecutable, mappingName(m))
		case m.Shared:
			return fmt.Errorf("%w: its mapping is shared with other processes (%s), which would run the breakpoint", ErrBlacklisted, mappingName(m))
		}
		return d.checkBlacklist(at, m)
	}
	return ErrNotMapped
}

func mappingName(m procfs.Mapping) string {
	if m.Path == "" {
		return "anonymous memory"
	}
	return m.Path
}

// checkCode refuses what is known to be no code, or code that can't be stopped in.
func (d *domain) checkCode(at arch.Addr) error {
	if v, ok := d.session.table.DataInText(at); ok {
		return fmt.Errorf("%w: %s", ErrData, v)
	}
	for _, r := range d.surveyed().sequences(d) {
		if r.Contains(at) {
			return fmt.Errorf("%w: %s to %s", ErrRestartable, r.Start, r.End)
		}
	}
	return nil
}

// checkBoundary decodes from the start of the function, as can_probe does
// (arch/x86/kernel/kprobes/core.c).
func (d *domain) checkBoundary(fn arch.Range, at arch.Addr) error {
	v := d.surveyed()
	if err := v.decodeTo(d, fn, at); err != nil {
		return err
	}
	i := sort.Search(len(v.starts), func(i int) bool { return v.starts[i] >= at })
	if i < len(v.starts) && v.starts[i] == at || i == len(v.starts) && v.next == at {
		return nil
	}
	pc := v.starts[i-1]
	insn, err := ptrace.Host.Decode(v.code[pc-fn.Start:], pc)
	if err != nil {
		return refusal(err)
	}
	return fmt.Errorf("%w: it is inside %q at %s", ErrNotBoundary, ptrace.Host.Disassemble(insn), pc)
}

// survey is what a registration has found out about the target. It is kept during one
// call only, for the probes that follow in it.
type survey struct {
	maps []procfs.Mapping

	// The instructions of one function, as far as they were decoded.
	function arch.Range
	code     []byte
	starts   []arch.Addr
	next     arch.Addr

	critical []arch.Range // restartable sequences
	searched bool
}

func (d *domain) surveyed() *survey {
	if d.survey == nil {
		d.survey = &survey{}
	}
	return d.survey
}

func (v *survey) mappings(d *domain) ([]procfs.Mapping, error) {
	if v.maps != nil {
		return v.maps, nil
	}
	tid, err := d.space.TID()
	if err != nil {
		return nil, ErrExited
	}
	if v.maps, err = procfs.Maps(tid); err != nil {
		return nil, fmt.Errorf("reading the process's mappings: %w", err)
	}
	return v.maps, nil
}

// decodeTo decodes fn from its start until it reaches or passes at.
func (v *survey) decodeTo(d *domain, fn arch.Range, at arch.Addr) error {
	if v.function != fn {
		code := make([]byte, fn.Len())
		if err := d.text.Original(fn.Start, code); err != nil {
			return fmt.Errorf("%w: %w", ErrNotMapped, err)
		}
		v.function, v.code, v.starts, v.next = fn, code, v.starts[:0], fn.Start
	}
	for v.next < at {
		insn, err := ptrace.Host.Decode(v.code[v.next-fn.Start:], v.next)
		if err != nil {
			return fmt.Errorf("%w: at %s, between the function's start %s and it: %w", ErrUndecodable, v.next, fn.Start, err)
		}
		v.starts = append(v.starts, v.next)
		v.next = insn.End()
	}
	return nil
}

// sequences lists the restartable sequences (rseq(2)) of all modules, from the
// descriptors that the linker collects: struct rseq_cs in section __rseq_cs
// (include/uapi/linux/rseq.h). A stop inside of one aborts it, and it would be tried
// again for ever.
func (v *survey) sequences(d *domain) []arch.Range {
	if v.searched {
		return v.critical
	}
	v.searched = true
	const size, signature = 32, 4 // the kernel looks at what stands before the abort address
	for _, section := range d.session.table.Sections("__rseq_cs") {
		b := make([]byte, section.Len())
		if d.space.ReadMemory(section.Start, b) != nil {
			continue
		}
		for ; len(b) >= size; b = b[size:] {
			start := arch.Addr(binary.LittleEndian.Uint64(b[8:]))
			length := binary.LittleEndian.Uint64(b[16:])
			abort := arch.Addr(binary.LittleEndian.Uint64(b[24:]))
			v.critical = append(v.critical, arch.Range{Start: start, End: start + arch.Addr(length)},
				arch.Range{Start: abort - signature, End: abort})
		}
	}
	return v.critical
}
