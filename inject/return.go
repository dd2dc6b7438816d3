package inject

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/symbols"
)

// Return makes the call return a value without running its body. With Rule.After the body has run,
// and Return replaces its result.
type Return struct {
	Value int64
	Errno unix.Errno // the thread's errno is set to it; 0 leaves that alone
	// Fails makes the call return, in place of Value, the result with which functions of its
	// type fail: -1, or NULL for a pointer.
	Fails bool
}

func (a Return) String() string {
	switch {
	case a.Fails:
		return "errno " + errnoName(a.Errno)
	case a.Errno != 0:
		return fmt.Sprintf("return %d errno %s", a.Value, errnoName(a.Errno))
	}
	return fmt.Sprintf("return %d", a.Value)
}
func (a Return) ends() bool { return true }

func (a Return) bind(b binding) (effect, error) {
	if b.isCall() {
		return a.bindCall()
	}
	if a.Fails {
		var err error
		if a, err = a.failing(b.place); err != nil {
			return effect{}, err
		}
	}
	n := number(a.Value)
	n.Errno = a.Errno
	return b.returning(n, a.String())
}

// failing is a Return with the value that makes callers look at errno.
func (a Return) failing(p *place) (Return, error) {
	table := p.fault.in.session.Symbols()
	a.Fails = false
	if !p.Waits && table.GoFunction(p.Addr) {
		return a, errors.New("a Go function sets no errno; give the error that it shall return")
	}
	name := p.function()
	if returnsErrno(name) {
		a.Value, a.Errno = int64(a.Errno), 0
		return a, nil
	}
	if !p.Waits {
		if results, err := table.Results(p.Addr); err == nil {
			a.Value, err = failure(results)
			return a, err
		}
	}
	if a.Value = -1; slices.Contains(pointers, name) {
		a.Value = 0
	}
	return a, nil
}

// function is the name of the function, without module and version.
func (p *place) function() string {
	name := p.Name
	if !p.Waits {
		if loc, ok := p.fault.in.session.Symbols().Lookup(p.Addr); ok && loc.Symbol.Linkage != "" {
			name = loc.Symbol.Linkage
		}
	}
	name = name[strings.LastIndexByte(name, ':')+1:]
	name, _, _ = strings.Cut(name, "@")
	return strings.TrimLeft(name, "_")
}

// failure is what a function with these results returns when it fails.
func failure(results []symbols.Param) (int64, error) {
	if len(results) == 0 {
		return 0, nil // nobody looks
	}
	d, err := results[0].Datum()
	if err != nil {
		return 0, fmt.Errorf("it returns %s; say which value: %w", results[0].Type, err)
	}
	switch t := results[0].Type; {
	case d.Shape == symbols.ShapePointer, d.Shape == symbols.ShapeTextPointer:
		return 0, nil
	case t == "bool", t == "_Bool":
		return 0, nil
	case d.Shape == symbols.ShapeSigned, d.Shape == symbols.ShapeUnsigned:
		return -1, nil
	default:
		return 0, fmt.Errorf("it returns %s; say which value", t)
	}
}

// pointers are functions of the C library that fail with NULL and errno. The library seldom has debug information that would
// tell their type. (mmap and shmat return pointers too, but fail with -1.)
var pointers = []string{
	"malloc", "calloc", "realloc", "reallocarray", "memalign", "aligned_alloc", "valloc", "pvalloc", "libc_malloc", "libc_calloc", "libc_realloc",
	"libc_memalign", "strdup", "strndup", "fopen", "fopen64", "fdopen", "freopen", "freopen64", "fmemopen", "open_memstream", "popen", "tmpfile",
	"tmpfile64", "fgets", "opendir", "fdopendir", "readdir", "readdir64", "getcwd", "get_current_dir_name", "getwd", "realpath", "canonicalize_file_name",
	"setlocale", "newlocale", "duplocale", "getpwnam", "getpwuid", "getgrnam", "getgrgid", "gethostbyname", "gethostbyaddr", "getlogin", "ttyname", "ptsname", "ctermid",
	"tempnam", "mkdtemp", "localtime", "gmtime", "asctime", "ctime", "sem_open", "bsearch", "tsearch", "if_nameindex", "if_indextoname", "inet_ntop", "dlopen", "dlsym",
}

// returnsErrno reports whether a function returns an error number instead of setting errno (POSIX).
func returnsErrno(name string) bool {
	return strings.HasPrefix(name, "pthread_") || slices.Contains([]string{
		"posix_memalign", "posix_spawn", "posix_spawnp", "posix_fallocate", "posix_fallocate64", "posix_fadvise", "posix_fadvise64", "posix_madvise",
		"getpwnam_r", "getpwuid_r", "getgrnam_r", "getgrgid_r", "strerror_r", "xpg_strerror_r", "ttyname_r", "getlogin_r", "readdir_r", "readdir64_r",
		"clock_nanosleep", "sigwait",
	}, name)
}

func errnoName(e unix.Errno) string {
	if name := unix.ErrnoName(e); name != "" {
		return name
	}
	return fmt.Sprintf("%d", int(e))
}
