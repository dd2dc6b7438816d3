package ptrace

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
)

// TestOnlyTheFileThatIsMappedIsOpened: another one may have its name by now, or none may. Who may not ask the kernel for a mapping's file gets an error then.
func TestOnlyTheFileThatIsMappedIsOpened(t *testing.T) {
	want := must2(os.ReadFile(testprog.Build(t, "siblings")))
	for _, c := range []struct {
		name   string
		change func(file string)
		there  bool // by its name
	}{
		{"as it was", func(string) {}, true},
		{"deleted", func(file string) { must(os.Remove(file)) }, false},
		{"replaced", func(file string) {
			must(os.WriteFile(file+".new", []byte("another"), 0o755))
			must(os.Rename(file+".new", file))
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "program")
			must(os.WriteFile(file, want, 0o755))
			prog := testprog.Start(t, file)
			maps := must2(procfs.Maps(prog.PID()))
			m := maps[slices.IndexFunc(maps, func(m procfs.Mapping) bool { return m.Path == file && m.Exec })]
			c.change(file)
			for _, inode := range []uint64{m.Inode, ^m.Inode} {
				m.Inode = inode
				f, err := OpenMapped(prog.PID(), m)
				if err != nil {
					if c.there && inode == maps[0].Inode || !errors.Is(err, unix.ENOENT) {
						t.Errorf("inode %d: %v", inode, err)
					}
					continue
				}
				got, err := io.ReadAll(io.NewSectionReader(f, 0, int64(len(want))+1))
				if f.Close(); inode != maps[0].Inode || err != nil || !bytes.Equal(got, want) {
					t.Errorf("inode %d: %d bytes of another file, %v", inode, len(got), err)
				}
			}
			must(os.RemoveAll(file))
			must(os.WriteFile(file, want, 0o755)) // what the program is compared with
			prog.Kill()
		})
	}
}
