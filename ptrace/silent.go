package ptrace

import (
	"bufio"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// servers are the types of file systems whose pages come from a server, which may not answer.
var servers = []string{"fuse", "nfs", "nfs4", "cifs", "smb3", "ceph", "afs"}

// MayNotAnswer tells that a file is mapped whose pages come from a server (FUSE, NFS). A thread of the program's that waits for such a page
// can't be stopped. It may be a second old.
func (s *Space) MayNotAnswer() bool {
	const fresh = time.Second
	if now := time.Now(); s.silent.at.IsZero() || now.Sub(s.silent.at) > fresh {
		s.silent.at, s.silent.may = now, s.mapsOfServers()
	}
	return s.silent.may
}

func (s *Space) mapsOfServers() bool {
	tid, err := s.TID()
	if err != nil {
		return false
	}
	maps, err := s.Maps()
	if err != nil {
		return false
	}
	devices := map[uint64]bool{}
	for _, id := range []string{strconv.Itoa(tid), "self"} { // a file may come from elsewhere than the program's own mounts
		addServed(devices, "/proc/"+id+"/mountinfo")
	}
	for _, m := range maps {
		if m.Inode != 0 && devices[device(m.Dev)] {
			return true
		}
	}
	return false
}

// addServed adds the devices of served file systems that a mountinfo file (proc_pid_mountinfo(5)) lists.
func addServed(devices map[uint64]bool, name string) {
	f, err := os.Open(name)
	if err != nil {
		return
	}
	defer f.Close()
	for in := bufio.NewScanner(f); in.Scan(); {
		mount, system, _ := strings.Cut(in.Text(), " - ")
		kind, _, _ := strings.Cut(system, " ")
		kind, _, _ = strings.Cut(kind, ".") // fuse.sshfs
		fields := strings.Fields(mount)
		if len(fields) < 3 || !slices.Contains(servers, kind) {
			continue
		}
		major, minor, _ := strings.Cut(fields[2], ":") // in decimal
		a, err1 := strconv.ParseUint(major, 10, 32)
		b, err2 := strconv.ParseUint(minor, 10, 32)
		if err1 == nil && err2 == nil {
			devices[unix.Mkdev(uint32(a), uint32(b))] = true
		}
	}
}
