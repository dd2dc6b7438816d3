package kprobes

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/symbols"
)

// errno lies in thread-local storage, where only the C library knows: its functions and the macro of errno.h ask
// __errno_location. That is a load and an addition, which we do as the function does; should one do
// more, the thread calls it.

// errnoFunctions are its names: of glibc, musl and uClibc; of bionic.
var errnoFunctions = []string{"__errno_location", "__errno"}

// SetErrno makes e the value of errno in the thread that hit: that of the C library which the probed function
// uses. The error matches ErrNoErrno if there is none, as in a Go program without cgo.
func (r *Regs) SetErrno(e unix.Errno) error {
	at, err := r.errno()
	if err == nil {
		err = r.WriteMemory(at, binary.LittleEndian.AppendUint32(nil, uint32(e)))
	}
	if err != nil {
		return fmt.Errorf("setting errno of thread %d: %w", r.TID(), err)
	}
	return nil
}

// Errno is the value of errno in the thread that hit. The errors are those of SetErrno.
func (r *Regs) Errno() (unix.Errno, error) {
	var b [4]byte
	at, err := r.errno()
	if err == nil {
		err = r.ReadMemory(at, b[:])
	}
	if err != nil {
		return 0, fmt.Errorf("reading errno of thread %d: %w", r.TID(), err)
	}
	return unix.Errno(binary.LittleEndian.Uint32(b[:])), nil
}

// errno is where it lies.
func (r *Regs) errno() (arch.Addr, error) {
	ts := r.inHandler()
	if ts == nil {
		return 0, ErrNotInHandler
	}
	near := r.IP()
	if ts.site != nil {
		near = ts.site.addr // a handler may have changed the IP
	}
	fn, err := r.domain.errnoFunction(near)
	if err != nil {
		return 0, err
	}
	if r.ThreadPointer() == 0 {
		return 0, errors.New("the thread has no thread-local storage yet")
	}
	var at uint64
	if err = arch.ErrNotPlain; host.Evaluator != nil {
		at, err = host.Evaluator.Evaluate(r.Regs, rawMemory{r}, fn)
	}
	if errors.Is(err, arch.ErrNotPlain) {
		at, err = r.Call(fn)
	}
	return arch.Addr(at), err
}

// errnoAt is the functions that tell where errno is, by the module that asks; 0 if there is none.
type errnoAt map[*symbols.Module]arch.Addr

// errnoFunction is the one that code at near has its errno from.
func (d *domain) errnoFunction(near arch.Addr) (arch.Addr, error) {
	var asks *symbols.Module
	if loc, ok := d.linker.symbols().Lookup(near); ok {
		asks = loc.Symbol.Module
	}
	fn, known := d.linker.errnoAt[asks]
	if !known {
		fn = d.findErrno(asks)
		if d.linker.errnoAt == nil {
			d.linker.errnoAt = errnoAt{}
		}
		d.linker.errnoAt[asks] = fn
	}
	if fn == 0 {
		return 0, ErrNoErrno
	}
	return fn, nil
}

// findErrno prefers the module's own; then the executable's, as the dynamic linker does; then that of a
// library which looks like C's.
func (d *domain) findErrno(asks *symbols.Module) arch.Addr {
	var found []symbols.Symbol
	for _, name := range errnoFunctions {
		locs, err := d.linker.symbols().Resolve(context.Background(), name)
		if err != nil {
			continue // there is none
		}
		for _, loc := range locs {
			if loc.Symbol.Module != nil && loc.Symbol.Func && loc.Offset == 0 {
				found = append(found, loc.Symbol)
			}
		}
	}
	for _, fits := range []func(m *symbols.Module) bool{
		func(m *symbols.Module) bool { return m == asks },
		func(m *symbols.Module) bool { return m.Kind == symbols.KindExecutable },
		func(m *symbols.Module) bool {
			return strings.HasPrefix(m.Name, "libc.") || strings.HasPrefix(m.Name, "libc-")
		},
		func(*symbols.Module) bool { return true },
	} {
		if i := slices.IndexFunc(found, func(s symbols.Symbol) bool { return fits(s.Module) }); i >= 0 {
			return found[i].Addr
		}
	}
	return 0
}
