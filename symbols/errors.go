package symbols

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/escape"
)

// Why a name, an address or a line can't be resolved. Where the kernel has an
// errno for the same refusal, errors.Is matches it too.
var (
	// ErrUnknownSymbol: no module defines the name. It matches ENOENT, as
	// register_kprobe has returned since Linux 6.9.
	ErrUnknownSymbol = fmt.Errorf("unknown symbol%w", quiet{unix.ENOENT})
	// ErrUnknownModule: no file of that base name is mapped. It matches ENOENT.
	ErrUnknownModule = fmt.Errorf("unknown module%w", quiet{unix.ENOENT})
	// ErrAmbiguous: the name stands for several different functions. It matches
	// EADDRNOTAVAIL, the kernel's answer for a name that is not unique.
	ErrAmbiguous = fmt.Errorf("ambiguous symbol%w", quiet{unix.EADDRNOTAVAIL})
	// ErrNotMapped: the address lies in no module. It matches EINVAL.
	ErrNotMapped = fmt.Errorf("address in no mapping%w", quiet{unix.EINVAL})
	// ErrNotExecutable: the address is mapped, but not as code. It matches EINVAL.
	ErrNotExecutable = fmt.Errorf("address is not executable%w", quiet{unix.EINVAL})
	// ErrNotCode: the name is a variable. It matches EINVAL.
	ErrNotCode = fmt.Errorf("not a function%w", quiet{unix.EINVAL})
	// ErrBadSpec: the text is no probe specification. It matches EINVAL.
	ErrBadSpec = fmt.Errorf("bad probe specification%w", quiet{unix.EINVAL})
	// ErrNoLines: the module has no DWARF line table.
	ErrNoLines = fmt.Errorf("no line information%w", quiet{unix.ENOENT})
	// ErrNoDebugInfo: the module has no DWARF at all, and no debug file was found.
	// An error that matches it also matches ErrNoLines.
	ErrNoDebugInfo = errors.New("no debug information")
	// ErrNoLine: there is a line table, but no code for the line.
	ErrNoLine = fmt.Errorf("no code at the line%w", quiet{unix.ENOENT})
	// ErrNoParams: no debug information describes the function's parameters.
	ErrNoParams = errors.New("no parameter information")
	// ErrUnknownSize: the end of the function is recorded nowhere.
	ErrUnknownSize = errors.New("unknown function size")
	// ErrIFuncUnbound: the dynamic linker has not chosen an implementation yet.
	ErrIFuncUnbound = errors.New("implementation not chosen yet")
	// ErrNotELF: the file is no 64-bit little-endian ELF file for x86-64.
	ErrNotELF = errors.New("not an x86-64 ELF file")
)

// quiet adds an errno to a sentinel's chain without adding words to its text.
type quiet struct{ errno unix.Errno }

func (quiet) Error() string   { return "" }
func (q quiet) Unwrap() error { return q.errno }

// AmbiguousError lists what a name may stand for. It matches ErrAmbiguous.
type AmbiguousError struct {
	Spec       string
	Candidates []Location
}

// maxListed bounds the candidates that an error's sentence names.
const maxListed = 12

func (e *AmbiguousError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s names %d different functions, choose one by module:name, file:line or address: ", escape.Quote(e.Spec), len(e.Candidates))
	for i, c := range e.Candidates {
		if i == maxListed {
			fmt.Fprintf(&b, ", and %d more", len(e.Candidates)-maxListed)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(describe(c, e.moduleName(c.Symbol.Module)))
	}
	return b.String()
}

// Unwrap makes errors.Is(e, ErrAmbiguous) true.
func (e *AmbiguousError) Unwrap() error { return ErrAmbiguous }

// moduleName is m's base name, or its path where another candidate's module is
// called the same.
func (e *AmbiguousError) moduleName(m *Module) string {
	if m == nil {
		return ""
	}
	for _, c := range e.Candidates {
		if o := c.Symbol.Module; o != nil && o.Name == m.Name && o.Path != m.Path {
			return m.Path
		}
	}
	return m.Name
}

// describe is one candidate: where it is and how to name it.
func describe(c Location, module string) string {
	name := c.Symbol.Name
	if full := demangleFull(c.Symbol.Linkage); full != "" {
		name = full
	}
	s := name + " at " + c.Addr.String()
	if module != "" {
		s = module + ":" + s
	}
	if c.File != "" {
		s += fmt.Sprintf(" (%s:%d)", c.File, c.Line)
	}
	return s
}

func errNotMapped(a arch.Addr) error {
	return fmt.Errorf("%w: %s", ErrNotMapped, a)
}

// errNear is sentinel with the name in question and its nearest neighbours.
func errNear(sentinel error, name, where string, near []string) error {
	text := escape.Quote(name)
	if where != "" {
		text += " in " + where
	}
	if len(near) > 0 {
		text += ", did you mean " + strings.Join(near, " or ")
	}
	return fmt.Errorf("%w: %s", sentinel, text)
}
