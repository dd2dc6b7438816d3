package main

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// A section that claims 6 GiB is left out, one sentence says so, and what else there is of names is listed.
func TestListTellsWhatOfAFileIsNotRead(t *testing.T) {
	prog := filepath.Join(t.TempDir(), "prog")
	out, err := exec.Command("objcopy", "--compress-debug-sections=zlib-gnu", testprog.Build(t, "prey"), prog).CombinedOutput()
	if err != nil {
		t.Fatalf("objcopy: %v\n%s", err, out)
	}
	b, err := os.ReadFile(prog)
	if err != nil {
		t.Fatal(err)
	}
	n := bytes.Count(b, []byte("ZLIB"))
	for at := 0; ; at += 4 {
		i := bytes.Index(b[at:], []byte("ZLIB\x00"))
		if i < 0 {
			break
		}
		at += i
		binary.BigEndian.PutUint64(b[at+4:], 6<<30)
	}
	if n == 0 {
		t.Fatal("nothing is compressed")
	}
	if err := os.WriteFile(prog, b, 0o700); err != nil {
		t.Fatal(err)
	}
	r := gokprobe(t, "list", "-lines", "-x", prog, "foo")
	if r.status != 0 || !strings.Contains(r.stdout, "foo") || !strings.Contains(r.stderr, "was not read whole") {
		t.Errorf("status %d\n%s%s", r.status, r.stdout, r.stderr)
	}
}
