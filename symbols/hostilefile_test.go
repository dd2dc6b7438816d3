package symbols

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// link replaces prog's .gnu_debuglink.
func link(t *testing.T, prog, name string, debug []byte) {
	t.Helper()
	content := append([]byte(name), make([]byte, 4-len(name)%4)...)
	content = binary.LittleEndian.AppendUint32(content, crc32.ChecksumIEEE(debug))
	file := filepath.Join(t.TempDir(), "link")
	must(t, os.WriteFile(file, content, 0o600))
	run(t, "objcopy", "--add-section", ".gnu_debuglink="+file, prog)
}

// opens counts how often a file was opened, by anybody: the kernel tells.
func opens(t *testing.T, file string) func() int {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	must(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	_, err = unix.InotifyAddWatch(fd, file, unix.IN_OPEN)
	must(t, err)
	return func() int {
		b := make([]byte, 4096)
		n, err := unix.Read(fd, b)
		if errors.Is(err, unix.EAGAIN) {
			return 0
		}
		must(t, err)
		return n / unix.SizeofInotifyEvent
	}
}

// stripped is an executable without symbols, and its debug file.
func stripped(t *testing.T, flags ...string) (prog, debug string, content []byte) {
	t.Helper()
	prog = build(t, "names.c", append(flags, "-g", "-Wl,--build-id=none")...)
	debug = filepath.Join(filepath.Dir(prog), "elsewhere", "secret")
	splitDebug(t, prog, debug)
	content, err := os.ReadFile(debug)
	must(t, err)
	return prog, debug, content
}

// The name in .gnu_debuglink is that of a file beside the program, and nothing else.
func TestADebugLinkLeadsNowhereElse(t *testing.T) {
	for _, name := range []string{"elsewhere/secret", "../%/elsewhere/secret", "./elsewhere/secret", "/%%/elsewhere/secret", "..", "."} {
		prog, debug, content := stripped(t)
		name = strings.NewReplacer("%%", filepath.Dir(prog), "%", filepath.Base(filepath.Dir(prog))).Replace(name)
		link(t, prog, name, content)
		count := opens(t, debug)
		tg := start(t, prog)
		if _, err := tg.open(t).Resolve(t.Context(), "hidden"); err == nil {
			t.Errorf("%q was followed", name)
		}
		if n := count(); n != 0 {
			t.Errorf("%q: the file was opened %d times", name, n)
		}
	}
}

// What lies where a debug file would may be anything: a FIFO makes who opens it wait for a writer, and a device may do
// something. Neither is touched, and neither keeps us.
func TestADebugFileThatIsNoneIsNotOpened(t *testing.T) {
	for kind, put := range map[string]func(string) error{
		"fifo":      func(at string) error { return unix.Mkfifo(at, 0o666) },
		"device":    func(at string) error { return os.Symlink("/dev/zero", at) },
		"directory": func(at string) error { return os.Mkdir(at, 0o755) },
		"proc":      func(at string) error { return os.Symlink("/proc/self/mem", at) },
	} {
		prog, _, content := stripped(t)
		link(t, prog, "prog.debug", content)
		at := filepath.Join(filepath.Dir(prog), "prog.debug")
		must(t, put(at))
		count := opens(t, at)
		tg := start(t, prog)
		if _, err := tg.open(t).Resolve(t.Context(), "hidden"); err == nil {
			t.Errorf("%s: there are symbols", kind)
		}
		if n := count(); n != 0 {
			t.Errorf("%s: it was opened %d times", kind, n)
		}
	}
}

// A target of another root directory names files below it. That ours has one of the same name means nothing.
func TestADebugFileIsNotLookedForOutsideOfTheTargetsRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("chroot needs root")
	}
	prog, debug, content := stripped(t, "-static")
	link(t, prog, "prog.debug", content)
	dir := filepath.Dir(prog)
	jail, global := filepath.Join(dir, "jail"), filepath.Join(dir, "global")
	must(t, os.Mkdir(jail, 0o755))
	must(t, os.Rename(prog, filepath.Join(jail, "prog")))
	var counts []func() int
	for _, at := range []string{filepath.Join(global, "prog.debug"), filepath.Join(global, jail, "prog.debug")} {
		must(t, os.MkdirAll(filepath.Dir(at), 0o755))
		must(t, os.WriteFile(at, content, 0o644))
		counts = append(counts, opens(t, at))
	}
	if _, err := start(t, filepath.Join(jail, "prog")).open(t, WithDebugDirs(global)).Resolve(t.Context(), "hidden"); err != nil {
		t.Fatalf("the debug file is none: %v", err)
	}
	if counts[0]()+counts[1]() != 1 {
		t.Fatal("openings are not counted")
	}
	chrooted := func() *target {
		cmd := exec.Command("/prog")
		cmd.Path, cmd.Err, cmd.Dir = "/prog", nil, "/"
		cmd.SysProcAttr = &unix.SysProcAttr{Chroot: jail}
		return startCmd(t, cmd)
	}
	if _, err := chrooted().open(t, WithDebugDirs(global)).Resolve(t.Context(), "hidden"); err == nil || counts[0]()+counts[1]() != 0 {
		t.Errorf("a file outside of its root was used: %v", err)
	}
	must(t, os.Rename(debug, filepath.Join(jail, "prog.debug")))
	if _, err := chrooted().open(t, WithDebugDirs(global)).Resolve(t.Context(), "hidden"); err != nil {
		t.Errorf("the file in its root was not used: %v", err)
	}
}

// Of a program whose file can't be read nobody knows whether it is stripped.
func TestAProgramWhoseFileIsNotReadIsNotCalledStripped(t *testing.T) {
	prog, _, _ := stripped(t)
	table := start(t, prog).open(t)
	const unread = "can't be read, and its memory names"
	for _, why := range []error{nil, unix.EMFILE} {
		for _, m := range table.Modules() {
			if m.Kind == KindExecutable {
				m.img.unopened = why
			}
		}
		_, err := table.Resolve(t.Context(), "hidden")
		if err == nil || strings.Contains(err.Error(), "is stripped") != (why == nil) || strings.Contains(err.Error(), unread) != (why != nil) {
			t.Errorf("its file was not opened for %v: %v", why, err)
		}
	}
}
