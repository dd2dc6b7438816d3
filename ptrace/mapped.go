package ptrace

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/targetfs"
)

// OpenMapped opens the file that m, a mapping of thread tid's process, shows, for reading. It is found by the mapping
// itself, which needs CAP_CHECKPOINT_RESTORE, or by name; then it must have the mapping's inode number.
func OpenMapped(tid int, m procfs.Mapping) (*targetfs.File, error) {
	files := targetfs.Of(tid)
	defer func() { _ = files.Close() }()
	if f, err := files.Mapped(m.Range); err == nil {
		if f.Inode == m.Inode { // else something else was mapped there meanwhile
			return f, nil
		}
		f.Close()
	}
	f, err := files.Open(files.Inside(m.Path))
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", m.Path, err)
	}
	if f.Inode != m.Inode {
		f.Close()
		return nil, fmt.Errorf("opening %s: it is not the file that is mapped: %w", m.Path, unix.ENOENT)
	}
	return f, nil
}
