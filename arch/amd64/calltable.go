package amd64

import (
	"sync/atomic"
	"unsafe"

	"github.com/gokprobe/gokprobe/arch"
)

var _ arch.CallBodies = Arch{}

// A call table in memory, from its base on, which is aligned to 256 bytes:
//
//	-64        8 bytes: not 0 while it is closed
//	0          knownBuckets × 64 bytes, by the return address: the number of calls that the
//	           tracer holds, then 7 keys (return address, and the line's id in the upper 16 bits)
//	slotsOff   slotBuckets × 8 slots of 32 bytes, by the CFA: the CFA (0 free, 1 being filled),
//	           the return address, the line's address, twice the count, plus 1 if it jumps
//
// And a line: in the first word the number of calls in flight (16 bits) and of those that have returned
// (48 bits), in the second the limit.
const (
	knownBits   = 12
	knownBucket = 64
	slotBits    = 11
	callSlot    = 32
	slotBucket  = 8 * callSlot
	slotsOff    = knownBucket << knownBits
	tableLen    = slotsOff + slotBucket<<slotBits
	tableHead   = 64
	tableAlign  = 256
	golden      = 0x9e3779b1 // 2³² by the golden ratio
	lineShift   = 16
)

// CallTableSize is some 770 KiB, of which only what is used takes memory.
func (Arch) CallTableSize() int { return tableLen + tableHead + tableAlign }

// CallTable views a table at mem, which the target has at at.
func (Arch) CallTable(mem []byte, at arch.Addr) arch.CallTable {
	base := (at + tableHead + tableAlign - 1) &^ (tableAlign - 1)
	return &callTable{mem: mem[base-tableHead-at:][:tableHead+tableLen], base: base}
}

type callTable struct {
	mem  []byte // from the head on
	base arch.Addr
}

// word is the table's word at an offset from its base.
func (t *callTable) word(off int) *uint64 { return (*uint64)(unsafe.Pointer(&t.mem[tableHead+off])) }

func (t *callTable) Close() { atomic.StoreUint64(t.word(-tableHead), 1) }
func (t *callTable) Open()  { atomic.StoreUint64(t.word(-tableHead), 0) }

// knownOff is the offset of a return address's bucket.
func knownOff(ret arch.Addr) int { return int(uint32(ret)*golden>>(32-knownBits)) * knownBucket }

// slotOff is the offset of a frame's bucket.
func slotOff(cfa arch.Addr) int {
	return slotsOff + int(uint32(cfa>>4)*golden>>(32-slotBits))*slotBucket
}

func knownKey(ret arch.Addr, id uint16) uint64 { return uint64(ret) | uint64(id)<<48 }

// Know replaces another key if the bucket is full: that is learned again when it is needed.
func (t *callTable) Know(ret arch.Addr, id uint16) {
	key, off := knownKey(ret, id), knownOff(ret)
	to := t.word(off + 8*(1+int(key>>4)%7))
	for k := 1; k < 8; k++ {
		switch w := t.word(off + 8*k); atomic.LoadUint64(w) {
		case key:
			return
		case 0:
			to = w
		}
	}
	atomic.StoreUint64(to, key)
}

func (t *callTable) Forget(id uint16) {
	for off := 0; off < slotsOff; off += 8 {
		if w := t.word(off); off%knownBucket != 0 && atomic.LoadUint64(w)>>48 == uint64(id) {
			atomic.StoreUint64(w, 0)
		}
	}
}

func (t *callTable) Hold(ret arch.Addr, n int) { atomic.AddUint64(t.word(knownOff(ret)), uint64(n)) }

func (t *callTable) Put(c arch.FollowedCall) bool {
	off := slotOff(c.CFA)
	for k := 0; k < slotBucket; k += callSlot {
		w := t.word(off + k)
		if !atomic.CompareAndSwapUint64(w, 0, 1) {
			continue
		}
		info := uint64(c.Count) << 1
		if c.Jumps {
			info |= 1
		}
		atomic.StoreUint64(t.word(off+k+8), uint64(c.Ret))
		atomic.StoreUint64(t.word(off+k+16), uint64(c.Line))
		atomic.StoreUint64(t.word(off+k+24), info)
		atomic.StoreUint64(w, uint64(c.CFA))
		return true
	}
	return false
}

// slot reads a slot; ok is false if nothing is in it.
func (t *callTable) slot(off int) (s arch.CallSlot, ok bool) {
	cfa := atomic.LoadUint64(t.word(off))
	if cfa <= 1 {
		return s, false
	}
	info := atomic.LoadUint64(t.word(off + 24))
	s.CFA, s.At = arch.Addr(cfa), off
	s.Ret = arch.Addr(atomic.LoadUint64(t.word(off + 8)))
	s.Line = arch.Addr(atomic.LoadUint64(t.word(off + 16)))
	s.Count, s.Jumps = int(info>>1), info&1 != 0
	return s, true
}

func (t *callTable) Frame(cfa arch.Addr) (calls []arch.CallSlot) {
	off := slotOff(cfa)
	for k := 0; k < slotBucket; k += callSlot {
		if s, ok := t.slot(off + k); ok && s.CFA == cfa {
			calls = append(calls, s)
		}
	}
	return calls
}

func (t *callTable) All(f func(arch.CallSlot)) {
	for off := slotsOff; off < tableLen; off += callSlot {
		if s, ok := t.slot(off); ok {
			f(s)
		}
	}
}

func (t *callTable) Take(s arch.CallSlot) bool {
	return atomic.CompareAndSwapUint64(t.word(s.At), uint64(s.CFA), 0)
}

// CallLine views a line.
func (Arch) CallLine(mem []byte) arch.CallLine {
	return (*callLine)(unsafe.Pointer(&mem[0]))
}

type callLine struct{ calls, limit uint64 }

func (l *callLine) Active() int     { return int(uint16(atomic.LoadUint64(&l.calls))) }
func (l *callLine) Add(n int)       { atomic.AddUint64(&l.calls, uint64(n)) }
func (l *callLine) Returns() uint64 { return atomic.LoadUint64(&l.calls) >> lineShift }
func (l *callLine) SetLimit(n int) {
	atomic.StoreUint64(&l.limit, uint64(min(max(n, 0), arch.MaxCalls)))
}
