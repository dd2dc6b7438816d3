package symbols

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/gokprobe/gokprobe/internal/escape"
	"github.com/gokprobe/gokprobe/internal/procfs"
)

// aliases are the names under which the process runs its executable: argv[0] and comm. They
// differ from the file's name if it was run by a link. A process may rewrite both ("nginx:
// master process …"), so only the first word counts.
func (t *Table) aliases() []string {
	var out []string
	add := func(s string) {
		word, _, _ := strings.Cut(s, " ")
		word = strings.TrimSuffix(strings.TrimPrefix(path.Base(word), "-"), ":") // a login shell's dash
		if word != "" && word != "." && word != "/" && !slices.Contains(out, word) {
			out = append(out, word)
		}
	}
	if argv, err := procfs.Cmdline(t.pid); err == nil && len(argv) > 0 {
		add(argv[0])
	}
	if comm, err := procfs.Comm(t.pid, 0); err == nil {
		add(comm)
	}
	return out
}

// modulesFor is modulesNamed, with an error that suggests names if there are none. To look for these takes longer than all else here.
func (s *snapshot) modulesFor(name string) ([]*Module, error) {
	found, several := s.modulesNamed(name)
	switch {
	case len(several) > 0:
		return nil, errNear(ErrUnknownModule, name, "", moduleNames(several))
	case len(found) == 0 && name != "":
		return nil, s.unknownModule(name)
	}
	return found, nil
}

// modulesNamed returns the modules that a base name or a path stands for, all of
// them for the empty name. If no name matches exactly, it tries aliases of the executable, the
// DT_SONAME of libraries (libc.so.6, where the file is called libc-2.31.so), and
// the file to which a path leads by links. Last it tries names cut at a dot or dash (libc for
// libc.so.6), if only one module has such a name; else these are several. A pattern with * or ?
// stands for all modules that have such a base name, path or DT_SONAME.
func (s *snapshot) modulesNamed(name string) (found, several []*Module) {
	if name == "" {
		return s.named, nil
	}
	var exact, alias, prefix []*Module
	if isModuleGlob(name) {
		for _, m := range s.named {
			if m.matches(name) {
				exact = append(exact, m)
			}
		}
		return exact, nil
	}
	for _, m := range s.named {
		switch {
		case m.isExactly(name):
			exact = append(exact, m)
		case m.isAlso(name):
			alias = append(alias, m)
		case m.begins(name):
			prefix = append(prefix, m)
		}
	}
	if len(exact) == 0 && path.IsAbs(name) {
		exact = s.linkedFrom(name)
	}
	if len(exact) > 0 {
		return exact, nil
	}
	if len(alias) > 0 {
		return alias, nil
	}
	if len(prefix) == 1 {
		return prefix, nil
	}
	return nil, prefix
}

func (m *Module) isExactly(name string) bool {
	return m.Name == name || m.Path == name || m.Kind == KindVDSO && (name == "vdso" || name == "linux-vdso.so.1")
}

func (m *Module) isAlso(name string) bool {
	return slices.Contains(m.aliases, name) || m.soname() == name
}

// isModuleGlob tells that the module part of a probe specification is a pattern. Brackets are part of a name there: [vdso].
func isModuleGlob(name string) bool { return strings.ContainsAny(name, "*?") }

func (m *Module) matches(pattern string) bool {
	soname := m.soname()
	return matchesGlob(pattern, m.Name) || matchesGlob(pattern, m.Path) || soname != "" && matchesGlob(pattern, soname)
}

func (m *Module) begins(name string) bool {
	return slices.ContainsFunc([]string{m.Name, m.soname()}, func(whole string) bool {
		return len(whole) > len(name) && strings.HasPrefix(whole, name) && strings.IndexByte(".-", whole[len(name)]) >= 0
	})
}

// soname is the name by which other files ask for a library; empty if it has none.
func (m *Module) soname() string {
	if m.img == nil || m.Kind != KindLibrary && m.Kind != KindInterpreter {
		return ""
	}
	return m.img.soname()
}

// IsCalled reports whether the module part of a probe specification may mean m: its base name or path, a path that leads there by
// links, a library's DT_SONAME, what one of these names begins with, or a pattern of * and ? for such a name.
func (m *Module) IsCalled(name string) bool {
	if name == "" {
		return false
	}
	if isModuleGlob(name) {
		return m.matches(name)
	}
	if m.isExactly(name) || m.isAlso(name) || m.begins(name) {
		return true
	}
	if !path.IsAbs(name) || m.table == nil {
		return false
	}
	return slices.ContainsFunc(m.table.snap.Load().linkedFrom(name), m.Same)
}

// linkedFrom returns the modules whose file a path leads to by links: /lib is /usr/lib on many systems.
func (s *snapshot) linkedFrom(name string) (found []*Module) {
	if s.files == nil {
		return nil
	}
	info, err := s.files.Stat(name)
	if err != nil {
		return nil
	}
	for _, m := range s.named {
		if !path.IsAbs(m.Path) {
			continue
		}
		if its, err := s.files.Stat(m.Path); err == nil && its.Same(info) {
			found = append(found, m)
		}
	}
	return found
}

// NearModules names the modules whose names are most like that of a library which is not mapped. It names none if a file of that name lies beside a module: that is
// probably meant, and may come later.
func (t *Table) NearModules(library string) []string {
	s := t.snap.Load()
	near := s.nearModules(library)
	if len(near) == 0 || t.files == nil || strings.ContainsRune(library, '/') {
		return near
	}
	looked := map[string]bool{}
	for _, m := range s.named {
		dir := path.Dir(m.Path)
		if looked[dir] || !path.IsAbs(dir) {
			continue
		}
		looked[dir] = true
		if _, err := t.files.Stat(path.Join(dir, library)); err == nil {
			return nil
		}
	}
	return near
}

// nearModules names the modules whose names are most like name.
func (s *snapshot) nearModules(name string) []string {
	return nearest(name, func(yield func(string) bool) {
		for _, m := range s.named {
			stem := m.Name // libc of libc.so.6
			if i := strings.IndexAny(m.Name, ".-"); i > 0 {
				stem = m.Name[:i]
			}
			for _, n := range append([]string{m.Name, stem, m.soname()}, m.aliases...) {
				if n != "" && !yield(n) {
					return
				}
			}
		}
	})
}

// unknownModule is the error for an unknown module name. It suggests the nearest names, or lists
// a few modules.
func (s *snapshot) unknownModule(name string) error {
	near := s.nearModules(name)
	if len(near) > 0 || len(s.named) == 0 {
		return errNear(ErrUnknownModule, name, "", near)
	}
	const most = 5
	readable := slices.DeleteFunc(slices.Clone(s.named), func(m *Module) bool { return m.Err != nil })
	list := strings.Join(moduleNames(readable[:min(most, len(readable))]), ", ")
	if rest := len(readable) - most; rest > 0 {
		list += fmt.Sprintf(" and %d more", rest)
	}
	return fmt.Errorf("%w: %s; the process has %s", ErrUnknownModule, escape.Quote(name), list)
}

func moduleNames(mods []*Module) []string {
	var out []string
	for _, m := range mods {
		out = append(out, m.Name)
	}
	return out
}
