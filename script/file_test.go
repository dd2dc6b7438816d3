package script

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOnlyRegularFilesOfSomeSizeAreRead: each of the others would hang, or take all memory, while a target is held.
func TestOnlyRegularFilesOfSomeSizeAreRead(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(unix.Mkfifo(in("fifo.star"), 0o600), os.Mkdir(in("dir.star"), 0o700), os.Symlink("/dev/zero", in("zero.star")),
		os.WriteFile(in("huge.star"), nil, 0o600), os.Truncate(in("huge.star"), 30<<30),
		os.Symlink("/proc/self/maps", in("proc.star")), os.Symlink("huge.star", in("link.star")),
		os.WriteFile(in("long.star"), []byte("x = 1\n#"+strings.Repeat("1", maxSource-7)), 0o600),
		os.WriteFile(in("good.star"), []byte("y = 2"), 0o600), os.Symlink("good.star", in("alias.star"))); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]error{
		"fifo.star": ErrSource, "dir.star": ErrSource, "zero.star": ErrSource, "huge.star": ErrSource, "proc.star": ErrSource, "link.star": ErrSource,
		"none.star": fs.ErrNotExist, "good.star": nil, "alias.star": nil, "long.star": nil,
	} {
		if _, err := Load(in(name), Options{}); !errors.Is(err, want) {
			t.Errorf("%s: %v", name, err)
		}
		_, err := load(in("main.star"), []byte(`load("`+name+`", "x")`), Options{})
		switch {
		case errors.Is(want, ErrSource) && (err == nil || !strings.Contains(err.Error(), "regular file")):
			t.Errorf("load %s: %v", name, err)
		case want == nil && name == "long.star" && err != nil:
			t.Errorf("load %s: %v", name, err)
		}
	}
}
