package kprobes

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/procfs"
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

// callSites finds all places in the mappings that chosen names, nil for all.
func (d *domain) callSites(chosen func(procfs.Mapping) bool) (sites []callSite, gaps []callGap, err error) {
	maps, err := d.surveyed().mappings(d)
	if err != nil {
		return nil, nil, err
	}
	for _, m := range maps {
		if len(gaps) > mostUnknown {
			gaps = append(gaps, callGap{number: -1, why: "the code behind " + m.Range.Start.String() + " was not searched, since there is too much that is not known"})
			break
		}
		if !m.Exec || d.region.Contains(m.Range.Start) || m.Path == "[vsyscall]" || m.Path == "[uprobes]" || chosen != nil && !chosen(m) {
			continue
		}
		if err := d.session.wanted(); err != nil {
			return nil, nil, err
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
			if err := d.session.wanted(); err != nil {
				return nil, nil, err
			}
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

// What is searched of the code in one mapping. Programs that generate theirs reserve hundreds of MiB, and fill little; no library is known to
// make system calls at a thousand places.
const (
	mostCode     = 256 << 20 // bytes
	mostPlaces   = 1 << 14   // where there are the bytes of the instruction
	mostUnknown  = 128       // those outside of all known functions
	longestCode  = 1 << 20   // bytes of one function
	mostDecoded  = 2 << 20   // bytes of all functions
	codeWindow   = 1 << 20   // bytes that are looked at at once
	mostSearched = 4096      // instructions that are followed from one
)

// callSitesIn finds the places in one mapping.
func (d *domain) callSitesIn(m *procfs.Mapping) (sites []callSite, gaps []callGap, err error) {
	found, err := d.callersIn(m, func([]byte) bool { return true }, true)
	if err != nil {
		return nil, nil, err
	}
	for _, f := range found.order {
		for i, number := range f.numbered() {
			site := f.site(i, number)
			if d.isSigreturn(site.insn) {
				site = callSite{insn: site.insn, at: site.insn, number: sigreturnNumber()}
			}
			sites = append(sites, site)
		}
	}
	if found.short != "" {
		found.gap("%s", found.short)
	}
	return sites, found.gaps, nil
}

// callerSearch finds the functions in a mapping that make system calls.
type callerSearch struct {
	d        *domain
	r        arch.Range // what is searched
	order    []*callerCode
	gaps     []callGap
	wantGaps bool
	short    string // why there may be more

	known   map[arch.Range]*callerCode
	last    arch.Range // the bounds of the last function of which only the beginning is known
	places  int
	unknown int
	decoded uint64
}

func (c *callerSearch) gap(format string, args ...any) {
	c.gaps = append(c.gaps, callGap{number: -1, why: fmt.Sprintf(format, args...)})
}

// callersIn decodes the functions in one mapping that make system calls, by instructions in front of which chosen
// likes the code, the last searchLoads bytes of it. What has no end is not searched to the end: short says so.
func (d *domain) callersIn(m *procfs.Mapping, chosen func(before []byte) bool, gaps bool) (*callerSearch, error) {
	c := &callerSearch{d: d, r: d.backed(m), wantGaps: gaps, known: map[arch.Range]*callerCode{}}
	if c.r.Len() > mostCode {
		return nil, fmt.Errorf("the code at %s is too large to be searched: %d MiB", c.r.Start, c.r.Len()>>20)
	}
	var unwanted error
	err := d.windows(c.r, func(own arch.Range, start arch.Addr, code []byte) bool {
		for _, at := range occurrences(code, start) {
			if !own.Contains(at) || !chosen(code[max(int(at-start)-searchLoads, 0):at-start]) {
				continue
			}
			if c.places++; c.places > mostPlaces {
				c.short = fmt.Sprintf("there are more places that may be system calls in %s than are looked at", mappingName(m))
			}
			if c.short != "" {
				return false
			}
			if unwanted = d.readSymbols(at); unwanted != nil {
				return false
			}
			c.add(at)
		}
		unwanted = d.session.wanted()
		return unwanted == nil
	})
	if unwanted != nil {
		err = unwanted
	}
	if err != nil || len(c.order) == 0 {
		return c, err
	}
	entrances := newEntranceMap(c.order, c.r)
	return c, d.windows(c.r, func(own arch.Range, start arch.Addr, code []byte) bool {
		entrances.note(own, start, code)
		return true
	})
}

// backed is what of a mapping's range the file that it maps has: behind a file's end there is nothing to be read, or executed.
func (d *domain) backed(m *procfs.Mapping) arch.Range {
	r := m.Range
	f := d.mappedFile(m)
	if f == nil {
		return r
	}
	const page = 4096
	end := (uint64(f.Size) + page - 1) &^ (page - 1)
	if left := end - min(m.Offset, end); left < r.Len() {
		r.End = r.Start + arch.Addr(left)
	}
	return r
}

// windows reads code of the program, as it is without us, a piece at a time: own, with what lies around it that an instruction may reach from
// or into. start is where code begins.
func (d *domain) windows(r arch.Range, f func(own arch.Range, start arch.Addr, code []byte) bool) error {
	const behind = 16 // no instruction is longer
	buf := make([]byte, searchLoads+min(codeWindow, r.Len())+behind)
	for own := r; own.Start < r.End; own.Start = own.End {
		own.End = min(own.Start+codeWindow, r.End)
		start, end := max(own.Start-searchLoads, r.Start), min(own.End+behind, r.End)
		code := buf[:end-start]
		if err := d.text.Original(start, code); err != nil {
			return err
		}
		if !f(own, start, code) {
			return nil
		}
	}
	return nil
}

// add takes note of what may be a system call.
func (c *callerSearch) add(at arch.Addr) {
	d := c.d
	bounds, known := d.symbols().Function(at)
	if !known {
		bounds, known = c.functionAround(at)
	}
	if !known {
		c.addUnknown(at)
		return
	}
	f := c.known[bounds]
	if f == nil {
		if f = c.decode(bounds); f == nil {
			return
		}
	}
	if f.err != nil && at >= f.end {
		c.gap("what may be a system call at %s can't be decoded: %v", d.placeOf(at), f.err)
	} else if j, ok := f.index(at); ok {
		f.calls = append(f.calls, j)
	}
}

// addUnknown is add for what is in no function that is known.
func (c *callerSearch) addUnknown(at arch.Addr) {
	if !c.wantGaps || c.unknown > mostUnknown {
		return
	}
	if c.unknown++; c.unknown > mostUnknown {
		c.gap("what may be a system call at %s is one of too many in no function that is known", c.d.placeOf(at))
		return
	}
	if _, data := c.d.symbols().DataInText(at); !data && !c.d.inData(c.r, at) {
		c.gap("what may be a system call at %s is in no function that is known", c.d.placeOf(at))
	}
}

// decode is the function with those bounds, nil if that is too much.
func (c *callerSearch) decode(bounds arch.Range) *callerCode {
	part := arch.Range{Start: max(bounds.Start, c.r.Start), End: min(bounds.End, c.r.End)}
	if c.decoded += part.Len(); part.Len() > longestCode || c.decoded > mostDecoded {
		c.short = fmt.Sprintf("functions that make system calls, as that at %s, are longer than is looked at", c.d.placeOf(bounds.Start))
		return nil
	}
	code := make([]byte, part.Len())
	if err := c.d.text.Original(part.Start, code); err != nil {
		c.short = err.Error()
		return nil
	}
	f := newCallerCode(arch.Range{Start: part.Start, End: bounds.End}, code)
	c.known[bounds], c.order = f, append(c.order, f)
	return f
}

// functionAround is the function around at of which only the beginning is known, as of those that are written in assembly.
func (c *callerSearch) functionAround(at arch.Addr) (bounds arch.Range, known bool) {
	const longest = 4096
	if c.last.Contains(at) && at-c.last.Start <= longest {
		return c.last, true
	}
	l, ok := c.d.symbols().Lookup(at)
	if !ok || l.Symbol.Size != 0 || l.Offset > longest || at.Add(-int64(l.Offset)) < c.r.Start {
		return bounds, false
	}
	bounds.Start, bounds.End = at.Add(-int64(l.Offset)), at
	for bounds.End < c.r.End && bounds.End-at < longest {
		next, ok := c.d.symbols().Lookup(bounds.End)
		if _, other := c.d.symbols().Function(bounds.End); other || !ok || next.Symbol.Name != l.Symbol.Name {
			break
		}
		bounds.End++
	}
	c.last = bounds
	return bounds, true
}

// inData tells of what may be a system call outside of all functions that are known that it is data, as tables of constants
// between functions are. What stands between two functions is data if it can't be decoded from one to the other; unless a constant for the
// number seems to be loaded right in front.
func (d *domain) inData(r arch.Range, at arch.Addr) bool {
	const furthest = 1 << 16
	known := func(a arch.Addr) bool { _, ok := d.symbols().Function(a); return ok }
	from, to := at, at
	for from > r.Start && at-from < furthest && !known(from-1) {
		from--
	}
	for to < r.End && to-at < furthest && !known(to) {
		to++
	}
	code := make([]byte, min(to+arch.Addr(host.Arch.MaxInsnLen()), r.End)-from)
	if d.text.Original(from, code) != nil {
		return false
	}
	for length := arch.Addr(2); length <= 10 && from+length <= at; length++ { // of a load
		insn, err := host.Arch.Decode(code[at-length-from:at-from], at-length)
		if err == nil && insn.End() == at && numberBehind(insn, anyNumber) != anyNumber {
			return false
		}
	}
	for pc := from; pc < to; {
		insn, err := host.Arch.Decode(code[pc-from:], pc)
		if err != nil {
			return true
		}
		pc = insn.End()
	}
	return false
}

// occurrences are where code, which is at start, has the bytes of the system-call instruction.
func occurrences(code []byte, start arch.Addr) (all []arch.Addr) {
	call := host.Arch.SyscallInsn()
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
