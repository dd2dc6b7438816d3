package layers

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// opening are the files of the project that open files by name, and why none of these names is one that a target has chosen. A name
// that a target has any part in goes through internal/targetfs.
var opening = map[string]string{
	"cmd/gokprobe/check.go":             "/proc/PID/mem of a child",
	"cmd/gokprobe/checkhost.go":         "/proc/sys, /proc/cpuinfo",
	"cmd/gokprobe/checkproc.go":         "/proc/PID/mem and ns",
	"cmd/gokprobe/flags.go":             "the output that the user has named",
	"cmd/gokprobe/man.go":               "the directory that the user has named, for man pages",
	"cmd/gokprobe/sample.go":            "/proc/self/mem",
	"cmd/gokprobe/mapwatch.go":          "a file that the user has named, the names in /proc",
	"cmd/gokprobe/script.go":            "a script that the user has named",
	"cmd/gokprobe/target.go":            "the names in /proc",
	"internal/debuginfod/debuginfod.go": "files of our own cache, by build ID",
	"internal/door/caretaker.go":        "our own descriptors",
	"internal/door/mount.go":            "/dev/fuse, and a directory that the user has named",
	"internal/door/socket.go":           "the directory of our sockets",
	"internal/godelve/evaluator.go":     "/proc/PID/exe",
	"internal/godelve/file.go":          "/proc/self/fd/4, the same file",
	"internal/guardian/another.go":      "/proc/PID/cmdline",
	"internal/guardian/guardian.go":     "/dev/null",
	"internal/guardian/inherited.go":    "/proc/self/fd",
	"internal/guardian/tracer.go":       "/dev/null",
	"internal/helper/helper.go":         "/dev/null, /proc/self/statm",
	"internal/lean/lean.go":             "/proc/self/statm",
	"cmd/gokprobe/log.go":               "what the user names",
	"internal/recovery/owner.go":        "/proc/self/ns",
	"internal/procfs/fileid.go":         "nothing: it is given a file",
	"internal/procfs/pagemap.go":        "/proc/PID/pagemap",
	"internal/procfs/procfs.go":         "/proc/PID",
	"ptrace/access.go":                  "/proc/PID/root",
	"ptrace/attach.go":                  "/proc/PID/task",
	"ptrace/bell.go":                    "/dev/null",
	"ptrace/diagnose.go":                "/proc/PID/status and ns",
	"ptrace/memfd.go":                   "our own descriptors: the one of the target is pinned, and looked at, before",
	"ptrace/reach.go":                   "/proc/PID/maps, mem and pagemap",
	"ptrace/silent.go":                  "/proc/PID/mountinfo",
}

// own are the rooms that look at no target that anybody else has chosen: tools and tests of the project; and the one way to a target's files.
var own = []string{"bench", "internal/bench", "internal/coverage", "internal/figures", "internal/prose", "internal/testprog", "internal/layers", "internal/targetfs", "examples/"}

func TestFilesThatATargetNamesAreOpenedInOneRoom(t *testing.T) {
	for _, p := range goList(t, "GOOS=linux", "GOARCH=amd64") {
		room := strings.TrimPrefix(p.ImportPath, Module+"/")
		mine := false
		for _, o := range own {
			mine = mine || room == o || strings.HasSuffix(o, "/") && strings.HasPrefix(room, o)
		}
		if mine {
			continue
		}
		calls, err := Opens(p)
		if err != nil {
			t.Error(err)
		}
		for _, c := range calls {
			if file, _, _ := strings.Cut(c, ":"); opening[room+"/"+file] == "" {
				t.Errorf("%s/%s: a name that a target may have chosen is opened by internal/targetfs; any other is told of in this test", room, c)
			}
		}
	}
}

func TestOpeningByNameIsSeen(t *testing.T) {
	dir := t.TempDir()
	src := "package x\nimport (o \"os\"; \"debug/elf\"; \"golang.org/x/sys/unix\")\nfunc f() { o.Open(``); elf.Open(``); unix.Openat(0, ``, 0, 0); o.Exit(0) }\n"
	if err := os.WriteFile(filepath.Join(dir, "x.go"), []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	calls, err := Opens(Package{Dir: dir, GoFiles: []string{"x.go"}})
	if err != nil || len(calls) != 3 {
		t.Errorf("found %q, %v", calls, err)
	}
}
