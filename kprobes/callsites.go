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

// callSitesIn finds the places in one mapping.
func (d *domain) callSitesIn(m *procfs.Mapping) (sites []callSite, gaps []callGap, err error) {
	code := make([]byte, m.Range.Len())
	if err := d.text.Original(m.Range.Start, code); err != nil {
		return nil, nil, err
	}
	callers := map[arch.Range]*callerCode{}
	var order []*callerCode
	for _, at := range occurrences(code, m.Range.Start) {
		bounds, known := d.symbols().Function(at)
		if !known {
			if _, data := d.symbols().DataInText(at); !data {
				gaps = append(gaps, callGap{number: -1, why: fmt.Sprintf("what may be a system call at %s is in no function that is known", d.placeOf(at))})
			}
			continue
		}
		f := callers[bounds]
		if f == nil {
			f = newCallerCode(bounds, code[bounds.Start-m.Range.Start:min(uint64(bounds.End-m.Range.Start), uint64(len(code)))])
			callers[bounds], order = f, append(order, f)
		}
		if f.err != nil && at >= f.end {
			gaps = append(gaps, callGap{number: -1, why: fmt.Sprintf("what may be a system call at %s can't be decoded: %v", d.placeOf(at), f.err)})
		} else if j, ok := f.index(at); ok {
			f.calls = append(f.calls, j)
		}
	}
	noteEntrances(order, m.Range.Start, code)
	for _, f := range order {
		numbers := f.numbers()
		for _, i := range f.calls {
			site := f.site(i, numbers[i])
			if d.isSigreturn(site.insn) {
				site = callSite{insn: site.insn, at: site.insn, number: sigreturnNumber()}
			}
			sites = append(sites, site)
		}
	}
	return sites, gaps, nil
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

// callerCode is the instructions of a function that makes system calls.
type callerCode struct {
	bounds    arch.Range
	insns     []arch.Insn
	calls     []int              // those of insns that do
	targets   map[arch.Addr]bool // of its branches, and of others that lead into it
	entrances map[arch.Addr]bool // of others
	indirect  bool               // it has jumps to anywhere
	end       arch.Addr          // of what was decoded
	err       error              // why no more was
}

func newCallerCode(bounds arch.Range, code []byte) *callerCode {
	f := &callerCode{bounds: bounds, targets: map[arch.Addr]bool{}, entrances: map[arch.Addr]bool{bounds.Start: true}, end: bounds.Start}
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
func (f *callerCode) site(i, number int) callSite {
	insn := f.insns[i].Addr
	site := callSite{insn: insn, at: insn, number: number}
	if f.indirect || f.err != nil {
		return site
	}
	for j := i - 1; j >= 0 && i-j <= maxLoads && !f.targets[f.insns[j].End()]; j-- {
		before := f.insns[j]
		if ptrace.Host.Load(before, ptrace.Host.NewRegs(), vague(0)) != nil {
			break
		}
		if insn-before.Addr >= jumpRoom {
			site.at, site.loads = before.Addr, f.insns[j:i]
			break
		}
	}
	return site
}

// Of an instruction that no way was found to, nothing is known of the register of the number either.
const (
	anyNumber = -1
	unreached = -2
)

// numbers is what the register of system calls' numbers holds in front of each instruction, anyNumber if that is not always the
// same. It follows all ways through the function from all that lead into it.
func (f *callerCode) numbers() []int {
	in := make([]int, len(f.insns))
	for i := range in {
		in[i] = unreached
	}
	var todo []int
	reach := func(at arch.Addr, number int) {
		i, ok := f.index(at)
		if !ok || in[i] == number || in[i] == anyNumber {
			return
		}
		if in[i] != unreached {
			number = anyNumber
		}
		in[i] = number
		todo = append(todo, i)
	}
	for at := range f.entrances {
		reach(at, anyNumber)
	}
	if f.indirect || f.err != nil {
		for _, insn := range f.insns {
			reach(insn.Addr, anyNumber)
		}
	}
	for len(todo) > 0 {
		insn, number := f.insns[todo[len(todo)-1]], in[todo[len(todo)-1]]
		todo = todo[:len(todo)-1]
		switch insn.Flow {
		case arch.FlowReturn, arch.FlowIndirectJump, arch.FlowFar, arch.FlowTrap:
		case arch.FlowJump:
			reach(insn.Target, number)
		case arch.FlowCond:
			reach(insn.Target, number)
			reach(insn.End(), number)
		default:
			reach(insn.End(), numberBehind(insn, number))
		}
	}
	return in
}

// numberBehind is what the register holds behind an instruction that leads to the following one.
func numberBehind(insn arch.Insn, number int) int {
	if insn.Flow == arch.FlowNext && ptrace.Host.Load(insn, ptrace.Host.NewRegs(), vague(0)) == nil {
		return constantNumber(insn, number)
	}
	if ptrace.Host.KeepsNumber(insn) {
		return number
	}
	return anyNumber
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

// constantNumber is what load leaves in the register of the number, where number was, or anyNumber if that depends on anything.
func constantNumber(load arch.Insn, number int) int {
	var results [2]uint64
	for k, fill := range []byte{0x11, 0x22} {
		regs := ptrace.Host.NewRegs()
		for i, name := range regs.Names() {
			regs.Set(name, uint64(fill)*0x0101010101010101+uint64(i))
		}
		if number >= 0 {
			regs.SetReturnValue(uint64(number))
		}
		if ptrace.Host.Load(load, regs, vague(fill)) != nil {
			return anyNumber
		}
		results[k] = regs.ReturnValue()
	}
	if results[0] != results[1] || results[0] > math.MaxInt32 {
		return anyNumber
	}
	return int(results[0])
}

// sigreturnNumber is the number of the call that handlers of signals return to.
func sigreturnNumber() int {
	insn, err := ptrace.Host.Decode(ptrace.Host.SigreturnLoads()[0], 0)
	if err != nil {
		return anyNumber
	}
	return constantNumber(insn, anyNumber)
}

// noteEntrances finds branches with a 32-bit displacement, anywhere in code, that lead into one of callers from outside of it. All
// bytes are looked at, so some are taken for a branch for no reason.
func noteEntrances(callers []*callerCode, start arch.Addr, code []byte) {
	sort.Slice(callers, func(i, k int) bool { return callers[i].bounds.Start < callers[k].bounds.Start })
	for i := range code {
		at := i
		switch {
		case code[i] == 0xe8, code[i] == 0xe9:
		case code[i] == 0x0f && i+1 < len(code) && code[i+1]&0xf0 == 0x80:
			at++
		default:
			continue
		}
		if at+jumpRoom > len(code) {
			break
		}
		from := start + arch.Addr(i)
		to := (start + arch.Addr(at+jumpRoom)).Add(int64(int32(binary.LittleEndian.Uint32(code[at+1:]))))
		k := sort.Search(len(callers), func(k int) bool { return callers[k].bounds.End > to })
		if k < len(callers) && callers[k].bounds.Contains(to) && !callers[k].bounds.Contains(from) {
			callers[k].targets[to], callers[k].entrances[to] = true, true
		}
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
