package workload

import "unsafe"

// Implemented in code_amd64.s.
func codeStart() uintptr

// Enter calls fn by the C calling convention on the goroutine's stack.
func Enter(fn, block, number, third uintptr)

// size is how much code there is in bytes.
const size = 2048

// Functions are what the code holds, at the offsets that code_amd64.s says.
var Functions = []struct {
	Name      string
	Off, Size uint64
}{
	{"foo", 0, 10}, {"foo_push", 64, 15}, {"foo_nop", 128, 15}, {"foo_jump", 192, 9}, {"foo_count", 256, 9},
	{"foo_record", 320, 9}, {"hot", 384, 36}, {"trap", 448, 7}, {"foo_call", 512, 17},
}

// Code is a view of the code in this program.
func Code() []byte {
	return unsafe.Slice((*byte)(unsafe.Add(nil, codeStart())), size)
}

// Small is a function that returns x * (x + 1), padded to 16 bytes.
var Small = []byte{0x48, 0x8d, 0x47, 0x01, 0x48, 0x0f, 0xaf, 0xc7, 0xc3, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc}

// SmallSize is the length of the function alone.
const SmallSize = 9
