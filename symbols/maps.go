package symbols

import (
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/gokprobe/gokprobe/arch"
)

// mapping is one line of /proc/PID/maps (proc(5)).
type mapping struct {
	Range   arch.Range
	Exec    bool
	Offset  uint64
	Dev     string
	Inode   uint64
	Path    string
	Deleted bool
}

func readMaps(pid int) ([]mapping, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil, err
	}
	var out []mapping
	for line := range strings.Lines(string(data)) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 6)
		if len(f) < 5 {
			continue
		}
		lo, hi, _ := strings.Cut(f[0], "-")
		start, err1 := strconv.ParseUint(lo, 16, 64)
		end, err2 := strconv.ParseUint(hi, 16, 64)
		off, err3 := strconv.ParseUint(f[2], 16, 64)
		if err1 != nil || err2 != nil || err3 != nil || len(f[1]) < 4 {
			return nil, fmt.Errorf("unreadable line %q", line)
		}
		m := mapping{Range: arch.Range{Start: arch.Addr(start), End: arch.Addr(end)}, Exec: f[1][2] == 'x', Offset: off, Dev: f[3]}
		m.Inode, _ = strconv.ParseUint(f[4], 10, 64)
		if len(f) == 6 {
			m.Path = strings.TrimLeft(f[5], " ")
			m.Path, m.Deleted = strings.CutSuffix(m.Path, " (deleted)")
		}
		out = append(out, m)
	}
	return out, nil
}

// readAuxv is the auxiliary vector (getauxval(3)) by type.
func readAuxv(pid int) (map[uint64]uint64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/auxv", pid))
	if err != nil {
		return nil, err
	}
	out := map[uint64]uint64{}
	for ; len(b) >= 16; b = b[16:] {
		out[binary.LittleEndian.Uint64(b)] = binary.LittleEndian.Uint64(b[8:])
	}
	return out, nil
}
