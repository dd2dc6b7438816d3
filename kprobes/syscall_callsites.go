package kprobes

import (
	"fmt"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/syscallsites"
)

// Where a program makes system calls, and where probes on these stand: package syscallsites finds it, in mapping after mapping.

// callSites finds all places in the mappings that chosen names, nil for all.
func (lo *looks) callSites(chosen func(procfs.Mapping) bool) (sites []syscallsites.Site, gaps []syscallsites.Gap, err error) {
	maps, err := lo.surveyed().Mappings()
	if err != nil {
		return nil, nil, err
	}
	for _, m := range maps {
		if len(gaps) > syscallsites.MostUnknown {
			gaps = append(gaps, syscallsites.Gap{Number: syscallsites.AnyNumber, Why: "the code behind " + m.Range.Start.String() + " was not searched, since there is too much that is not known"})
			break
		}
		if !m.Exec || lo.d.region.Contains(m.Range.Start) || m.Path == "[vsyscall]" || m.Path == "[uprobes]" || chosen != nil && !chosen(m) {
			continue
		}
		if err := lo.d.session.heed.wanted(); err != nil {
			return nil, nil, err
		}
		if why := generated(&m); why != "" {
			gaps = append(gaps, syscallsites.Gap{Number: syscallsites.AnyNumber, Why: why})
			continue
		}
		found, unknown, err := lo.callSitesIn(&m)
		if err != nil {
			gaps = append(gaps, syscallsites.Gap{Number: syscallsites.AnyNumber, Why: fmt.Sprintf("the code of %s can't be read: %v", mappingName(&m), err)})
			continue
		}
		gaps = append(gaps, unknown...)
		for _, site := range found {
			if err := lo.d.session.heed.wanted(); err != nil {
				return nil, nil, err
			}
			if err := lo.checkCallSite(site); err != nil {
				gaps = append(gaps, syscallsites.Gap{Number: site.Number, Why: fmt.Sprintf("%s can't be probed: %v", lo.placeOf(site.Insn), err)})
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
		return fmt.Sprintf("the target makes code itself, in %s at %s", mappingName(m), m.Range.Start)
	}
	return ""
}

func (lo *looks) placeOf(at arch.Addr) string {
	if l, ok := lo.d.linker.symbols().Lookup(at); ok {
		return l.String()
	}
	return at.String()
}

// checkCallSite says why site can't have a probe.
func (lo *looks) checkCallSite(site syscallsites.Site) error {
	if err := lo.checkMapping(site.Insn); err != nil {
		return err
	}
	if m, err := lo.codeMapping(site.Insn); err == nil && m.Path == "[vdso]" {
		return fmt.Errorf("%w: the kernel's own code (vdso)", ErrBlacklisted)
	}
	_, _, err := lo.checkAddress(site.At)
	return err
}

// callSitesIn finds the places in one mapping.
func (lo *looks) callSitesIn(m *procfs.Mapping) (sites []syscallsites.Site, gaps []syscallsites.Gap, err error) {
	search := lo.callSearch(m)
	search.Unknown = true
	found, err := search.Run()
	if err != nil {
		return nil, nil, err
	}
	for _, f := range found.Functions {
		for i, number := range f.Numbered() {
			site := f.Site(i, number)
			if lo.isSigreturn(site.Insn) {
				site = syscallsites.Site{Insn: site.Insn, At: site.Insn, Number: syscallsites.SigreturnNumber(host.Arch)}
			}
			sites = append(sites, site)
		}
	}
	if gaps = found.Gaps; found.Short != "" {
		gaps = append(gaps, syscallsites.Gap{Number: syscallsites.AnyNumber, Why: found.Short})
	}
	return sites, gaps, nil
}

// jumpLen is the length in bytes of the jump to a detour, 0 where there are none.
func jumpLen() int {
	if host.Detours == nil {
		return 0
	}
	return host.Detours.JumpLen()
}

// callSearch is a search of one mapping.
func (lo *looks) callSearch(m *procfs.Mapping) syscallsites.Search {
	return syscallsites.Search{Host: host.Arch, JumpLen: jumpLen(), Program: searched{lo.d}, Range: lo.backed(m), Name: mappingName(m)}
}

// searched is a domain's program as a search sees it.
type searched struct{ d *domain }

func (p searched) Original(at arch.Addr, b []byte) error { return p.d.text.Original(at, b) }

func (p searched) Know(at arch.Addr) error { return p.d.readSymbols(at) }

func (p searched) Wanted() error { return p.d.session.heed.wanted() }

func (p searched) Function(at arch.Addr) (arch.Range, bool) { return p.d.linker.symbols().Function(at) }

func (p searched) Symbol(at arch.Addr) (name string, start arch.Addr, size uint64, known bool) {
	l, ok := p.d.linker.symbols().Lookup(at)
	return l.Symbol.Name, at - arch.Addr(l.Offset), l.Symbol.Size, ok
}

func (p searched) IsData(at arch.Addr) bool {
	_, ok := p.d.linker.symbols().DataInText(at)
	return ok
}

func (p searched) Place(at arch.Addr) string { return p.d.look.placeOf(at) }

// backed is what of a mapping's range the file that it maps has: behind a file's end there is nothing to be read, or executed.
func (lo *looks) backed(m *procfs.Mapping) arch.Range {
	r := m.Range
	f := lo.d.neighbours.mappedFile(m)
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
