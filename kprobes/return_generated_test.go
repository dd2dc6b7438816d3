package kprobes

import (
	"testing"

	"github.com/gokprobe/gokprobe/internal/procfs"
)

// TestWhatIsOfNoFile: memory for generated code has names that are none of files.
func TestWhatIsOfNoFile(t *testing.T) {
	for path, want := range map[string]bool{
		"": true, "[anon:v8]": true, "[anon_shmem:jit]": true, "[heap]": true, "[stack]": true, "/memfd:doublemapper": true, "/dev/zero": true,
		"[vdso]": false, "/usr/lib/libc.so.6": false, "/tmp/memfd:x": false,
	} {
		if got := ofNoFile(&procfs.Mapping{Path: path}); got != want {
			t.Errorf("%q: %v", path, got)
		}
	}
}
