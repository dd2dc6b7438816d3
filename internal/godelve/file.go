package godelve

import (
	"debug/elf"
	"errors"
	"fmt"
	"strings"

	"github.com/go-delve/delve/pkg/dwarf/godwarf"
)

// mostDebugInfo bounds what Delve reads, in bytes of debug information.
const mostDebugInfo = 1 << 30

var (
	errNoDebugInfo = errors.New("the program has no debug information of its own, which Delve reads: build it without -ldflags -w or -s")
	errLarge       = fmt.Errorf("the program has more debug information than Delve is given: %d MiB", mostDebugInfo>>20)
)

// checkFile refuses a program in which Delve would find no debug information: it would look for a file whose name the program chooses.
func checkFile(path string) error {
	f, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("opening the program: %w", err)
	}
	defer f.Close()
	size := uint64(0)
	for _, s := range f.Sections {
		if strings.HasPrefix(s.Name, ".debug_") || strings.HasPrefix(s.Name, ".zdebug_") {
			if s.Size > mostDebugInfo || s.FileSize > mostDebugInfo {
				return errLarge
			}
			size += max(s.Size, s.FileSize)
		}
	}
	if size > mostDebugInfo {
		return errLarge
	}
	if info, err := godwarf.GetDebugSectionElf(f, "info"); err != nil || len(info) == 0 {
		return errNoDebugInfo
	}
	return nil
}
