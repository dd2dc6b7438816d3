package bench

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"unsafe"
)

// Implemented in code_amd64.s.
func codeStart() uintptr

// enter calls fn by the C calling convention on the goroutine's stack.
func enter(fn, block, number, third uintptr)

// codeSize is how much code there is in bytes.
const codeSize = 1024

// function is one of the code's functions.
type function struct {
	name      string
	off, size uint64 // in the code
}

// functions are what code_amd64.s holds, at the offsets that it says.
var functions = []function{
	{"foo", 0, 10}, {"foo_push", 64, 15}, {"foo_nop", 128, 15}, {"foo_jump", 192, 9}, {"foo_count", 256, 9},
	{"foo_record", 320, 9}, {"hot", 384, 36}, {"trap", 448, 7},
}

// codeOffset is where in the image's file, and in its mapping, the code lies.
const codeOffset = 0x1000

// The symbol of each function is prefixed, so that no other program's can be meant.
const symbolPrefix = "gokprobe_bench_"

// code is a view of the code in this program.
func code() []byte {
	return unsafe.Slice((*byte)(unsafe.Add(nil, codeStart())), codeSize)
}

// image is a shared object that holds the code: one segment, readable and executable, and
// the symbols of its functions.
func image() ([]byte, error) {
	var names, symbols bytes.Buffer
	names.WriteByte(0)
	put := func(w *bytes.Buffer, v any) { _ = binary.Write(w, binary.LittleEndian, v) } // to a Buffer it can't fail
	put(&symbols, elf.Sym64{})
	for _, f := range functions {
		put(&symbols, elf.Sym64{
			Name: uint32(names.Len()), Info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_FUNC), Shndx: 1,
			Value: codeOffset + f.off, Size: f.size,
		})
		names.WriteString(symbolPrefix + f.name + "\x00")
	}
	const sectionNames = "\x00.text\x00.symtab\x00.strtab\x00.shstrtab\x00"
	const headers = 64 + 56
	symOff := uint64(headers)
	nameOff := symOff + uint64(symbols.Len())
	secNameOff := nameOff + uint64(names.Len())
	secOff := (secNameOff + uint64(len(sectionNames)) + 7) &^ 7
	var w bytes.Buffer
	put(&w, elf.Header64{
		Ident: [16]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT),
		Phoff: 64, Shoff: secOff, Ehsize: 64, Phentsize: 56, Phnum: 1, Shentsize: 64, Shnum: 5, Shstrndx: 4,
	})
	put(&w, elf.Prog64{
		Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X),
		Filesz: codeOffset + codeSize, Memsz: codeOffset + codeSize, Align: codeOffset,
	})
	w.Write(symbols.Bytes())
	w.Write(names.Bytes())
	w.WriteString(sectionNames)
	w.Write(make([]byte, int(secOff)-w.Len()))
	for _, s := range []elf.Section64{
		{},
		{Name: 1, Type: uint32(elf.SHT_PROGBITS), Flags: uint64(elf.SHF_ALLOC | elf.SHF_EXECINSTR), Addr: codeOffset, Off: codeOffset, Size: codeSize, Addralign: 64},
		{Name: 7, Type: uint32(elf.SHT_SYMTAB), Off: symOff, Size: uint64(symbols.Len()), Link: 3, Info: 1, Addralign: 8, Entsize: 24},
		{Name: 15, Type: uint32(elf.SHT_STRTAB), Off: nameOff, Size: uint64(names.Len()), Addralign: 1},
		{Name: 23, Type: uint32(elf.SHT_STRTAB), Off: secNameOff, Size: uint64(len(sectionNames)), Addralign: 1},
	} {
		put(&w, s)
	}
	if w.Len() > codeOffset {
		return nil, fmt.Errorf("the image's headers need %d bytes", w.Len())
	}
	w.Write(make([]byte, codeOffset-w.Len()))
	w.Write(code())
	return w.Bytes(), nil
}

// offsetOf is where in the image the function is.
func offsetOf(name string) (uint64, error) {
	for _, f := range functions {
		if f.name == name {
			return codeOffset + f.off, nil
		}
	}
	return 0, fmt.Errorf("there is no function %q", name)
}
