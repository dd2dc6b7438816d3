package debugfs

import (
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/escape"
	"github.com/gokprobe/gokprobe/symbols"
)

// errorType is how a function tells that it has failed (include/asm-generic/error-injection.h). The kernel's functions
// are marked with it; here it is what the declared result suggests. TRUE is none of them: what a program's functions
// return as a bool is false when they have failed, as often as not.
type errorType uint8

const (
	anyError  errorType = iota // not known
	nullError                  // nothing is returned
	errnoError
	errnoNullError
	unreadError // was not looked at
)

// maxErrno is the largest number that stands for an error (include/linux/err.h, MAX_ERRNO).
const maxErrno = 4095

func (e errorType) String() string { return [...]string{"ANY", "NULL", "ERRNO", "ERRNO_NULL", "?"}[e] }

// values tells which values may be returned.
func (e errorType) values() string {
	return [...]string{"anything", "0", "-1 to -4095", "0 or -1 to -4095", ""}[e]
}

// initial is the value that is returned unless retval says otherwise
// (adjust_error_retval).
func (e errorType) initial() uint64 {
	if e == errnoError {
		return negated(syscall.EINVAL)
	}
	return 0
}

func (e errorType) allows(v uint64) bool {
	switch e {
	case nullError:
		return v == 0
	case errnoError:
		return v >= negated(maxErrno)
	case errnoNullError:
		return v == 0 || v >= negated(maxErrno)
	}
	return true
}

func negated(e syscall.Errno) uint64 { return -uint64(e) }

// errorType is that of the function at fn, by its debug information.
func (t *Tree) errorType(fn arch.Addr) errorType {
	table := t.session.Symbols()
	if table.GoFunction(fn) {
		return anyError
	}
	results, err := table.Results(fn)
	switch {
	case err != nil || len(results) > 1:
		return anyError
	case len(results) == 0:
		return nullError
	}
	switch results[0].TypeOf().Kind() {
	case reflect.Pointer:
		return errnoNullError
	case reflect.Int:
		return errnoError
	}
	return anyError
}

// maxTyped is how many functions the list of those that can be injected says types of: reading them takes 50 µs and
// 2 KB each.
const maxTyped = 20000

// injectable is error_injection/list: every function, and how it fails.
func (t *Tree) injectable() *node { return shows(0o444, t.failing.injectable.text) }

// injectable remembers the list for as long as no module comes or goes: making it takes a while.
type injectable struct {
	tree    *Tree
	mu      sync.Mutex
	modules []*symbols.Module
	list    string
}

func (l *injectable) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if modules := l.tree.session.Symbols().Modules(); l.list == "" || !slices.Equal(modules, l.modules) {
		l.modules, l.list = modules, l.tree.listFunctions()
	}
	return l.list
}

func (t *Tree) listFunctions() string {
	table := t.session.Symbols()
	functions := slices.DeleteFunc(table.Symbols(""), func(s symbols.Symbol) bool { return !s.Func })
	typed := 0
	for _, s := range functions {
		if !table.GoFunction(s.Addr) {
			typed++
		}
	}
	var b strings.Builder
	for _, s := range functions {
		kind := unreadError
		if typed <= maxTyped {
			kind = t.errorType(s.Addr)
		}
		b.WriteString(escape.Line(spec(s)) + "\t" + kind.String() + "\n")
	}
	return b.String()
}

// spec is the name by which a function can be injected.
func spec(s symbols.Symbol) string {
	if s.Module == nil || s.Module.Kind == symbols.KindExecutable {
		return s.Name
	}
	return s.Module.Name + ":" + s.Name
}
