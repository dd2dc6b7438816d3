package kprobes

import (
	"fmt"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/procfs"
)

// checkAddress makes register_kprobe's checks of an address (A18–A26) and moves the
// address behind an entry's landing pad (A15). entry tells a function's entry.
func (lo *looks) checkAddress(at arch.Addr) (moved arch.Addr, entry bool, err error) {
	if err := lo.checkMapping(at); err != nil {
		return at, false, err
	}
	if err := lo.checkCode(at); err != nil {
		return at, false, err
	}
	if lo.isSigreturn(at) {
		return at, false, fmt.Errorf("%w: it returns from signal handlers, and unwinders know it by its bytes", ErrBlacklisted)
	}
	bounds, known := lo.d.linker.symbols().Function(at)
	if !known || lo.d.region.Contains(at) {
		return at, false, nil
	}
	pad, err := lo.landingPad(bounds.Start)
	if err != nil {
		return at, false, err
	}
	switch at {
	case bounds.Start, bounds.Start + pad:
		return bounds.Start + pad, true, nil
	}
	return at, false, lo.checkBoundary(bounds, at)
}

// checkEntry refuses an address that is not the entry of a function (A54). A Go
// function is entered behind the check of its stack, which may be executed several
// times a call.
func (lo *looks) checkEntry(at arch.Addr, entry bool) (moved arch.Addr, inGo bool, err error) {
	bounds, known := lo.d.linker.symbols().Function(at)
	if !known {
		return at, false, fmt.Errorf("%w: no function is known there", ErrNotEntry)
	}
	if lo.d.linker.symbols().GoFunction(at) {
		const longest = 64
		code, err := lo.original(bounds.Start, int(min(bounds.Len(), longest)))
		if err != nil {
			return at, true, err
		}
		behind := bounds.Start + arch.Addr(host.Arch.StackCheck(code))
		if entry || at == behind {
			return behind, true, nil
		}
	}
	if !entry {
		return at, false, fmt.Errorf("%w, which starts at %s", ErrNotEntry, bounds.Start)
	}
	return at, false, nil
}

func (lo *looks) landingPad(entry arch.Addr) (arch.Addr, error) {
	code, err := lo.original(entry, host.Arch.MaxInsnLen())
	if err != nil {
		return 0, err
	}
	return arch.Addr(host.Arch.EntrySkip(code)), nil
}

// checkMapping refuses an address that is not in the target's code, or is on the
// blacklist.
func (lo *looks) checkMapping(at arch.Addr) error {
	m, err := lo.codeMapping(at)
	if err != nil {
		return err
	}
	return lo.checkBlacklist(at, *m)
}

// codeMapping is the mapping that at is code in.
func (lo *looks) codeMapping(at arch.Addr) (*procfs.Mapping, error) {
	m, err := lo.surveyed().Mapping(at)
	switch {
	case err != nil:
		return nil, err
	case m == nil:
		return nil, ErrNotMapped
	case lo.d.region.Contains(at):
		return nil, fmt.Errorf("%w: it is code of gokprobe's own", ErrBlacklisted)
	case m.Path == "[vsyscall]":
		return nil, fmt.Errorf("%w: the kernel emulates the vsyscall page and runs none of its code", ErrBlacklisted)
	case !m.Exec:
		return nil, fmt.Errorf("%w (%s)", ErrNotExecutable, mappingName(m))
	case m.Shared:
		return nil, fmt.Errorf("%w: its mapping is shared with other processes (%s), which would run the breakpoint", ErrBlacklisted, mappingName(m))
	}
	return m, nil
}

func mappingName(m *procfs.Mapping) string {
	if m.Path == "" {
		return "anonymous memory"
	}
	return m.Path
}

// checkCode refuses an address that is known to be no code, or where no thread can be
// stopped.
func (lo *looks) checkCode(at arch.Addr) error {
	if v, ok := lo.d.linker.symbols().DataInText(at); ok {
		return fmt.Errorf("%w: %s", ErrData, v)
	}
	return lo.checkRestartable(at)
}

// checkRestartable refuses an address in a restartable sequence.
func (lo *looks) checkRestartable(at arch.Addr) error {
	if r, inside := lo.surveyed().Restartable(at); inside {
		return fmt.Errorf("%w: %s to %s", ErrRestartable, r.Start, r.End)
	}
	return nil
}

// checkBoundary decodes from the start of the function, as can_probe does
// (arch/x86/kernel/kprobes/core.c).
func (lo *looks) checkBoundary(fn arch.Range, at arch.Addr) error {
	f, err := lo.decodeTo(fn, at)
	if err != nil {
		return err
	}
	pc, begins := f.Begins(at)
	if begins {
		return nil
	}
	insn, err := host.Arch.Decode(f.Code(pc), pc)
	if err != nil {
		return refusal(err)
	}
	return fmt.Errorf("%w: it is inside %q at %s", ErrNotBoundary, host.Arch.Disassemble(insn), pc)
}

// decode reads the instruction at at as it is without patches.
func (lo *looks) decode(at arch.Addr) (arch.Insn, error) {
	code, err := lo.original(at, host.Arch.MaxInsnLen())
	if err != nil {
		return arch.Insn{}, err
	}
	insn, err := host.Arch.Decode(code, at)
	if err != nil {
		return arch.Insn{}, refusal(err)
	}
	return insn, nil
}
