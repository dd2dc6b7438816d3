package bench

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"

	"github.com/gokprobe/gokprobe/internal/host"
)

// function is a function of an image, by where it is in the code.
type function = struct {
	Name      string
	Off, Size uint64
}

// codeOffset is where in the image's file, and in its mapping, the code lies.
const codeOffset = 0x1000

// The symbol of each function is prefixed, so that no other program's can be meant.
const symbolPrefix = "gokprobe_bench_"

// hotImage is a shared object that holds the code.
func hotImage() []byte { return image(host.Workload(), host.WorkloadFunctions) }

// manyFunctions is how many functions the other shared object has: f_0, f_1, ….
const manyFunctions = 10_000

// manyImage is a shared object of many small functions that nobody calls.
func manyImage() []byte {
	one := host.WorkloadSmall
	all := make([]function, manyFunctions)
	for i := range all {
		all[i] = function{fmt.Sprintf("f_%d", i), uint64(i * len(one)), host.WorkloadSmallSize}
	}
	return image(bytes.Repeat(one, len(all)), all)
}

// image is a shared object: one segment, readable and executable, and the functions' symbols.
func image(code []byte, functions []function) []byte {
	var names, symbols bytes.Buffer
	names.WriteByte(0)
	put := func(w *bytes.Buffer, v any) { _ = binary.Write(w, binary.LittleEndian, v) } // to a Buffer it can't fail
	put(&symbols, elf.Sym64{})
	for _, f := range functions {
		put(&symbols, elf.Sym64{
			Name: uint32(names.Len()), Info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_FUNC), Shndx: 1,
			Value: codeOffset + f.Off, Size: f.Size,
		})
		names.WriteString(symbolPrefix + f.Name + "\x00")
	}
	const sectionNames = "\x00.text\x00.symtab\x00.strtab\x00.shstrtab\x00"
	symOff := codeOffset + uint64(len(code)+7)&^7
	nameOff := symOff + uint64(symbols.Len())
	secNameOff := nameOff + uint64(names.Len())
	secOff := (secNameOff + uint64(len(sectionNames)) + 7) &^ 7
	var w bytes.Buffer
	at := func(off uint64, data []byte) {
		w.Write(make([]byte, int(off)-w.Len()))
		w.Write(data)
	}
	put(&w, elf.Header64{
		Ident: [16]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_DYN), Machine: uint16(host.Machine), Version: uint32(elf.EV_CURRENT),
		Phoff: 64, Shoff: secOff, Ehsize: 64, Phentsize: 56, Phnum: 1, Shentsize: 64, Shnum: 5, Shstrndx: 4,
	})
	put(&w, elf.Prog64{
		Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X),
		Filesz: codeOffset + uint64(len(code)), Memsz: codeOffset + uint64(len(code)), Align: codeOffset,
	})
	at(codeOffset, code)
	at(symOff, symbols.Bytes())
	at(nameOff, names.Bytes())
	at(secNameOff, []byte(sectionNames))
	at(secOff, nil)
	for _, s := range []elf.Section64{
		{},
		{Name: 1, Type: uint32(elf.SHT_PROGBITS), Flags: uint64(elf.SHF_ALLOC | elf.SHF_EXECINSTR), Addr: codeOffset, Off: codeOffset, Size: uint64(len(code)), Addralign: 64},
		{Name: 7, Type: uint32(elf.SHT_SYMTAB), Off: symOff, Size: uint64(symbols.Len()), Link: 3, Info: 1, Addralign: 8, Entsize: 24},
		{Name: 15, Type: uint32(elf.SHT_STRTAB), Off: nameOff, Size: uint64(names.Len()), Addralign: 1},
		{Name: 23, Type: uint32(elf.SHT_STRTAB), Off: secNameOff, Size: uint64(len(sectionNames)), Addralign: 1},
	} {
		put(&w, s)
	}
	return w.Bytes()
}

// offsetOf is where in the image the function is.
func offsetOf(name string) (uint64, error) {
	for _, f := range host.WorkloadFunctions {
		if f.Name == name {
			return codeOffset + f.Off, nil
		}
	}
	return 0, fmt.Errorf("there is no function %q", name)
}
