package symbols

import (
	"debug/elf"
	"slices"
	"strings"

	"github.com/gokprobe/gokprobe/arch"
)

// unwinders are the functions by which programs begin to read return addresses on their stacks: of libgcc and LLVM's libunwind, and of
// nongnu.org's, which has names of its own for each architecture.
var unwinders = []string{
	"_Unwind_RaiseException", "_Unwind_ForcedUnwind", "_Unwind_Resume", "_Unwind_Resume_or_Rethrow", "_Unwind_Backtrace",
	"unw_init_local", "unw_init_local2", "unw_backtrace", "__unw_init_local", "_Ux86_64_init_local", "_Ux86_64_init_local2",
	"_ULx86_64_init_local", "_ULx86_64_init_local2", "_ULx86_64_tdep_init_local", "backtrace", "__backtrace",
}

// asksCaller are functions that look up who has called them. One that another function jumps to has that one's caller.
var asksCaller = []string{"dlopen", "dlmopen", "dlsym", "dlvsym"}

// ReadersOfReturns returns where functions of m are entered that read return addresses for another purpose than to return.
func (m *Module) ReadersOfReturns() []arch.Addr {
	if m.img == nil {
		return nil
	}
	m.img.readers.Do(func() {
		m.img.readersAt = append(m.functions(unwinders), m.functions(asksCaller)...)
	})
	entries := make([]arch.Addr, len(m.img.readersAt))
	for i, at := range m.img.readersAt {
		entries[i] = m.addr(at)
	}
	return entries
}

// functions returns the link-time addresses of functions of these names.
func (m *Module) functions(names []string) (entries []uint64) {
	st := m.symbols()
	for i := range st.entries {
		e := &st.entries[i]
		if e.kind != kindFunc && e.kind != kindLabel {
			continue
		}
		if slices.ContainsFunc(names, func(name string) bool { return st.isNamed(e, name) }) && !slices.Contains(entries, e.value) {
			entries = append(entries, e.value)
		}
	}
	return entries
}

// HidesUnwinder reports whether m may have an unwinder that it does not name. Such a one asks the C library for the tables of all
// modules, so m imports that function, and neither has nor imports the names of an unwinder. A static executable tells by its
// symbol table alone. Of a module that can't be read nothing is known.
func (m *Module) HidesUnwinder() bool {
	switch {
	case m.Kind == KindVDSO, m.Kind == KindInterpreter, strings.HasPrefix(m.Name, "libc.so"), strings.HasPrefix(m.Name, "libc-"):
		return false // the C library tells others
	case m.img == nil:
		return true
	}
	m.img.hides.Do(func() {
		m.img.hidesOne = len(m.functions(unwinders)) == 0 && m.img.asksForTables(m.Kind == KindExecutable)
	})
	return m.img.hidesOne
}

// asksForTables tells whether img uses the tables of all modules and no unwinder by name, as far as can be told.
func (img *image) asksForTables(executable bool) bool {
	full := img.f.Section(".symtab") != nil
	s := img.f.Section(".dynsym")
	if s == nil || s.Type == elf.SHT_NOBITS {
		return !full
	}
	question := img.f.kept.Open()
	defer question.Close()
	name := img.dynamicNames(question)
	asks, imports := false, false
	for i := uint32(1); uint64(i) < s.Size/symSize; i++ {
		switch n := name(i); {
		case n == "dl_iterate_phdr", n == "_dl_find_object":
			asks = true
		case strings.HasPrefix(n, "_Unwind_"), strings.Contains(n, "unw_"), strings.HasPrefix(n, "_ULx86_64_"), strings.HasPrefix(n, "_Ux86_64_"):
			imports = true
		}
	}
	static := executable && s.Size/symSize <= 1
	return asks && !imports || static && !full
}
