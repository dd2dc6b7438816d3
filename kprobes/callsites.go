package kprobes

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/ptrace"
)

// Where a program makes system calls.
//
// All executable mappings are searched for the bytes of the system-call instruction. Those that begin an
// instruction, decoded from the start of the function around them, are sites. The instructions in front of
// one that only set registers tell its number, if it is a constant; that
//
//	mov $257,%eax
//	syscall
//
// calls openat, and is no place for a probe on anything else. And they make room: a probe on the system-call
// instruction itself stops its thread twice a call, and can't be optimized, since the kernel has to be entered from
// the original address. One at the mov has a jump that ends in front of the system call. It sees registers as they are
// there, which the moves that follow turn into those of the call.
//
// A thread must come from the probe's place to the instruction in one way only, through it. So nothing behind that place, up to the
// instruction, may be the target of a branch: of those in its function, of those anywhere in the
// mapping that have 32 bits of displacement (a part that the compiler has split off returns by such), nor may the
// function have an indirect jump, whose targets nobody knows. Else the probe is on the instruction itself. Nor is a number
// known that such ways lead around; then the probe looks at it when it is hit. Who stands behind the place when the probe
// comes has begun the call before.

// callSite is an instruction that makes system calls.
type callSite struct {
	insn   arch.Addr   // that
	at     arch.Addr   // where a probe stands; insn itself, if it has to
	loads  []arch.Insn // what is executed from there to insn
	number int         // -1 if only the registers tell
}

// callGap is code that makes system calls and can't be probed.
type callGap struct {
	number int // -1: any
	why    string
}

// maxLoads is how many instructions in front of a system call are looked at.
const maxLoads = 16

// jumpRoom is the length in bytes of a jump.
const jumpRoom = 5

// callSites finds all places in the mappings that chosen names, nil for all.
func (d *domain) callSites(chosen func(procfs.Mapping) bool) (sites []callSite, gaps []callGap, err error) {
	maps, err := d.surveyed().mappings(d)
	if err != nil {
		return nil, nil, err
	}
	for _, m := range maps {
		if !m.Exec || d.region.Contains(m.Range.Start) || m.Path == "[vsyscall]" || m.Path == "[uprobes]" || chosen != nil && !chosen(m) {
			continue
		}
		if why := generated(&m); why != "" {
			gaps = append(gaps, callGap{number: -1, why: why})
			continue
		}
		found, unknown, err := d.callSitesIn(&m)
		if err != nil {
			gaps = append(gaps, callGap{number: -1, why: fmt.Sprintf("the code of %s can't be read: %v", mappingName(&m), err)})
			continue
		}
		gaps = append(gaps, unknown...)
		for _, site := range found {
			if err := d.checkCallSite(site); err != nil {
				gaps = append(gaps, callGap{number: site.number, why: fmt.Sprintf("%s can't be probed: %v", d.placeOf(site.insn), err)})
				continue
			}
			sites = append(sites, site)
		}
	}
	return sites, gaps, nil
}

// generated says why the code of a mapping may be another soon.
func generated(m *procfs.Mapping) string {
	switch {
	case !m.Read:
		return fmt.Sprintf("the code in %s can't be read", mappingName(m))
	case m.Path == "[vdso]":
		return ""
	case m.Write || m.Anonymous():
		return fmt.Sprintf("the program makes code itself, in %s at %s", mappingName(m), m.Range.Start)
	}
	return ""
}

func (d *domain) placeOf(at arch.Addr) string {
	if l, ok := d.symbols().Lookup(at); ok {
		return l.String()
	}
	return at.String()
}

// checkCallSite says why site can't have a probe.
func (d *domain) checkCallSite(site callSite) error {
	if err := d.checkMapping(site.insn); err != nil {
		return err
	}
	if m, err := d.codeMapping(site.insn); err == nil && m.Path == "[vdso]" {
		return fmt.Errorf("%w: the kernel's own code (vdso)", ErrBlacklisted)
	}
	_, _, err := d.checkAddress(site.at)
	return err
}

// mostCode is how much of code in one mapping is searched, in bytes: programs that generate theirs reserve hundreds of MiB, and fill little.
const mostCode = 256 << 20

// callSitesIn finds the places in one mapping.
func (d *domain) callSitesIn(m *procfs.Mapping) (sites []callSite, gaps []callGap, err error) {
	code, err := d.originalCode(m)
	if err != nil {
		return nil, nil, err
	}
	order, gaps := d.callersIn(m, code, func([]byte) bool { return true })
	for _, f := range order {
		for i, number := range f.numbered() {
			site := f.site(i, number)
			if d.isSigreturn(site.insn) {
				site = callSite{insn: site.insn, at: site.insn, number: sigreturnNumber()}
			}
			sites = append(sites, site)
		}
	}
	return sites, gaps, nil
}

