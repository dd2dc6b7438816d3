package code

import (
	"sync/atomic"
	"unsafe"

	"github.com/gokprobe/gokprobe/arch"
)

var _ arch.CallBodies = Arch{}

// A call table in memory, from its base on, which is aligned to 256 bytes:
//
//	-64        8 bytes: not 0 while it is closed
//	-40        40 bytes: CallTable.Mark
//	0          knownBuckets × 64 bytes, by the return address: the number of calls that the
//	           tracer holds, then 7 keys (return address, and the line in the upper 16 bits)
//	slotsOff   buckets of 256 bytes for 8 calls, by the CFA: 8 CFAs (0 free, 1 being filled), 8
//	           keys as above, 8 times the count and flags, 8 times when they were entered
//	leadsOff   knownBuckets × 64 bytes beside the first ones: the relay of each key of calls whose
//	           return address is replaced; such a key has relayLine as well
//	linesOff   lines of 64 bytes: in the first word the number of calls in flight (16 bits) and of
//	           those that have returned (48 bits), in the second the limit
const (
	knownBits   = 12
	knownBucket = 64
	slotBits    = 11
	slotBucket  = 256
	slotWords   = 64 // bytes from a call's CFA to its key, and from there to its count
	slotsOff    = knownBucket << knownBits
	leadsOff    = slotsOff + slotBucket<<slotBits
	linesOff    = leadsOff + knownBucket<<knownBits
	callLineLen = 64
	tableLen    = linesOff + callLineLen*(arch.MaxLines+1)
	tableHead   = 64
	markOff     = -40
	tableAlign  = 256
	golden      = 0x9e3779b1 // 2³² by the golden ratio
	lineShift   = 16
	keyShift    = 48
	keyLine     = 64 - keyShift // bits of the line
	relayLine   = 0x8000        // more than any line

	infoJumps  = 1 // the function may end by a jump
	infoShared = 2 // there may be other calls in the frame
	infoShift  = 2
)

// CallTableSize is some 1.3 MiB. Only the pages that are used take memory.
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

func knownKey(ret arch.Addr, line uint16) uint64 { return uint64(ret) | uint64(line)<<keyShift }

// Know replaces another key if the bucket is full: that is learned again when it is needed.
func (t *callTable) Know(ret arch.Addr, line uint16) {
	key := knownKey(ret, line)
	atomic.StoreUint64(t.word(t.keyAt(key)), key)
}

// Replace is Know for a key with a relay, which is written first. A thread that has found another key there, or reads beside it what belongs to this one, sees that the
// relay leads elsewhere, and traps.
func (t *callTable) Replace(ret arch.Addr, line uint16, relay arch.Addr) {
	key := knownKey(ret, line|relayLine)
	at := t.keyAt(key)
	atomic.StoreUint64(t.word(at+leadsOff), uint64(relay))
	atomic.StoreUint64(t.word(at), key)
}

// keyAt is where key is in its bucket, or is to be.
func (t *callTable) keyAt(key uint64) int {
	off := knownOff(arch.Addr(key))
	at := off + 8*(1+int(key>>keyShift%7))
	for k := off + knownBucket - 8; k > off; k -= 8 {
		switch atomic.LoadUint64(t.word(k)) {
		case key:
			return k
		case 0:
			at = k
		}
	}
	return at
}

func (t *callTable) Forget(line uint16) {
	t.forget(func(of uint16) bool { return of&^relayLine == line })
}

func (t *callTable) ForgetRelays() { t.forget(func(of uint16) bool { return of&relayLine != 0 }) }

func (t *callTable) forget(those func(line uint16) bool) {
	for off := 0; off < slotsOff; off += 8 {
		w := t.word(off)
		if key := atomic.LoadUint64(w); off%knownBucket != 0 && key != 0 && those(uint16(key>>keyShift)) {
			atomic.StoreUint64(w, 0)
		}
	}
}

func (t *callTable) Hold(ret arch.Addr, n int) { atomic.AddUint64(t.word(knownOff(ret)), uint64(n)) }

func (t *callTable) Put(c arch.FollowedCall) bool {
	off := slotOff(c.CFA)
	for k := 0; k < slotWords; k += 8 {
		w := t.word(off + k)
		if !atomic.CompareAndSwapUint64(w, 0, 1) {
			continue
		}
		info := uint64(c.Count)<<infoShift | infoShared
		if c.Jumps {
			info |= infoJumps
		}
		atomic.StoreUint64(t.word(off+k+slotWords), knownKey(c.Ret, c.Line))
		atomic.StoreUint64(t.word(off+k+2*slotWords), info)
		atomic.StoreUint64(t.word(off+k+3*slotWords), c.Began)
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
	key := atomic.LoadUint64(t.word(off + slotWords))
	info := atomic.LoadUint64(t.word(off + 2*slotWords))
	s.CFA, s.At = arch.Addr(cfa), off
	s.Ret, s.Line = arch.Addr(key&(1<<keyShift-1)), uint16(key>>keyShift)
	s.Count, s.Jumps = int(min(info>>infoShift, arch.MaxCalls)), info&infoJumps != 0 // there are more only if the target says so
	s.Began = atomic.LoadUint64(t.word(off + 3*slotWords))
	return s, true
}

func (t *callTable) Frame(cfa arch.Addr) (calls []arch.CallSlot) {
	off := slotOff(cfa)
	for k := 0; k < slotWords; k += 8 {
		if s, ok := t.slot(off + k); ok && s.CFA == cfa {
			calls = append(calls, s)
		}
	}
	return calls
}

func (t *callTable) All(f func(arch.CallSlot)) {
	for off := slotsOff; off < leadsOff; off += slotBucket {
		for k := 0; k < slotWords; k += 8 {
			if s, ok := t.slot(off + k); ok {
				f(s)
			}
		}
	}
}

func (t *callTable) Take(s arch.CallSlot) bool {
	return atomic.CompareAndSwapUint64(t.word(s.At), uint64(s.CFA), 0)
}

func (t *callTable) Mark() []byte { return t.mem[tableHead+markOff : tableHead] }

func (t *callTable) Redirect(s arch.CallSlot, ret arch.Addr) {
	atomic.CompareAndSwapUint64(t.word(s.At+slotWords), knownKey(s.Ret, s.Line), knownKey(ret, s.Line))
}

func (t *callTable) Line(n uint16) arch.CallLine {
	return (*callLine)(unsafe.Pointer(t.word(linesOff + callLineLen*int(n))))
}

type callLine struct{ calls, limit uint64 }

func (l *callLine) Calls() (active int, returns uint64) {
	w := atomic.LoadUint64(&l.calls)
	return int(uint16(w)), w >> lineShift
}

func (l *callLine) Add(n int) { atomic.AddUint64(&l.calls, uint64(n)) }
func (l *callLine) SetLimit(n int) {
	atomic.StoreUint64(&l.limit, uint64(min(max(n, 0), arch.MaxCalls)))
}
