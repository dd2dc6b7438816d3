package linux

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
)

// ntX86XState is the regset of all extended state in the layout of XSAVE (elf.h).
const ntX86XState = 0x202

// Places in an XSAVE image, whose first 512 bytes are those of FXSAVE (SDM vol. 1 table 10-2, §13.4.2).
const (
	statusWord = 2
	tags       = 4
	fip        = 8 // as FXSAVE64 stores it
	st0        = 32
	xmm0       = 160
	xstateBV   = 512
	fxsaveLen  = 512

	x87InUse = 1 << 0
	sseInUse = 1 << 1
)

// ReadExtended reads a thread's extended state into buf and returns what there is. PTRACE_SETFPREGS would mark SSE as used, which a
// program that executes XSAVE can tell; this regset keeps XSTATE_BV.
func ReadExtended(tid int, buf []byte) ([]byte, error) {
	iov := unix.Iovec{Base: &buf[0], Len: uint64(len(buf))}
	err := requestPtr(unix.PTRACE_GETREGSET, tid, ntX86XState, unsafe.Pointer(&iov))
	return buf[:iov.Len], err
}

// WriteExtended gives the thread the extended state of image.
func WriteExtended(tid int, image []byte) error {
	iov := unix.Iovec{Base: &image[0], Len: uint64(len(image))}
	return requestPtr(unix.PTRACE_SETREGSET, tid, ntX86XState, unsafe.Pointer(&iov))
}

// X87 is x87 register st(n), n being 0 to 7.
func X87(tid, n int) (v [10]byte, err error) {
	var fx [fxsaveLen]byte
	if err := requestPtr(unix.PTRACE_GETFPREGS, tid, 0, unsafe.Pointer(&fx)); err != nil {
		return v, err
	}
	copy(v[:], fx[st0+16*n:])
	return v, nil
}

// Vector is the low 128 bits of vector register n.
func Vector(tid, n int) (lo, hi uint64, err error) {
	var fx [fxsaveLen]byte
	if err := requestPtr(unix.PTRACE_GETFPREGS, tid, 0, unsafe.Pointer(&fx)); err != nil {
		return 0, 0, err
	}
	p := (*[2]uint64)(unsafe.Pointer(&fx[xmm0+16*n]))
	return p[0], p[1], nil
}

// SetVector changes the low 128 bits of a vector register of an image, and nothing
// else. While SSE state is in its initial configuration, its part of the image has no
// meaning until its bit in XSTATE_BV is set (SDM vol. 1 §13.4.2, §13.6); the kernel has
// put zeros there.
func SetVector(image []byte, n int, lo, hi uint64) {
	binary.LittleEndian.PutUint64(image[xmm0+16*n:], lo)
	binary.LittleEndian.PutUint64(image[xmm0+16*n+8:], hi)
	image[xstateBV] |= sseInUse
}

// MoveLastFPUInsn makes an image tell to as the address of the last x87 instruction (FIP; Intel SDM vol. 1 §8.1.8) where it
// tells from, and reports whether it did. A hypervisor that switches by XSAVE or FXSAVE without REX.W keeps the lower half
// only (SDM vol. 1 §10.5.1): of from, too, that is what is told then.
func MoveLastFPUInsn(image []byte, from, to arch.Addr) bool {
	const lower = 1<<32 - 1
	if at := arch.Addr(binary.LittleEndian.Uint64(image[fip:])); at != from && at != from&lower {
		return false
	}
	binary.LittleEndian.PutUint64(image[fip:], uint64(to))
	return true
}

// EmptyX87 makes the x87 stack of an image empty, as functions expect it (System V ABI,
// AMD64 supplement §3.2.3), with no exception pending. It reports whether it was not.
func EmptyX87(image []byte) (changed bool) {
	if image[xstateBV]&x87InUse == 0 || image[statusWord] == 0 && image[statusWord+1] == 0 && image[tags] == 0 {
		return false
	}
	image[statusWord], image[statusWord+1], image[tags] = 0, 0, 0
	return true
}
