package symbols

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// swaps are what a target can have done to the name of a file that it has mapped. other is another program.
var swaps = map[string]func(t *testing.T, path, other string){
	"renamed": func(t *testing.T, path, other string) { must(t, os.Rename(other, path)) },
	"link": func(t *testing.T, path, other string) {
		must(t, os.Remove(path))
		must(t, os.Symlink(other, path))
	},
	"pipe": func(t *testing.T, path, _ string) {
		must(t, os.Remove(path))
		must(t, unix.Mkfifo(path, 0o644))
	},
	"directory": func(t *testing.T, path, _ string) {
		must(t, os.Remove(path))
		must(t, os.Mkdir(path, 0o755))
	},
	"gone": func(t *testing.T, path, _ string) { must(t, os.Remove(path)) },
	"mounted over": func(t *testing.T, path, other string) {
		must(t, unix.Mount(other, path, "", unix.MS_BIND, ""))
		t.Cleanup(func() { must(t, unix.Unmount(path, unix.MNT_DETACH)) })
	},
}

// TestAFileIsNotTakenForTheOneThatWasMapped: its symbols would be other places of the program.
func TestAFileIsNotTakenForTheOneThatWasMapped(t *testing.T) {
	for name, swap := range swaps {
		t.Run(name, func(t *testing.T) {
			path, other := build(t, "names.c"), build(t, "names.c", "-falign-functions=512")
			tg := start(t, path)
			swap(t, path, other)
			if got := one(t, tg.open(t), "visible"); got.Addr != tg.said["visible"] {
				t.Errorf("visible is %+v, the program says %v", got, tg.said["visible"])
			}
		})
	}
}

// TestFilesThatChangeTheirNamesAllTheTime: what is told is of the mapped one, whenever that is looked for.
func TestFilesThatChangeTheirNamesAllTheTime(t *testing.T) {
	path, other := build(t, "names.c"), build(t, "names.c", "-falign-functions=512")
	tg := start(t, path)
	offset := func(l Location) uint64 { return uint64(l.Addr) - l.Symbol.Module.Bias }
	if offset(one(t, start(t, other).open(t), "visible")) == offset(one(t, tg.open(t), "visible")) {
		t.Fatal("both programs have the function at the same place")
	}
	over := make(chan struct{})
	var swapping sync.WaitGroup
	swapping.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, path, unix.AT_FDCWD, other, unix.RENAME_EXCHANGE)
			}
		}
	})
	defer swapping.Wait()
	defer close(over)
	right := 0
	for range 200 {
		tab, err := Open(tg.pid, tg.mem)
		if err != nil {
			t.Fatal(err)
		}
		locs, err := tab.Resolve(t.Context(), filepath.Base(path)+":visible")
		if err != nil {
			locs, err = tab.Resolve(t.Context(), "visible")
		}
		if err == nil && len(locs) == 1 && locs[0].Addr == tg.said["visible"] {
			right++
		} else if len(locs) > 0 {
			t.Fatalf("visible is %v, the program says %v", locs, tg.said["visible"])
		}
		_ = tab.Close()
	}
	if right == 0 {
		t.Error("it was never found")
	}
}
