package symbols

import (
	"os"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// Where an entry is told to end without being parsed, the parsed one ends, too.
func TestFramesEndWhereTheirEntriesSay(t *testing.T) {
	libc := ""
	for _, path := range []string{"/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib64/libc.so.6", "/lib64/libc.so.6"} {
		if _, err := os.Stat(path); err == nil {
			libc = path
			break
		}
	}
	for _, path := range []string{testprog.Build(t, "prey"), libc} {
		if path == "" {
			continue
		}
		img := file(t, path).Modules()[0].img
		frames := &img.frames
		frames.once.Do(func() { img.loadFrames(frames) })
		early := 0
		for _, at := range frames.index {
			f, _ := img.parseFrame(at)
			if f == nil {
				continue
			}
			size := f.End() - f.Begin()
			for _, n := range []uint64{0, 1, size - 1, size, size + 1, size + 4096} {
				ends := img.ends(frames, at, n)
				if ends && n < size || n >= size && !ends {
					t.Fatalf("%s: entry at %#x of %d bytes: ends in front of byte %d: %v", path, at.fde, size, n, ends)
				}
				early++
			}
		}
		if early == 0 {
			t.Errorf("%s has no entries", path)
		}
	}
}
