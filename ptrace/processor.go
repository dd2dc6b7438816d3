package ptrace

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/procfs"
)

// rseqArea is where the kernel tells a thread its processor, each time before it runs on another (rseq(2)). C
// libraries ask for it.
type rseqArea struct {
	space *Space // where it is; a new program has none of its own yet
	at    arch.Addr
}

// cpuID is the offset of the processor's number in struct rseq (include/uapi/linux/rseq.h).
const cpuID = 4

// Processor is the number of the processor that the thread is on, or was when it stopped.
func (th *Thread) Processor() int {
	if at := th.rseq(); at != 0 {
		var word [4]byte
		if th.Proc.Space.ReadMemory(at+cpuID, word[:]) == nil {
			if n := int32(binary.LittleEndian.Uint32(word[:])); n >= 0 {
				return int(n)
			}
		}
	}
	st, err := procfs.ReadStat(th.Proc.PID, th.TID)
	if err != nil {
		return 0 // it was killed
	}
	return st.Processor
}

// rseq is the address of the thread's area, 0 if it has none or is not stopped, so that it can't be asked for.
func (th *Thread) rseq() arch.Addr {
	if th.area.space == th.Proc.Space && th.area.at != 0 {
		return th.area.at
	}
	var c struct { // struct ptrace_rseq_configuration
		pointer                      uint64
		size, signature, flags, zero uint32
	}
	if requestPtr(unix.PTRACE_GET_RSEQ_CONFIGURATION, th.TID, unsafe.Sizeof(c), unsafe.Pointer(&c)) != nil {
		return 0
	}
	th.area = rseqArea{th.Proc.Space, arch.Addr(c.pointer)}
	return th.area.at
}
