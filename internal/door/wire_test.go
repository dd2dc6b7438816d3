package door

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestModesSurviveTheWire(t *testing.T) {
	for perm := range fs.FileMode(0o1000) {
		for _, mode := range []fs.FileMode{perm, perm | fs.ModeDir} {
			if got := (entry{EntryMode: mode.String()}).Mode(); got != mode {
				t.Fatalf("%v becomes %v", mode, got)
			}
		}
	}
}

func TestErrnosSurviveTheWire(t *testing.T) {
	for e := syscall.Errno(1); e < maxErrno; e++ {
		if name := unix.ErrnoName(e); name != "" && errnoNamed(name) != e {
			t.Errorf("%s becomes %v", name, errnoNamed(name))
		}
		if status := statusOf(e); status < 400 || http.StatusText(status) == "" {
			t.Errorf("%v has status %d", e, status)
		}
	}
	if errnoNamed("") != unix.EIO || errnoNamed("ENOSUCH") != unix.EIO {
		t.Error("an errno that nobody knows is not EIO")
	}
}

func TestEveryErrorHasAnErrno(t *testing.T) {
	for _, row := range []struct {
		err  error
		want syscall.Errno
	}{
		{nil, 0},
		{errors.New("no idea"), unix.EIO},
		{unix.EBUSY, unix.EBUSY},
		{fmt.Errorf("x: %w", &fs.PathError{Err: unix.EBUSY}), unix.EBUSY},
		{fmt.Errorf("x: %w", byMethod{}), unix.EILSEQ},
		{errors.Join(errors.New("x"), unix.ESRCH), unix.ESRCH},
		{fs.ErrNotExist, unix.ENOENT},
		{fs.ErrPermission, unix.EACCES},
		{fs.ErrExist, unix.EEXIST},
		{fs.ErrInvalid, unix.EINVAL},
		{fs.ErrClosed, unix.EBADF},
	} {
		if got := Errno(row.err); got != row.want {
			t.Errorf("%v is %v", row.err, got)
		}
	}
}

// FuzzEntry: whatever a server says of a file, it is a file or a directory with permissions.
func FuzzEntry(f *testing.F) {
	f.Add(`{"name":"list","mode":"-r--------","size":0}`)
	f.Add(`{"name":"a","mode":"drwxr-xr-x","size":-1}`)
	f.Add(`{"mode":"d"}`)
	f.Add(`{"mode":"Dugtrwxrwxrwx"}`)
	f.Fuzz(func(t *testing.T, header string) {
		e, err := decodeEntry(http.Header{headerInfo: {header}})
		if err != nil {
			return
		}
		mode := e.Mode()
		if mode.Type() != 0 && mode.Type() != fs.ModeDir || e.IsDir() != mode.IsDir() || e.Type() != mode.Type() {
			t.Errorf("%q has mode %v", header, mode)
		}
		if again, err := decodeEntry(http.Header{headerInfo: {newEntry(e).encode()}}); err != nil || again.Mode() != mode {
			t.Errorf("%q becomes %v: %v", header, again, err)
		}
	})
}