// originalCode is all that is in a mapping, without our breakpoints and jumps.
func (d *domain) originalCode(m *procfs.Mapping) ([]byte, error) {
	if m.Range.Len() > mostCode {
		return nil, fmt.Errorf("the code at %s is too large to be searched: %d MiB", m.Range.Start, m.Range.Len()>>20)
	}
	code := make([]byte, m.Range.Len())
	if err := d.text.Original(m.Range.Start, code); err != nil {
		return nil, err
	}
	return code, nil
}

// callersIn decodes the functions in one mapping, whose code is given, that make system calls, by instructions in front of which chosen
// likes the code.
func (d *domain) callersIn(m *procfs.Mapping, code []byte, chosen func(before []byte) bool) (order []*callerCode, gaps []callGap) {
	callers := map[arch.Range]*callerCode{}
	for _, at := range occurrences(code, m.Range.Start) {
		if !chosen(code[:at-m.Range.Start]) {
			continue
		}
		bounds, known := d.functionAround(m.Range, at)
		if !known {
			if _, data := d.symbols().DataInText(at); !data && !d.inData(m.Range.Start, code, at) {
				gaps = append(gaps, callGap{number: -1, why: fmt.Sprintf("what may be a system call at %s is in no function that is known", d.placeOf(at))})
			}
			continue
		}
		f := callers[bounds]
		if f == nil {
			own := code[bounds.Start-m.Range.Start : min(uint64(bounds.End-m.Range.Start), uint64(len(code)))]
			f = newCallerCode(bounds, bytes.Clone(own)) // sites keep some of it
			callers[bounds], order = f, append(order, f)
		}
		if f.err != nil && at >= f.end {
			gaps = append(gaps, callGap{number: -1, why: fmt.Sprintf("what may be a system call at %s can't be decoded: %v", d.placeOf(at), f.err)})
		} else if j, ok := f.index(at); ok {
			f.calls = append(f.calls, j)
		}
	}
	if len(order) > 0 {
		noteEntrances(order, m.Range.Start, code)
	}
	return order, gaps
}

// functionAround is the function around at: also one of which only the beginning is known, as of those that are written in assembly.
func (d *domain) functionAround(m arch.Range, at arch.Addr) (bounds arch.Range, known bool) {
	const longest = 4096
	if bounds, known = d.symbols().Function(at); known {
		return bounds, known
	}
	l, ok := d.symbols().Lookup(at)
	if !ok || l.Symbol.Size != 0 || l.Offset > longest || at.Add(-int64(l.Offset)) < m.Start {
		return bounds, false
	}
	bounds.Start, bounds.End = at.Add(-int64(l.Offset)), at
	for bounds.End < m.End && bounds.End-at < longest {
		next, ok := d.symbols().Lookup(bounds.End)
		if _, other := d.symbols().Function(bounds.End); other || !ok || next.Symbol.Name != l.Symbol.Name {
			break
		}
		bounds.End++
	}
	return bounds, true
}

// inData tells of what may be a system call outside of all functions that are known that it is data, as tables of constants
// between functions are. What stands between two functions is data if it can't be decoded from one to the other; unless a constant for the
// number seems to be loaded right in front.
func (d *domain) inData(start arch.Addr, code []byte, at arch.Addr) bool {
	const furthest = 1 << 16
	known := func(a arch.Addr) bool { _, ok := d.symbols().Function(a); return ok }
	from, to := at, at
	for from > start && at-from < furthest && !known(from-1) {
		from--
	}
	for to < start+arch.Addr(len(code)) && to-at < furthest && !known(to) {
		to++
	}
	for length := arch.Addr(2); length <= 10 && from+length <= at; length++ { // of a load
		insn, err := ptrace.Host.Decode(code[at-length-start:at-start], at-length)
		if err == nil && insn.End() == at && numberBehind(insn, anyNumber) != anyNumber {
			return false
		}
	}
	for pc := from; pc < to; {
		insn, err := ptrace.Host.Decode(code[pc-start:], pc)
		if err != nil {
			return true
		}
		pc = insn.End()
	}
	return false
}

// occurrences are where code, which is at start, has the bytes of the system-call instruction.
func occurrences(code []byte, start arch.Addr) (all []arch.Addr) {
	call := ptrace.Host.SyscallInsn()
	for from := 0; ; {
		i := bytes.Index(code[from:], call)
		if i < 0 {
			return all
		}
		all = append(all, start+arch.Addr(from+i))
		from += i + 1
	}
}

// describeGaps is why a probe on numbers can't be by sites; empty if it can.
func describeGaps(gaps []callGap, numbers []int) string {
	var why []string
	for _, g := range gaps {
		if g.number < 0 || slices.Contains(numbers, g.number) {
			why = append(why, g.why)
		}
	}
	switch {
	case len(why) > 2:
		return fmt.Sprintf("%s; %s; and %d more", why[0], why[1], len(why)-2)
	default:
		return strings.Join(why, "; ")
	}
}
