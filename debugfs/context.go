package debugfs

import (
	"context"
	"errors"
	"syscall"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/debugfs/dynevent"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/symbols"
)

// context is what the parser asks the process.
func (t *Tree) context() dynevent.Context {
	return dynevent.Context{Register: host.RegisterName, AtEntry: t.atEntry, Place: t.checkPlace, File: t.regular, Data: t.hasData, Function: t.prototype}
}

// atEntry tells whether d is where a function begins, so that $argN are its arguments.
func (t *Tree) atEntry(d *dynevent.Definition) bool {
	table := t.session.Symbols()
	at := arch.Addr(d.Addr)
	switch {
	case d.Symbol != "" && d.Offset == 0:
		return true
	case d.Symbol != "":
		found, err := table.Resolve(context.Background(), symbolName(d))
		if err != nil {
			return false
		}
		at = found[0].Addr.Add(int64(d.Offset))
	case d.Family == dynevent.Uprobe:
		var ok bool
		if at, ok = t.mapped(d.Path, d.FileOffset); !ok {
			return true // nobody knows yet
		}
	}
	f, known := table.Function(at)
	return known && (at == f.Start || at == f.Start+t.landing(f.Start))
}

// landing is the bytes at a function's entry that indirect branches land on, which a probe of the entry
// stands behind.
func (t *Tree) landing(entry arch.Addr) arch.Addr {
	code := make([]byte, host.Arch.MaxInsnLen())
	for len(code) > 0 && t.session.Peek(entry, code) != nil {
		code = code[:len(code)/2] // fewer may be there
	}
	return arch.Addr(host.Arch.EntrySkip(code))
}

// checkPlace tells why a symbol can't be probed, as far as names say it. One of a library that is not
// loaded is waited for (G13).
func (t *Tree) checkPlace(d *dynevent.Definition) error {
	if d.Symbol == "" {
		return nil
	}
	name := symbolName(d)
	_, err := t.resolve(name)
	errno := syscall.EINVAL
	switch {
	case err == nil && d.Kind == dynevent.Return && !t.atEntry(d):
		return d.Error("BAD_RETPROBE", dynevent.PartPlace)
	case err == nil, errors.Is(err, symbols.ErrUnknownModule) && symbols.Library(name) != "":
		return nil
	case errors.Is(err, symbols.ErrAmbiguous):
		return d.Error("NON_UNIQ_SYMBOL", dynevent.PartPlace)
	case errors.Is(err, syscall.ENOENT):
		errno = syscall.ENOENT
	}
	return d.ErrorAs("BAD_PROBE_ADDR", dynevent.PartPlace, errno)
}
