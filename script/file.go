package script

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/gokprobe/gokprobe/internal/targetfs"
)

// maxSource is the most bytes of one file. Its tree of expressions is walked recursively, as deep as the file is long.
const maxSource = 1 << 20

// ErrSource tells that a file can't be a scenario's.
var ErrSource = errors.New("a scenario's file must be a regular file of at most 1 MiB")

// readSource reads a file. It waits for nobody: no pipe's writer, no device, no file system that does not answer.
func readSource(name string) ([]byte, error) {
	f, err := targetfs.Named(name)
	if errors.Is(err, targetfs.ErrNotRegular) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: ErrSource}
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if f.Size > maxSource {
		return nil, &fs.PathError{Op: "read", Path: name, Err: fmt.Errorf("%w, this one has %d", ErrSource, f.Size)}
	}
	return io.ReadAll(io.NewSectionReader(f, 0, f.Size))
}
