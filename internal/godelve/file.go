package godelve

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/go-delve/delve/pkg/dwarf/godwarf"
)

// mostDebugInfo bounds what Delve reads, in bytes of debug information.
const mostDebugInfo = 1 << 30

var (
	errNoDebugInfo = errors.New("the program has no debug information of its own, which Delve reads: build it without -ldflags -w or -s")
	errLarge       = fmt.Errorf("the program has more debug information than Delve is given: %d MiB", mostDebugInfo>>20)
	errLink        = errors.New("the program names a file that has its debug information (.gnu_debuglink), and Delve is to open no other one: take the section away by objcopy -R .gnu_debuglink, or use a build that has none")
	errKind        = errors.New("the program is no regular file")
)

// checkFile refuses, by its sections alone, a program in which Delve would find no debug information: it would look for a file whose name the program chooses.
func checkFile(file *os.File) error {
	if st, err := file.Stat(); err != nil || !st.Mode().IsRegular() {
		return errKind
	}
	f, err := elf.NewFile(file)
	if err != nil {
		return fmt.Errorf("opening the program: %w", err)
	}
	size, has := uint64(0), false
	for _, s := range f.Sections {
		switch {
		case s.Name == ".gnu_debuglink":
			return errLink
		case strings.HasPrefix(s.Name, ".debug_"), strings.HasPrefix(s.Name, ".zdebug_"):
			if s.Size > mostDebugInfo || s.FileSize > mostDebugInfo {
				return errLarge
			}
			size += max(s.Size, s.FileSize)
			has = has || strings.HasSuffix(s.Name, "debug_info") && s.Type != elf.SHT_NOBITS && s.Size > 0
		}
	}
	switch {
	case size > mostDebugInfo:
		return errLarge
	case !has:
		return errNoDebugInfo
	}
	return nil
}

// checkDebugInfo also reads the sections. What they say may take any time and memory.
func checkDebugInfo(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("opening the program: %w", err)
	}
	defer file.Close()
	if err := checkFile(file); err != nil {
		return err
	}
	f, err := elf.NewFile(file)
	if err != nil {
		return fmt.Errorf("opening the program: %w", err)
	}
	if _, err := f.DWARF(); err != nil {
		return fmt.Errorf("the program's debug information is damaged: %w", err)
	}
	if info, err := godwarf.GetDebugSectionElf(f, "info"); err != nil || len(info) == 0 {
		return errNoDebugInfo
	}
	return nil
}
