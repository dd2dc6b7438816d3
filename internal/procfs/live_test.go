//go:build linux

package procfs

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"syscall"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
)

// The oracle is the running test itself, through the os package and system calls.
func TestOwnProcessIsDescribedTruly(t *testing.T) {
	pid := os.Getpid()
	s, err := ReadStatus(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	if s.Pid != pid || s.Tgid != pid || s.PPid != os.Getppid() || s.UIDs[1] != os.Geteuid() || s.GIDs[1] != os.Getegid() || s.KernelThread {
		t.Errorf("status %+v", s)
	}
	if !s.SigCgt.Has(int(syscall.SIGURG)) { // the Go runtime preempts with it
		t.Errorf("SIGURG not caught: %x", s.SigCgt)
	}
	st, err := ReadStat(pid, pid)
	if err != nil || st.Pid != pid || st.PPid != os.Getppid() || st.Comm != s.Name || st.StartTime == 0 || st.Flags&PFKthread != 0 {
		t.Errorf("stat %+v, %v", st, err)
	}
	if comm, err := Comm(pid, 0); err != nil || comm != s.Name {
		t.Errorf("comm %q, %v; status says %q", comm, err, s.Name)
	}
	if args, err := Cmdline(pid); err != nil || !slices.Equal(args, os.Args) {
		t.Errorf("cmdline %q, %v; want %q", args, err, os.Args)
	}
	want, err := os.Executable()
	if exe, err2 := Exe(pid); err != nil || err2 != nil || exe != want {
		t.Errorf("exe %q, %v; want %q, %v", exe, err2, want, err)
	}
	if tids, err := Tasks(pid); err != nil || !slices.Contains(tids, pid) || len(tids) < s.Threads-1 {
		t.Errorf("tasks %v, %v; status says %d threads", tids, err, s.Threads)
	}
}

func TestOwnMapsHoldOwnCode(t *testing.T) {
	maps, err := Maps(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	exe, _ := os.Executable()
	here := arch.Addr(reflect.ValueOf(TestOwnMapsHoldOwnCode).Pointer())
	i := slices.IndexFunc(maps, func(m Mapping) bool { return m.Range.Contains(here) })
	if i < 0 || maps[i].Path != exe || !maps[i].Exec || maps[i].Write || maps[i].Anonymous() {
		t.Errorf("no mapping of %s, r-x, holds %v:\n%+v", exe, here, maps)
	}
	for i := 1; i < len(maps); i++ {
		if maps[i].Range.Start < maps[i-1].Range.End {
			t.Errorf("mappings out of order: %v, %v", maps[i-1].Range, maps[i].Range)
		}
	}
}

// What is asked for mapping by mapping is what the text says.
func TestMapsAreWhatTheirTextSays(t *testing.T) {
	c := exec.Command("cat")
	in, err1 := c.StdinPipe()
	out, err2 := c.StdoutPipe()
	if err := errors.Join(err1, err2, c.Start()); err != nil {
		t.Fatal(err)
	}
	defer c.Wait()
	defer in.Close()
	line := []byte("mapped\n")
	if _, err := in.Write(line); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, line); err != nil { // then it has mapped what it maps
		t.Fatal(err)
	}
	b, err1 := os.ReadFile(path(c.Process.Pid, 0, "maps"))
	text, err2 := ParseMaps(bytes.NewReader(b))
	maps, err3 := Maps(c.Process.Pid)
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(maps, text) {
		t.Errorf("%+v\nwant %+v", maps, text)
	}
	checkMapAt(t, c.Process.Pid, maps)
}

// Vacant is true of exactly what lies between mappings, and of nothing where the kernel can't be asked.
func TestWhatIsVacantLiesBetweenMappings(t *testing.T) {
	const long = 16 * pageSize
	at, _, errno := syscall.Syscall6(syscall.SYS_MMAP, 0, long, syscall.PROT_NONE, syscall.MAP_PRIVATE|syscall.MAP_ANONYMOUS, ^uintptr(0), 0)
	if errno != 0 {
		t.Fatal(errno)
	}
	defer syscall.Syscall(syscall.SYS_MUNMAP, at, long, 0)
	if _, _, errno := syscall.Syscall(syscall.SYS_MUNMAP, at+4*pageSize, 8*pageSize, 0); errno != 0 {
		t.Fatal(errno)
	}
	f, err := Open("/proc/self/maps", os.O_RDONLY)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_, errno = AreaAt(f, arch.Addr(at))
	asked := errno == 0 // else nothing is known to be vacant
	for _, c := range []struct {
		from, to arch.Addr
		want     bool
	}{{4, 12, true}, {5, 6, true}, {3, 12, false}, {4, 13, false}, {0, 16, false}, {12, 13, false}} {
		r := arch.Range{Start: arch.Addr(at) + c.from*pageSize, End: arch.Addr(at) + c.to*pageSize}
		if got, want := Vacant(f, r), c.want && asked; got != want {
			t.Errorf("pages %d to %d: %v, want %v", c.from, c.to, got, want)
		}
	}
	if beyond := (arch.Range{Start: 1<<47 - pageSize, End: 1<<47 - 1}); Vacant(f, beyond) != asked {
		t.Errorf("%s: vacant is %v", beyond, !asked)
	}
}

// Of a mapping that is longer than all memory its pages are found as fast as those of a short one, and no more than was asked for.
func TestCopiedPagesOfAVeryLongMapping(t *testing.T) {
	name := filepath.Join(t.TempDir(), "sparse")
	const long = 1 << 42
	if err := os.WriteFile(name, make([]byte, 16*pageSize), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	at, _, errno := syscall.Syscall6(syscall.SYS_MMAP, 0, long, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_NORESERVE, f.Fd(), 0)
	if errno != 0 {
		t.Fatal(errno)
	}
	defer syscall.Syscall(syscall.SYS_MUNMAP, at, long, 0)
	start := arch.Addr(at)
	mem, err := os.OpenFile("/proc/self/mem", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	for _, page := range []arch.Addr{2, 3, 9} {
		if _, err := mem.WriteAt([]byte{1}, int64(start+page*pageSize)); err != nil {
			t.Fatal(err)
		}
	}
	pages := func(from, to arch.Addr) arch.Range {
		return arch.Range{Start: start + from*pageSize, End: start + to*pageSize}
	}
	for _, c := range []struct {
		r    arch.Range
		most uint64
		want []arch.Range
	}{
		{pages(0, 16), 1 << 20, []arch.Range{pages(2, 4), pages(9, 10)}},
		{pages(3, 9), 1 << 20, []arch.Range{pages(3, 4)}},
		{pages(0, 16), pageSize, []arch.Range{pages(2, 4)}},
		{arch.Range{Start: start, End: start + long}, 1 << 20, []arch.Range{pages(2, 4), pages(9, 10)}},
	} {
		got, err := Copied(os.Getpid(), c.r, c.most)
		if errors.Is(err, ErrTooMuch) && c.r.Len() == long { // before Linux 6.7
			continue
		}
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, %v, want %v", c.r, got, err, c.want)
		}
	}
}

// checkMapAt asks for each of the mappings alone, and for what lies in front of the first.
func checkMapAt(t *testing.T, pid int, maps []Mapping) {
	f, err := open(pid, "maps")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, _, err := MapAt(f, 0); err != nil {
		return // before Linux 6.11
	}
	if _, found, _ := MapAt(f, maps[0].Range.Start-1); found {
		t.Errorf("something is mapped in front of %v", maps[0].Range)
	}
	for _, want := range maps {
		if m, found, err := MapAt(f, want.Range.End-1); want.Path != "[vsyscall]" && (m != want || !found || err != nil) {
			t.Errorf("%+v, %v, %v, want %+v", m, found, err, want)
		}
	}
}

func TestOwnAuxvAgreesWithTheSystem(t *testing.T) {
	v, err := Auxv(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if v[6] != uint64(os.Getpagesize()) || v[12] != uint64(os.Geteuid()) { // AT_PAGESZ, AT_EUID
		t.Errorf("auxv %v", v)
	}
}

func TestChildrenAreListedUntilReaped(t *testing.T) {
	runtime.LockOSThread() // the thread that forks is the parent
	defer runtime.UnlockOSThread()
	c := exec.Command("cat")
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	forked := func() (by []int) {
		tids, err := Tasks(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		for _, tid := range tids {
			kids, err := Children(os.Getpid(), tid)
			if err != nil && !Gone(err) {
				t.Fatal(err)
			}
			if slices.Contains(kids, c.Process.Pid) {
				by = append(by, tid)
			}
		}
		return by
	}
	if by := forked(); !slices.Equal(by, []int{syscall.Gettid()}) {
		t.Errorf("child %d is listed for threads %v, want %d", c.Process.Pid, by, syscall.Gettid())
	}
	a, err1 := Children(os.Getpid(), 0)
	b, err2 := Children(os.Getpid(), os.Getpid())
	if !slices.Equal(a, b) || err1 != nil || err2 != nil {
		t.Errorf("thread 0 has %v, the leader has %v; %v, %v", a, b, err1, err2)
	}
	in.Close()
	if err := c.Wait(); err != nil {
		t.Fatal(err)
	}
	if by := forked(); len(by) > 0 {
		t.Errorf("reaped child %d is still listed for %v", c.Process.Pid, by)
	}
	_, err = ReadStatus(c.Process.Pid, 0)
	if !Gone(err) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("status of a reaped process: %v", err)
	}
}

func TestZombieAndMissingThread(t *testing.T) {
	c := exec.Command("true")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer c.Wait()
	_, _, e := syscall.Syscall6(syscall.SYS_WAITID, 1, uintptr(c.Process.Pid), 0, 0x1000004, 0, 0) // P_PID, no siginfo, WEXITED|WNOWAIT
	if e != 0 {
		t.Fatal(e)
	}
	if s, err := ReadStatus(c.Process.Pid, 0); err != nil || s.State != 'Z' || s.KernelThread {
		t.Errorf("zombie: %+v, %v", s, err)
	}
	if m, err := Maps(c.Process.Pid); len(m) != 0 {
		t.Errorf("zombie has mappings %v, %v", m, err)
	}
	if args, err := Cmdline(c.Process.Pid); err != nil || len(args) != 0 {
		t.Errorf("zombie has arguments %q, %v", args, err)
	}
	if _, err := ReadStat(c.Process.Pid, os.Getpid()); !Gone(err) {
		t.Errorf("a thread of another process: %v", err)
	}
}

func TestYamaScopeIsWhatTheKernelSays(t *testing.T) {
	_, err := os.Stat("/proc/sys/kernel/yama/ptrace_scope")
	scope, present := YamaScope()
	if present != (err == nil) || scope < 0 || scope > 3 {
		t.Errorf("scope %d, present %v; stat: %v", scope, present, err)
	}
}

// TestAFileIsTheSameByEveryName, and in its mappings.
func TestAFileIsTheSameByEveryName(t *testing.T) {
	dir := t.TempDir()
	var ids []FileID
	for _, name := range []string{"one", "link", "other"} {
		file := filepath.Join(dir, name)
		var err error
		if name == "link" {
			err = os.Link(filepath.Join(dir, "one"), file)
		} else {
			err = os.WriteFile(file, []byte(name), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		id, err := IdentifyFile(f)
		if err != nil || id.Inode == 0 {
			t.Errorf("%s: %v, %v", name, id, err)
		}
		ids = append(ids, id)
		_ = f.Close()
	}
	if ids[0] != ids[1] || ids[0] == ids[2] {
		t.Errorf("a file, a link to it, and another file: %v", ids)
	}
	exe, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer exe.Close()
	self, err := IdentifyFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	all, err := Maps(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(all, func(m Mapping) bool { return m.Exec && m.File() == self }) {
		t.Errorf("none of our executable mappings is of %v", self)
	}
}

// TestProcessesAreListedUnlessThereAreMany: one that is there all the while is never missing.
func TestProcessesAreListedUnlessThereAreMany(t *testing.T) {
	pids, err := Processes(1 << 22)
	if err != nil || !slices.Contains(pids, os.Getpid()) {
		t.Errorf("the processes are %v, %v: we are missing", pids, err)
	}
	if pids, err := Processes(1); !errors.Is(err, ErrMany) || pids != nil {
		t.Errorf("of no more than one process: %v, %v", pids, err)
	}
}

// TestLongFilesAreReadAsWellAsShortOnes: those that do not fit the buffer are left to who reads piece by piece.
func TestLongFilesAreReadAsWellAsShortOnes(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	for _, n := range []int{0, 1, usualSize - 1, usualSize, usualSize + 1, 3 * usualSize} {
		content := bytes.Repeat([]byte("x"), n)
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
		got, short, err := brief(name, func(b []byte) (string, error) { return string(b), nil })
		if err != nil || short != (n < usualSize) || short && got != string(content) {
			t.Errorf("%d bytes: read %d, short %v, %v", n, len(got), short, err)
		}
	}
	if _, short, err := brief(filepath.Join(t.TempDir(), "none"), func(b []byte) (string, error) { return "", nil }); !short || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v, %v", short, err)
	}
	args := []string{"sh", "-c", "echo runs; read end", "sh", string(bytes.Repeat([]byte("0"), 2*usualSize))}
	long := exec.Command(args[0], args[1:]...)
	in, err1 := long.StdinPipe()
	out, err2 := long.StdoutPipe()
	if err := errors.Join(err1, err2, long.Start()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close(); _ = long.Wait() }()
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil { // in the middle of its exec a process has no arguments
		t.Fatal(err)
	}
	if got, err := Cmdline(long.Process.Pid); err != nil || !reflect.DeepEqual(got, args) {
		t.Errorf("a long command line: %d arguments, %v", len(got), err)
	}
}
