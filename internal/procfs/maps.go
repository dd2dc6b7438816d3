package procfs

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/gokprobe/gokprobe/arch"
)

// deletedMark ends the path of a mapped or executed file that has no name any more.
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
	// deleted one.
	Path    string
	Deleted bool
}

// Anonymous reports whether m maps no file.
func (m Mapping) Anonymous() bool { return m.Inode == 0 }

// Maps reads /proc/PID/maps. It is empty for a kernel thread and for a zombie. A
// leader that ended before its threads is one too: pass the id of a living thread
// then, any thread's will do. It needs the right to read the process (PTRACE_MODE_READ_FSCREDS), else the error
// matches fs.ErrPermission.
func Maps(pid int) ([]Mapping, error) { return load(path(pid, 0, "maps"), ParseMaps) }

// ParseMaps parses the lines of /proc/PID/maps. A malformed line gives an error
// that matches ErrFormat and names the line's number.
func ParseMaps(r io.Reader) ([]Mapping, error) {
	var maps []Mapping
	in := bufio.NewReader(r)
	for n := 1; ; n++ {
		line, err := in.ReadString('\n')
		if err != nil && err != io.EOF {
			return nil, err
		}
		if line = strings.TrimSuffix(line, "\n"); line != "" {
			m, ok := parseMapping(line)
			if !ok {
				return nil, fmt.Errorf("%w: maps line %d: %q", ErrFormat, n, line)
			}
			maps = append(maps, m)
		}
		if err == io.EOF {
			return maps, nil
		}
	}
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
