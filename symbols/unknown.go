package symbols

import (
	"fmt"
	"strings"

	"github.com/gokprobe/gokprobe/internal/escape"
)

// unknown is the error for a specification that names nothing. It is about the most plausible
// reading. With explain it suggests names that exist.
func (t *Table) unknown(s *snapshot, queries []query, explain bool) error {
	q := queries[len(queries)-1]
	where := q.module
	if mods, _ := s.modulesNamed(q.module); len(mods) == 0 && q.module != "" && !explain {
		return errNear(ErrUnknownModule, q.module, "", nil)
	}
	mods, err := s.modulesFor(q.module)
	if err != nil {
		return err
	}
	if q.module != "" {
		where = mods[0].Name
	}
	if !explain {
		return errNear(ErrUnknownSymbol, q.name, where, nil)
	}
	if isGlob(q.name) {
		err := errNear(ErrUnknownSymbol, q.name, where, nil)
		return fmt.Errorf("%w; this is a pattern as in a shell, in which * stands for any text and ? for one character", withStripped(err, mods))
	}
	for _, m := range mods {
		if v, ok := m.inlinedAway(t, q.name); ok {
			return fmt.Errorf("%w: %s: %s", ErrUnknownSymbol, escape.Quote(q.name), v)
		}
	}
	if n := instances(mods, q.name); n > 0 {
		return fmt.Errorf("%w: %q is generic; %q stands for its %d instances", ErrUnknownSymbol, q.name, q.name+"[...]", n)
	}
	err = withStripped(errNear(ErrUnknownSymbol, q.name, where, nearSymbols(mods, q.name)), mods)
	for _, m := range mods {
		if refused := m.Refused(); len(refused) > 0 {
			return fmt.Errorf("%w; %w", err, refused[0])
		}
	}
	return err
}

func (v vanished) String() string {
	switch {
	case v.calls == 0:
		return "the compiler has left no code of it"
	case v.file == "":
		return fmt.Sprintf("the compiler has inlined every call of it, at %s, so that it has no code of its own; probe what it calls", countedPlaces(v.calls))
	}
	return fmt.Sprintf("the compiler has inlined every call of it, at %s, so that it has no code of its own; probe a line of it, such as %s:%d, which stands for %s, or what it calls",
		countedPlaces(v.calls), v.file, v.line, countedPlaces(v.places))
}

func countedPlaces(n int) string {
	if n == 1 {
		return "one place"
	}
	return fmt.Sprintf("%d places", n)
}

// instances counts the instances of a generic function of Go, which is named without its types.
func instances(mods []*Module, name string) int {
	if !strings.Contains(name, ".") || strings.Contains(name, "[") {
		return 0
	}
	found, _ := findSpelling(mods, name+"[...]")
	return len(onlyCode(found))
}

// withStripped adds to err that a file is stripped, or can't be read, if that probably is the reason why the name is unknown. The file is
// the only one that was searched, or the executable.
func withStripped(err error, mods []*Module) error {
	for _, m := range mods {
		if len(mods) > 1 && m.Kind != KindExecutable || m.img == nil || !m.symbols().isStripped() || len(m.Refused()) > 0 {
			continue
		}
		if m.img.unopened != nil {
			return fmt.Errorf("%w; the file of %s can't be read, and its memory names %s: %w", err, m.Name, countedFunctions(m.symbols().functions()), m.img.unopened)
		}
		id := "it has no build ID"
		if m.BuildID != "" {
			id = "build ID " + m.BuildID
		}
		return fmt.Errorf("%w; %s is stripped, and names %s; install its debug package (%s)", err, m.Name, countedFunctions(m.symbols().functions()), id)
	}
	return err
}

func countedFunctions(n int) string {
	switch n {
	case 0:
		return "no function"
	case 1:
		return "one function"
	}
	return fmt.Sprintf("%d functions", n)
}

// isStripped reports whether only exported names are known, those that other files may use.
func (s *symtab) isStripped() bool {
	for _, b := range s.blobs {
		if b.source != SourceDynsym && b.source != SourceFrames {
			return false
		}
	}
	return true
}

// functions counts the functions that have names.
func (s *symtab) functions() int {
	n := 0
	for i := range s.entries {
		if s.entries[i].isCode() {
			n++
		}
	}
	return n
}
