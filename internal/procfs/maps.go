package procfs

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/gokprobe/gokprobe/arch"
)

// deletedMark ends the path of a mapped or executed file that was deleted.
const deletedMark = " (deleted)"

// Mapping is one line of /proc/PID/maps. Ranges are page aligned and ascending.
type Mapping struct {
	Range                     arch.Range
	Read, Write, Exec, Shared bool
	Offset                    uint64 // of Range.Start in the file, in bytes
	Dev                       string // major:minor in hexadecimal
	Inode                     uint64 // 0 when no file is mapped

	// Path is the file's path, a pseudo-path like "[stack]" or "[vdso]", or
	// empty. A file whose own name ends in " (deleted)" can't be told from a
	// deleted one. It is empty, too, of a file with a path of 4 KiB and more, and where all paths together are longer than
	// is kept.
	Path    string
	Deleted bool
}

// Anonymous reports whether m maps no file.
func (m Mapping) Anonymous() bool { return m.Inode == 0 }

// Limits of reading a process's mappings. Its own sysctl (vm.max_map_count) allows
// 65530 where nobody has changed it; each path may take 4 KiB.
const (
	mostMappings = 1 << 19
	mostText     = 64 << 20 // bytes of /proc/PID/maps, where it can't be asked otherwise
	mostNames    = 16 << 20 // bytes of different paths
)

// ErrTooMuch is of a process that has more of something than is read.
var ErrTooMuch = errors.New("that is more than is read of a process")

// Maps reads /proc/PID/maps. It is empty for a kernel thread and for a zombie. A
// leader that ended before its threads is one too: pass the id of a living thread
// then, any thread's will do. It needs the right to read the process (PTRACE_MODE_READ_FSCREDS), else the error
// matches fs.ErrPermission. Of a process with more than half a million mappings it matches ErrTooMuch.
func Maps(pid int) ([]Mapping, error) {
	f, err := open(pid, "maps")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	maps, err := ReadMaps(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return maps, nil
}

// ReadMaps is Maps of an open /proc/PID/maps.
func ReadMaps(f *os.File) ([]Mapping, error) {
	if maps, err := queryMaps(f); err == nil || errors.Is(err, ErrTooMuch) {
		return maps, err
	}
	return ParseMaps(io.NewSectionReader(f, 0, 1<<62)) // from the beginning: a snapshot of now
}

// ParseMaps parses the lines of /proc/PID/maps. A malformed line gives an error
// that matches ErrFormat and names the line's number.
func ParseMaps(r io.Reader) ([]Mapping, error) {
	const longest = 64 << 10 // bytes of a line; of a longer one the path is left out
	var maps []Mapping
	in, names, size := bufio.NewReaderSize(r, longest), newNames(), 0
	for n := 1; ; n++ {
		line, err := in.ReadSlice('\n')
		if size += len(line); size > mostText || len(maps) > mostMappings {
			return nil, fmt.Errorf("%d mappings: %w", len(maps), ErrTooMuch)
		}
		if err != nil && err != io.EOF && !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
		if text := strings.TrimSuffix(string(line), "\n"); text != "" {
			m, ok := parseMapping(text)
			if !ok {
				return nil, fmt.Errorf("%w: maps line %d: %q", ErrFormat, n, text[:min(len(text), 200)])
			}
			m.Path, m.Dev = names.keep(m.Path), names.keep(m.Dev)
			if errors.Is(err, bufio.ErrBufferFull) {
				m.Path = ""
			}
			maps = append(maps, m)
		}
		for errors.Is(err, bufio.ErrBufferFull) {
			line, err = in.ReadSlice('\n')
			size += len(line)
		}
		if err == io.EOF {
			return maps, nil
		}
	}
}

// names keeps each string once, and no more of all than it may.
type names struct {
	all  map[string]string
	size int
}

func newNames() *names { return &names{all: map[string]string{}} }

// keep returns a lasting copy of s, one for equal strings; "" if there are too many.
func (n *names) keep(s string) string {
	if kept, ok := n.all[s]; ok {
		return kept
	}
	if n.size += len(s); n.size > mostNames {
		return ""
	}
	s = strings.Clone(s)
	n.all[s] = s
	return s
}

// parseMapping parses "start-end rwxp offset major:minor inode   path".
func parseMapping(line string) (m Mapping, ok bool) {
	var f [5]string
	rest := line
	for i := range f {
		f[i], rest, _ = strings.Cut(rest, " ")
	}
	start, end, dash := strings.Cut(f[0], "-")
	lo, err1 := strconv.ParseUint(start, 16, 64)
	hi, err2 := strconv.ParseUint(end, 16, 64)
	off, err3 := strconv.ParseUint(f[2], 16, 64)
	ino, err4 := strconv.ParseUint(f[4], 10, 64)
	if !dash || len(f[1]) != 4 || lo >= hi || err1 != nil || err2 != nil || err3 != nil || err4 != nil {
		return m, false
	}
	m = Mapping{
		Range:  arch.Range{Start: arch.Addr(lo), End: arch.Addr(hi)},
		Read:   f[1][0] == 'r',
		Write:  f[1][1] == 'w',
		Exec:   f[1][2] == 'x',
		Shared: f[1][3] == 's',
		Offset: off,
		Dev:    f[3],
		Inode:  ino,
	}
	// The kernel escapes newlines here and nothing else, not even backslashes.
	p := strings.ReplaceAll(strings.TrimLeft(rest, " "), `\012`, "\n")
	m.Path, m.Deleted = strings.CutSuffix(p, deletedMark)
	return m, true
}
