package symbols

import (
	"strings"

	"github.com/gokprobe/gokprobe/arch"
)

// GoItab is an interface table that Go's linker has made (runtime.itab). The first word of an
// interface value that holds a Type is its address. The runtime makes no second table for
// the same pair of types, so interface values that we make compare equal to the target's own.
type GoItab struct {
	Type      string // with the full import path: *io/fs.PathError, syscall.Errno
	Interface string // error, net.Error …
	Addr      arch.Addr
}

// Interface tables' symbols: go:itab.TYPE,INTERFACE, with a dot before Go 1.20.
var itabPrefixes = []string{"go:itab.", "go.itab."}

// GoItabs lists the interface tables for an interface, in the module that contains a. There are
// none if that is not Go, or has lost its symbols. It goes through all symbols.
func (t *Table) GoItabs(a arch.Addr, iface string) []GoItab {
	m := t.module(a)
	if m == nil || m.img == nil {
		return nil
	}
	var out []GoItab
	st := m.symbols()
	for i := range st.entries {
		e := &st.entries[i]
		if raw := st.rawName(e); e.kind != kindObject || len(raw) < 3 || string(raw[:2]) != "go" {
			continue
		}
		name := st.linkage(e)
		for _, prefix := range itabPrefixes {
			rest, ok := strings.CutPrefix(name, prefix)
			if typ, found := strings.CutSuffix(rest, ","+iface); ok && found {
				out = append(out, GoItab{typ, iface, m.addr(e.value)})
			}
		}
	}
	return out
}

// GoVariables finds package-level variables by name, in the module that contains a: with the
// full import path or the end of it that begins at a slash (sql.ErrNoRows for
// database/sql.ErrNoRows). It goes through all symbols.
func (t *Table) GoVariables(a arch.Addr, name string) []Symbol {
	m := t.module(a)
	if m == nil || m.img == nil {
		return nil
	}
	var out []Symbol
	st := m.symbols()
	for i := range st.entries {
		e := &st.entries[i]
		if e.kind != kindObject || e.size == 0 {
			continue
		}
		if l := st.linkage(e); l == name || strings.HasSuffix(l, "/"+name) {
			out = append(out, m.symbol(e))
		}
	}
	return out
}

// GoReceiver finds a Go type by its name with the full import path, in the module that
// contains a. It finds the type as the receiver of a method; ok is false if debug information
// describes no method of it.
func (t *Table) GoReceiver(a arch.Addr, name string) (typ Type, ok bool) {
	m := t.module(a)
	if m == nil || m.img == nil {
		return Type{}, false
	}
	prefix := name + "."
	if base, pointer := strings.CutPrefix(name, "*"); pointer {
		dot := strings.LastIndexByte(base, '.')
		prefix = base[:dot+1] + "(*" + base[dot+1:] + ")."
	}
	st := m.symbols()
	for i := range st.entries {
		e := &st.entries[i]
		if e.kind != kindFunc || !strings.HasPrefix(st.linkage(e), prefix) {
			continue
		}
		params, err := t.Params(m.addr(e.value))
		if err == nil && len(params) > 0 && params[0].Type == name {
			return params[0].TypeOf(), true
		}
	}
	return Type{}, false
}
