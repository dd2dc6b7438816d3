package kprobes

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/escape"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/symbols"
)

// BlacklistEntry is code in which the user wants no probe.
type BlacklistEntry struct {
	Range arch.Range
	Name  string // of the function; empty for a bare range
	spec  string // what the user wrote
}

// Blacklist refuses probes in the functions that specs name from now on, as the kernel's
// NOKPROBE_SYMBOL does: any SPEC of the command, globs as well. Parts that the compiler has
// split off a function (foo.cold, foo.isra.0) are refused with it. Probes that are registered
// already stay. After an error nothing has changed: it matches ErrUnknownSymbol if there is
// no such function, ErrNotExecutable if it is no code.
func (s *Session) Blacklist(specs ...string) error {
	var added []BlacklistEntry
	for _, spec := range specs {
		entries, err := s.registry.blacklisted(spec) // reads symbols: not on the tracer's thread
		if err != nil {
			return s.do(func() error { return fmt.Errorf("blacklisting %q: %w", spec, err) })
		}
		added = append(added, entries...)
	}
	return s.do(func() error {
		s.registry.blacklist = append(s.registry.blacklist, added...)
		return nil
	})
}

// BlacklistRange refuses probes at addresses in r. It is forgotten when the process runs
// another program.
func (s *Session) BlacklistRange(r arch.Range) error {
	return s.do(func() error {
		s.registry.blacklist = append(s.registry.blacklist, BlacklistEntry{Range: r})
		return nil
	})
}

// BlacklistEntries returns the entries that were added to the blacklist, by address.
func (s *Session) BlacklistEntries() []BlacklistEntry {
	var list []BlacklistEntry
	_ = s.tracer.Do(func() { list = slices.Clone(s.registry.blacklist) })
	list = slices.DeleteFunc(list, func(e BlacklistEntry) bool { return e.Range.Len() == 0 })
	slices.SortStableFunc(list, func(a, b BlacklistEntry) int { return cmp.Compare(a.Range.Start, b.Range.Start) })
	return list
}

func (rg *registry) blacklisted(spec string) ([]BlacklistEntry, error) {
	found, err := rg.s.table.Resolve(context.Background(), spec)
	switch {
	case errors.Is(err, symbols.ErrUnknownSymbol), errors.Is(err, symbols.ErrUnknownModule):
		return nil, fmt.Errorf("%w: %w", ErrUnknownSymbol, err)
	case errors.Is(err, symbols.ErrNotExecutable), errors.Is(err, symbols.ErrNotCode):
		return nil, fmt.Errorf("%w: %w", ErrNotExecutable, err)
	case err != nil:
		return nil, err
	}
	var entries []BlacklistEntry
	for _, loc := range found {
		r, known := rg.s.table.Function(loc.Addr)
		if !known {
			r = arch.Range{Start: loc.Addr, End: loc.Addr + 1}
		}
		entries = append(entries, BlacklistEntry{r, loc.Symbol.Linkage, spec})
	}
	return entries, nil
}

// renewBlacklist looks names up again, in a new program or after modules have changed. One that
// is not there may come with a library.
func (rg *registry) renewBlacklist(sameProgram bool) {
	var renewed []BlacklistEntry
	var last string
	for _, e := range rg.blacklist {
		if e.spec == "" && sameProgram {
			renewed = append(renewed, e)
		}
		if e.spec == "" || e.spec == last {
			continue
		}
		last = e.spec
		entries, err := rg.blacklisted(e.spec)
		if err != nil {
			entries = []BlacklistEntry{{spec: e.spec}}
		}
		renewed = append(renewed, entries...)
	}
	rg.blacklist = renewed
}

// checkBlacklist refuses code of the target that must not be probed (A20, A21, A22).
func (lo *looks) checkBlacklist(at arch.Addr, m procfs.Mapping) error {
	if m.Path == "[vdso]" {
		return fmt.Errorf("%w: the vdso is the kernel's, and what it is called for here goes through it", ErrBlacklisted)
	}
	s := lo.d.session
	if len(s.registry.blacklist) == 0 {
		return nil
	}
	loc, _ := lo.d.linker.symbols().Lookup(at)
	for _, e := range s.registry.blacklist {
		if e.Range.Contains(at) || e.Name != "" && e.Name == unsplit(loc.Symbol.Linkage) {
			return fmt.Errorf("%w: %s is on the session's blacklist", ErrBlacklisted, e)
		}
	}
	return nil
}

// String prints e as the kernel's blacklist file does.
func (e BlacklistEntry) String() string {
	return strings.TrimSuffix(fmt.Sprintf("0x%x-0x%x\t%s", uint64(e.Range.Start), uint64(e.Range.End), escape.Line(e.Name)), "\t")
}

// unsplit is the name of the function that a part of it, made by GCC, LLVM or BOLT, belongs to; the
// kernel cuts at the first dot as well, but a Go function has one in its name.
func unsplit(linkage string) string {
	for _, suffix := range [...]string{".isra.", ".constprop.", ".part.", ".cold", ".warm", ".llvm.", ".lto_priv."} {
		if base, _, ok := strings.Cut(linkage, suffix); ok {
			linkage = base
		}
	}
	return linkage
}

// isSigreturn recognizes a call of rt_sigreturn as libraries write it, of either instruction.
// Where there is no call-frame information, libgcc and debuggers tell a signal's frame by
// these bytes.
func (lo *looks) isSigreturn(at arch.Addr) bool {
	call, loads := host.Arch.SyscallInsn(), sigreturnLoads()
	code, err := lo.original(at, host.Arch.MaxInsnLen()+len(call))
	if err != nil {
		return false
	}
	called := bytes.HasPrefix(code, call)
	for _, load := range loads {
		if rest, ok := bytes.CutPrefix(code, load); ok && bytes.HasPrefix(rest, call) {
			return true
		}
		if called {
			before, err := lo.original(at-arch.Addr(len(load)), len(load))
			if err == nil && bytes.Equal(before, load) {
				return true
			}
		}
	}
	return false
}

var sigreturnLoads = sync.OnceValue(func() [][]byte { return host.Arch.SigreturnLoads() })
