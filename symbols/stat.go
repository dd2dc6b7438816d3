package symbols

import (
	"io/fs"
	"syscall"
)

// inodeOf is the inode number behind st.
func inodeOf(st fs.FileInfo) (uint64, bool) {
	s, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return s.Ino, true
}
