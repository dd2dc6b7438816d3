package targetfs

import (
	"errors"
	"os"
	"testing"
)

// TestOnlySoManyFilesAreOpenAtOnce: and each that is closed, also twice, makes room for one.
func TestOnlySoManyFilesAreOpenAtOnce(t *testing.T) {
	exe, err := os.Executable()
	must(t, err)
	var all []*File
	for {
		f, err := Named(exe)
		if errors.Is(err, ErrTooMany) {
			break
		}
		must(t, err)
		if all = append(all, f); len(all) > mostFiles {
			t.Fatalf("%d files are open", len(all))
		}
	}
	must(t, all[0].Close())
	_ = all[0].Close()
	f, err := Named(exe)
	must(t, err)
	all[0] = f
	if f, err := Named(exe); !errors.Is(err, ErrTooMany) {
		t.Errorf("one more is opened: %v, %v", f, err)
	}
	for _, f := range all {
		must(t, f.Close())
	}
}
