package ptrace

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
)

// TestWhichFileSystemsAreServed: their types, also of kinds of FUSE, and their devices; lines that are none are passed over.
func TestWhichFileSystemsAreServed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mountinfo")
	must(os.WriteFile(file, []byte(`22 28 0:21 / /proc rw,nosuid shared:5 - proc proc rw
41 28 0:34 / /net rw shared:21 - nfs4 server:/ rw,vers=4.2
42 28 0:300 /a\040b /mnt/a\040b rw master:1 propagate_from:2 - fuse.sshfs host:/ rw
43 28 8:1 / / rw shared:1 - ext4 /dev/sda1 rw
44 28 0:36 / /fused rw - fuseblk /dev/sdb1 rw
45 28 0:x / /broken rw - cifs //host/share rw
46 28
47 28 0:37 / /share rw - cifs //host/share rw
`), 0o600))
	got := map[uint64]bool{}
	addServed(got, file)
	addServed(got, file+" that is not there")
	for _, dev := range []uint64{unix.Mkdev(0, 34), unix.Mkdev(0, 300), unix.Mkdev(0, 37)} {
		if !got[dev] {
			t.Errorf("device %d:%d is served", unix.Major(dev), unix.Minor(dev))
		}
	}
	if len(got) != 3 {
		t.Errorf("devices: %v", got)
	}
	if device("fd:1a") != unix.Mkdev(0xfd, 0x1a) || device("00:12c") != unix.Mkdev(0, 300) {
		t.Error("devices of mappings are read as others")
	}
}

// TestAMappedFileOfAServerMayNotAnswer, which is asked at most once a second. Here the kernel's own memory is taken for a server.
func TestAMappedFileOfAServerMayNotAnswer(t *testing.T) {
	const dir = "/dev/shm" // tmpfs
	f := must2(os.CreateTemp(dir, "gokprobe"))
	defer os.Remove(f.Name())
	must(f.Truncate(pageSize))
	must(f.Close())
	must(os.Chmod(f.Name(), 0o644))
	defer func(old []string) { servers = old }(servers)
	hold(t, "siblings", func(p *Process) {
		s := p.Space
		if s.MayNotAnswer() {
			t.Error("nothing is mapped of a server")
		}
		servers = []string{"nothing", "tmpfs"}
		var at uint64
		must(s.Remote(func(r *Remote) error {
			return r.WithString(f.Name(), func(name arch.Addr) error {
				fd := must2(r.Syscall(unix.SYS_OPEN, uint64(name), unix.O_RDONLY))
				at = must2(r.Syscall(unix.SYS_MMAP, 0, pageSize, unix.PROT_READ, unix.MAP_PRIVATE, fd, 0))
				must2(r.Syscall(unix.SYS_CLOSE, fd))
				return nil
			})
		}))
		if s.silent.at = time.Now(); s.MayNotAnswer() {
			t.Error("it is asked again at once")
		}
		s.silent.at = time.Now().Add(-time.Minute)
		if !s.MayNotAnswer() || time.Since(s.silent.at) > time.Minute {
			t.Error("the file's server is not seen")
		}
		must(s.Unmap(stretch(arch.Addr(at), pageSize)))
		if s.silent.at = (time.Time{}); s.MayNotAnswer() != s.mapsOfServers() {
			t.Error("the answer is an old one")
		}
	})
}
