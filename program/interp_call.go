package program

import (
	"bytes"
	"math/bits"
	"sync/atomic"

	"github.com/cilium/ebpf/asm"

	"github.com/gokprobe/gokprobe/arch"
)

// call performs a helper and returns r0.
func (m *machine) call(c *HelperCall) uint64 {
	r := &m.regs
	switch c.Func {
	case Count:
		m.bump(c.Map, 0)
	case HistLog2, HistLinear:
		m.bump(c.Map, m.Maps[c.Map].Cell(r[asm.R2]))
	case Time:
		if m.env.Time != nil {
			return m.env.Time()
		}
	case Thread:
		return m.env.Thread
	case Processor:
		if m.env.Processor != nil {
			return m.env.Processor()
		}
	case Read:
		return m.read(c, c.Size, arch.Addr(r[asm.R3])) // 0 for success
	case ReadN:
		n := int(min(r[asm.R4], uint64(c.Size)))
		if r := m.read(c, n, arch.Addr(r[asm.R3])); r != 0 {
			return r
		}
		return uint64(n)
	case ReadString:
		return m.readString(c, arch.Addr(r[asm.R3]))
	case FetchAdd:
		return atomic.AddUint64(&m.env.Maps[c.Map][c.Cell], 1) - 1
	case RingReserve:
		return m.reserve(c)
	case RingCommit:
		m.place.commit(m.record)
		m.record = nil
	}
	return 0
}

// bump adds one to a cell, in the first shard: the tracer's hits are handled by one thread.
func (m *machine) bump(mapIndex, cell int) {
	atomic.AddUint64(&m.env.Maps[mapIndex][cell], 1)
}

// Cell is the cell of a shard that a hit with value v adds to.
func (m Map) Cell(v uint64) int {
	switch m.Kind {
	case Log2:
		return bits.Len64(v)
	case Linear:
		if int64(v) < m.Min {
			return 0
		}
		return int(min((v-uint64(m.Min))/uint64(m.Step), uint64(m.Buckets))) + 1
	}
	return 0
}

const efault = 1<<64 - Efault

// read copies n bytes to c's destination. After a failure they are zeros.
func (m *machine) read(c *HelperCall, n int, from arch.Addr) uint64 {
	buf := make([]byte, n)
	to := m.bytes(c.Dst, c.Off, c.Size)
	if n > 0 && m.env.Memory.ReadMemory(from, buf) != nil {
		clear(to)
		return efault
	}
	copy(to, buf)
	return 0
}

// page is a size that divides that of a page: such a piece is readable as a whole, or
// not at all.
const page = 4096

func (m *machine) readString(c *HelperCall, from arch.Addr) uint64 {
	to := m.bytes(c.Dst, c.Off, c.Size)
	var text []byte
	for len(text) < c.Size-1 {
		at := from + arch.Addr(len(text))
		part := make([]byte, min(page-int(at%page), c.Size-1-len(text)))
		if m.env.Memory.ReadMemory(at, part) != nil {
			clear(to)
			return efault
		}
		if n := bytes.IndexByte(part, 0); n >= 0 {
			text = append(text, part[:n]...)
			break
		}
		text = append(text, part...)
	}
	copy(to, text)
	to[len(text)] = 0
	return uint64(len(text) + 1)
}

func (m *machine) reserve(c *HelperCall) uint64 {
	place, ok := reserve(m.env.Maps[c.Map], m.Maps[c.Map].Size, RecordLen(c.Size), m.ID)
	if !ok {
		m.bump(c.Lost, 0)
		return 0
	}
	m.place = place
	m.record = make([]byte, c.Size)
	return 1
}
