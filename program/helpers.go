package program

import "github.com/cilium/ebpf/asm"

// The helpers' numbers. They are apart from the kernel's.
const (
	// Count(map) adds one to a counter.
	Count asm.BuiltinFunc = 0x10000 + iota
	// HistLog2(map, value) adds one to the bucket of value, unsigned.
	HistLog2
	// HistLinear(map, value) adds one to the bucket of value, signed.
	HistLinear
	// Time() returns the processor's time-stamp counter (rdtsc; in the interpreter, what
	// its Env says). The ring's clock makes a time of it.
	Time
	// Thread() returns a number that is different for each thread of the process. On
	// x86-64 it is the base of fs, read by rdfsbase if the kernel allows it (AT_HWCAP2
	// bit 1), else from fs:0, where C libraries keep it; 0 without both.
	Thread
	// Read(dst, size, addr) copies size bytes of the target's memory at addr to dst, which
	// is stack or record; size is a constant. It returns 0; or, if not all of them can be
	// read, fills dst with zeros and returns -EFAULT.
	Read
	// ReadN(dst, max, addr, n) copies the smaller of max, a constant, and n, unsigned, and
	// returns how many bytes those were; dst behind them is unchanged. If not
	// all of them can be read, it fills dst (max bytes) with zeros and returns -EFAULT.
	ReadN
	// ReadString(dst, max, addr) copies bytes up to and with the first zero, and
	// returns their number. max, a constant of at least 1, bounds it. If there is no
	// zero among the first max-1 bytes, byte number max is set to zero and max is
	// returned. dst behind the zero is unchanged. If a byte before the zero can't be
	// read, it fills dst with zeros and returns -EFAULT. No byte that is not copied
	// needs to be readable.
	ReadString
	// RingReserve(ring, size, lost) reserves a record with a payload of size bytes, a
	// constant, all zero, and returns its address. If the ring is full it adds one to the counter
	// lost and returns 0. A program holds one record at a time.
	RingReserve
	// RingCommit(record) hands a record that RingReserve returned to the reader.
	RingCommit
	// Processor() returns the number of the processor that the thread is on; in the interpreter, what
	// its Env says. On x86-64 the kernel keeps it in the limit of a segment (__CPUNODE_SEG).
	Processor
	// FetchAdd(state, cell) adds one to a cell, a constant, and returns its old value.
	FetchAdd

	lastHelper
)

// Efault is the errno of reads from bad addresses; they return it negated.
const Efault = 14

// ArgType is what a helper wants in an argument register.
type ArgType uint8

const (
	ArgCounter ArgType = iota // LoadMapPtr of a counter
	ArgLog2                   // LoadMapPtr of a log2 histogram
	ArgLinear                 // LoadMapPtr of a linear histogram
	ArgRing                   // LoadMapPtr of a ring
	ArgState                  // LoadMapPtr of a state
	ArgCell                   // a number known when the program is checked, of a cell of the state before it
	ArgValue                  // a number
	ArgSize                   // a number known when the program is checked, at least 1
	ArgDst                    // where in stack or record the next argument's number of bytes is written
	ArgRecord                 // the beginning of the record that is held
)

// Helper says how a helper is called: its arguments in r1, r2, ….
type Helper struct {
	Name   string
	Args   []ArgType
	Result bool // it leaves a number in r0; RingReserve leaves an address or 0
}

var helpers = [...]Helper{
	0:                   {"count", []ArgType{ArgCounter}, false},
	HistLog2 - Count:    {"hist_log2", []ArgType{ArgLog2, ArgValue}, false},
	HistLinear - Count:  {"hist_linear", []ArgType{ArgLinear, ArgValue}, false},
	Time - Count:        {"time", nil, true},
	Thread - Count:      {"thread", nil, true},
	Read - Count:        {"read", []ArgType{ArgDst, ArgSize, ArgValue}, true},
	ReadN - Count:       {"read_n", []ArgType{ArgDst, ArgSize, ArgValue, ArgValue}, true},
	ReadString - Count:  {"read_string", []ArgType{ArgDst, ArgSize, ArgValue}, true},
	RingReserve - Count: {"ring_reserve", []ArgType{ArgRing, ArgSize, ArgCounter}, true},
	RingCommit - Count:  {"ring_commit", []ArgType{ArgRecord}, false},
	Processor - Count:   {"processor", nil, true},
	FetchAdd - Count:    {"fetch_add", []ArgType{ArgState, ArgCell}, true},
}

// HelperFor describes a helper by its number.
func HelperFor(fn asm.BuiltinFunc) (*Helper, bool) {
	if fn < Count || fn >= lastHelper {
		return nil, false
	}
	return &helpers[fn-Count], true
}
