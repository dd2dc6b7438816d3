package guardian

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// A guardian inherits the descriptors of the tracer's process that were opened without
// O_CLOEXEC: the program's own, and those of libraries. A guardian that kept these
// would keep others waiting for an end that the tracer's death is for them: the readers
// of a pipe, and the kernel, for a FUSE file system whose device it holds. It would
// wait for that itself, in its own exit, if it had a file of that file system open
// (fuse_flush in fs/fuse/file.c).

// CloseInherited closes the inherited descriptors, except those that the guardian, or
// another process of ours, was given. Devices go first: they are what others' closing may wait for. Files of the Go
// runtime, and of this package, do not pass exec, by which they are told. It may wait
// as long as a file system does.
func CloseInherited() {
	files, devices := inherited()
	for _, fd := range append(devices, files...) {
		_ = unix.Close(fd)
	}
}

// inherited lists the descriptors that have passed exec, except those that a guardian
// is given.
func inherited() (files, devices []int) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil, nil
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd <= pipeFD {
			continue
		}
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC != 0 {
			continue
		}
		var st unix.Stat_t
		if unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR {
			devices = append(devices, fd)
		} else {
			files = append(files, fd)
		}
	}
	return files, devices
}
