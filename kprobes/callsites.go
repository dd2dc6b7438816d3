package kprobes

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sort"
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
// function have an indirect jump, whose targets nobody knows. Else the probe is on the instruction itself and looks
// at the number when it is hit. What comes behind the place in no way that is taken by code is a thread that was there when the probe
// was placed: its call had begun before.

// callSite is an instruction that makes system calls.
type callSite struct {
	insn   arch.Addr   // that
	at     arch.Addr   // where a probe stands; insn itself, if it has to
	loads  []arch.Insn // what is executed from there to insn
	number int         // -1 if only the registers tell
	first  arch.Addr   // of the instructions that were looked at
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

// callSitesIn finds the places in one mapping.
func (d *domain) callSitesIn(m *procfs.Mapping) (sites []callSite, gaps []callGap, err error) {
	code := make([]byte, m.Range.Len())
	if err := d.text.Original(m.Range.Start, code); err != nil {
		return nil, nil, err
	}
	call := ptrace.Host.SyscallInsn()
	functions := map[arch.Range]*callerCode{}
	for from := 0; ; {
		i := bytes.Index(code[from:], call)
		if i < 0 {
			break
		}
		at := m.Range.Start + arch.Addr(from+i)
		from += i + 1
		bounds, known := d.symbols().Function(at)
		if !known {
			if _, data := d.symbols().DataInText(at); !data {
				gaps = append(gaps, callGap{number: -1, why: fmt.Sprintf("what may be a system call at %s is in no function that is known", d.placeOf(at))})
			}
			continue
		}
		f := functions[bounds]
		if f == nil {
			f = newCallerCode(bounds, code[bounds.Start-m.Range.Start:min(uint64(bounds.End-m.Range.Start), uint64(len(code)))])
			functions[bounds] = f
		}
		if f.err != nil && at >= f.end {
			gaps = append(gaps, callGap{number: -1, why: fmt.Sprintf("what may be a system call at %s can't be decoded: %v", d.placeOf(at), f.err)})
			continue
		}
		if j, ok := f.index(at); ok {
			site := f.site(j)
			if d.isSigreturn(at) {
				site = callSite{insn: at, at: at, first: at, number: sigreturnNumber()}
			}
			sites = append(sites, site)
		}
	}
	return withoutEntrances(sites, m.Range.Start, code), gaps, nil
}

// callerCode is the instructions of a function that makes system calls.
type callerCode struct {
	insns    []arch.Insn
	targets  map[arch.Addr]bool // of its branches
	indirect bool               // it has jumps to anywhere
	end      arch.Addr          // of what was decoded
	err      error              // why no more was
}

func newCallerCode(bounds arch.Range, code []byte) *callerCode {
	f := &callerCode{targets: map[arch.Addr]bool{}, end: bounds.Start}
	for len(code) > 0 {
		insn, err := ptrace.Host.Decode(code, f.end)
		if err != nil {
			f.err = err
			break
		}
		f.insns = append(f.insns, insn)
		switch insn.Flow {
		case arch.FlowJump, arch.FlowCond, arch.FlowCall:
			f.targets[insn.Target] = true
		case arch.FlowIndirectJump:
			f.indirect = true
		}
		code, f.end = code[insn.Len():], insn.End()
	}
	return f
}

// index is which instruction begins at at.
func (f *callerCode) index(at arch.Addr) (int, bool) {
	i := sort.Search(len(f.insns), func(i int) bool { return f.insns[i].Addr >= at })
	return i, i < len(f.insns) && f.insns[i].Addr == at
}

// site looks at the instructions in front of number i, which makes system calls.
func (f *callerCode) site(i int) callSite {
	insn := f.insns[i].Addr
	site := callSite{insn: insn, at: insn, first: insn, number: -1}
	if f.indirect || f.err != nil {
		return site
	}
	simple := true // all that was looked at only sets registers
	for j := i - 1; j >= 0 && i-j <= maxLoads && !f.targets[f.insns[j].End()]; j-- {
		before := f.insns[j]
		sets := ptrace.Host.Load(before, ptrace.Host.NewRegs(), vague(0)) == nil
		if !sets && !ptrace.Host.KeepsNumber(before) {
			break
		}
		if simple = simple && sets; simple && len(site.loads) == 0 && insn-before.Addr >= jumpRoom {
			site.at, site.loads = before.Addr, f.insns[j:i]
		}
		if site.number < 0 {
			site.first, site.number = before.Addr, constantNumber(f.insns[j:i])
		}
		if site.number >= 0 && (len(site.loads) > 0 || !simple) {
			break
		}
	}
	site.first = min(site.first, site.at)
	return site
}

// vague is memory of which nothing is known.
type vague byte

func (v vague) ReadMemory(_ arch.Addr, p []byte) error {
	for i := range p {
		p[i] = byte(v)
	}
	return nil
}

func (v vague) WriteMemory(arch.Addr, []byte) error { return nil }

// constantNumber is what insns leave in the register of the number, or -1 if that depends on anything. Those that do
// more than set a register leave that one alone, and may do anything else.
func constantNumber(insns []arch.Insn) int {
	var results [2]uint64
	for k, fill := range []byte{0x11, 0x22} {
		regs := ptrace.Host.NewRegs()
		blur(regs, fill)
		for _, insn := range insns {
			if ptrace.Host.Load(insn, regs, vague(fill)) != nil {
				number := regs.ReturnValue()
				blur(regs, fill)
				regs.SetReturnValue(number)
			}
		}
		results[k] = regs.ReturnValue()
	}
	if results[0] != results[1] || results[0] > math.MaxInt32 {
		return -1
	}
	return int(results[0])
}

// sigreturnNumber is the number of the call that handlers of signals return to.
func sigreturnNumber() int {
	insn, err := ptrace.Host.Decode(ptrace.Host.SigreturnLoads()[0], 0)
	if err != nil {
		return -1
	}
	return constantNumber([]arch.Insn{insn})
}

// blur makes all registers such that they differ for each value of fill.
func blur(regs arch.Regs, fill byte) {
	for i, name := range regs.Names() {
		regs.Set(name, uint64(fill)*0x0101010101010101+uint64(i))
	}
}

// withoutEntrances takes the places in front of their instructions from sites that a branch with a 32-bit displacement,
// anywhere in code, leads behind the place of. All bytes are looked at, so some are taken for no reason.
func withoutEntrances(sites []callSite, start arch.Addr, code []byte) []callSite {
	var inner []arch.Range
	for _, site := range sites {
		inner = append(inner, arch.Range{Start: site.first + 1, End: site.insn + 1})
	}
	if len(inner) == 0 {
		return sites
	}
	for i := 0; i+jumpRoom < len(code); i++ {
		at := i
		switch {
		case code[i] == 0xe8, code[i] == 0xe9:
		case code[i] == 0x0f && code[i+1]&0xf0 == 0x80:
			at++
		default:
			continue
		}
		if at+jumpRoom > len(code) {
			break
		}
		to := start + arch.Addr(at+jumpRoom).Add(int64(int32(binary.LittleEndian.Uint32(code[at+1:]))))
		k := sort.Search(len(inner), func(k int) bool { return inner[k].End > to })
		if k < len(inner) && inner[k].Contains(to) {
			entered(sites, to)
		}
	}
	return sites
}

// entered notes that somebody comes to at, which is among the instructions in front of a site.
func entered(sites []callSite, at arch.Addr) {
	i := sort.Search(len(sites), func(i int) bool { return sites[i].insn >= at })
	site := &sites[i]
	if at > site.at || at == site.insn {
		site.at, site.loads = site.insn, nil
	}
	site.number = constantNumber(site.loads)
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
