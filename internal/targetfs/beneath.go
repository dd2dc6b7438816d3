package targetfs

import (
	"strings"

	"golang.org/x/sys/unix"
)

// beneath looks name up as if root were the root directory, and returns an O_PATH descriptor.
func beneath(root int, name string) (int, error) {
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	}
	const tries = 8 // EAGAIN: something was renamed meanwhile
	for range tries {
		fd, err := unix.Openat2(root, name, &how)
		switch err {
		case unix.EAGAIN, unix.EINTR:
			continue
		case unix.ENOSYS, unix.EPERM, unix.E2BIG, unix.EINVAL: // Linux before 5.6, or a seccomp filter
			return walk(root, name)
		}
		return fd, err
	}
	return walk(root, name)
}

// place is a directory on the way, or what was found in the end.
type place struct {
	fd  int
	dir bool
}

// Limits of a walk; what goes beyond them is refused.
const (
	mostLinks  = 40  // as the kernel's MAXSYMLINKS
	deepest    = 128 // directories that are open at once
	mostPlaces = 4096
)

// walk does what openat2 does, for kernels without it: one component after the other, each of them opened without following it. A
// symbolic link is read through the descriptor that was found to be one. ".." goes back to the directory that was come from, and
// not above root, so renaming directories meanwhile leads nowhere else.
func walk(root int, name string) (int, error) {
	at := []place{{root, true}} // the first is the caller's
	back := func(n int) {
		for len(at) > n {
			_ = unix.Close(at[len(at)-1].fd)
			at = at[:len(at)-1]
		}
	}
	rest := strings.Split(name, "/")
	links := 0
	for steps := 0; len(rest) > 0; steps++ {
		part := rest[0]
		rest = rest[1:]
		top := at[len(at)-1]
		switch {
		case steps > mostPlaces || len(at) > deepest:
			back(1)
			return -1, unix.ENAMETOOLONG
		case !top.dir:
			back(1)
			return -1, unix.ENOTDIR
		case part == "" || part == ".":
			continue
		case part == "..":
			back(max(1, len(at)-1))
			continue
		}
		next, link, err := step(top.fd, part)
		if err == nil && next.fd < 0 {
			if links++; links > mostLinks {
				err = unix.ELOOP
			}
		}
		if err != nil {
			if next.fd >= 0 {
				_ = unix.Close(next.fd)
			}
			back(1)
			return -1, err
		}
		if next.fd >= 0 {
			at = append(at, next)
			continue
		}
		if strings.HasPrefix(link, "/") {
			back(1)
		}
		rest = append(strings.Split(link, "/"), rest...)
	}
	last := at[len(at)-1]
	if len(at) == 1 { // the root itself
		return unix.FcntlInt(uintptr(root), unix.F_DUPFD_CLOEXEC, 0)
	}
	at = at[:len(at)-1]
	back(1)
	return last.fd, nil
}

// step opens one component of a name in dir: next, or, with a next.fd of -1, the text of a symbolic link.
func step(dir int, part string) (next place, link string, err error) {
	fd, err := unix.Openat(dir, part, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return place{fd: -1}, "", err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return place{fd: fd}, "", err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFLNK {
		return place{fd, st.Mode&unix.S_IFMT == unix.S_IFDIR}, "", nil
	}
	defer func() { _ = unix.Close(fd) }()
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return place{fd: -1}, "", err
	}
	if fs.Type == unix.PROC_SUPER_MAGIC { // its links may stand for files, not for names
		return place{fd: -1}, "", unix.ELOOP
	}
	text := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", text)
	if err == nil && n == 0 {
		err = unix.ENOENT
	}
	return place{fd: -1}, string(text[:max(n, 0)]), err
}
