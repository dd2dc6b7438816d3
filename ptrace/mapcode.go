package ptrace

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
)

// MapCode maps n bytes of anonymous memory as code, at an address that the kernel chooses. It is filled through Text.
func (s *Space) MapCode(n uint64) (got arch.Range, err error) {
	err = s.Remote(func(r *Remote) error {
		at, err := r.Syscall(unix.SYS_MMAP, 0, n, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, ^uint64(0), 0)
		got = arch.Range{Start: arch.Addr(at), End: arch.Addr(at + n)}
		return err
	})
	if err != nil {
		return arch.Range{}, fmt.Errorf("mapping memory in the target: %w", err)
	}
	return got, nil
}
