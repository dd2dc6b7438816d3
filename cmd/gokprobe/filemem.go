package main

import (
	"debug/elf"
	"errors"

	"github.com/gokprobe/gokprobe/arch"
)

var errNoCode = errors.New("no code in the file or process there")

// fileMemory is a program file as memory, at its link-time addresses.
type fileMemory struct{ file *elf.File }

func openFileMemory(path string) (fileMemory, error) {
	f, err := elf.Open(path)
	return fileMemory{f}, err
}

// ReadMemory reads what the file says about at.
func (m fileMemory) ReadMemory(at arch.Addr, p []byte) error {
	for _, seg := range m.file.Progs {
		if seg.Type != elf.PT_LOAD || uint64(at) < seg.Vaddr || uint64(at)+uint64(len(p)) > seg.Vaddr+seg.Filesz {
			continue
		}
		_, err := seg.ReadAt(p, int64(uint64(at)-seg.Vaddr))
		return err
	}
	return &arch.FaultError{Addr: at, Cause: errNoCode}
}

// WriteMemory fails: files are only read.
func (m fileMemory) WriteMemory(at arch.Addr, _ []byte) error {
	return &arch.FaultError{Addr: at, Write: true, Cause: errNoCode}
}
