package kprobes_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	gofs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/program"
	"github.com/gokprobe/gokprobe/ptrace"
)

// silentFile is a file whose contents never come, until the test has ended.
type silentFile struct {
	gofs.Inode
	end chan struct{}
}

func (f *silentFile) Getattr(_ context.Context, _ gofs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	out.Mode, out.Size = 0o644, 1<<16
	return 0
}

func (f *silentFile) Open(context.Context, uint32) (gofs.FileHandle, uint32, syscall.Errno) {
	return nil, fuse.FOPEN_KEEP_CACHE, 0
}

func (f *silentFile) Read(context.Context, gofs.FileHandle, []byte, int64) (fuse.ReadResult, syscall.Errno) {
	<-f.end
	return nil, syscall.EIO
}

// silentFileSystem is the name of a file on a FUSE file system, which does not answer who reads it.
func silentFileSystem(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	file := &silentFile{end: make(chan struct{})}
	root := &gofs.Inode{}
	server, err := gofs.Mount(dir, root, &gofs.Options{
		MountOptions: fuse.MountOptions{DirectMountStrict: os.Geteuid() == 0},
		OnAdd: func(ctx context.Context) {
			root.AddChild("file", root.NewPersistentInode(ctx, file, gofs.StableAttr{Mode: fuse.S_IFREG}), false)
		},
	})
	if err != nil {
		t.Fatalf("mount: %v", err)
	}
	t.Cleanup(func() {
		close(file.end)
		_ = unix.Unmount(dir, unix.MNT_DETACH)
		_ = server.Unmount()
	})
	return filepath.Join(dir, "file")
}

var absences = map[string]func(*testing.T) string{
	"userfaultfd": func(*testing.T) string { return "userfaultfd" },
	"file":        silentFileSystem,
}

// TestMemoryThatNeverComes: nobody waits for it for ever. The attach is done, a hit tells that it could not be read, and the program is as it would be without us.
func TestMemoryThatNeverComes(t *testing.T) {
	for name, absence := range absences {
		t.Run(name, func(t *testing.T) {
			prog := start(t, "absent", absence(t))
			for _, m := range modes {
				checkSilence(t, prog, m)
			}
			prog.Do("call 1", "called 1")
			wantRight(t, prog)
		})
	}
}

func checkSilence(t *testing.T, prog *testprog.Prog, m mode) {
	t.Helper()
	s := attach(t, prog.PID(), kprobes.Options{NoOptimize: true}) // what a jump leads to uses the stack
	foo, there := m.probe("foo"), m.probe("there")
	var told, stacks atomic.Int64
	foo.PreHandler = func(_ *kprobes.Kprobe, r *kprobes.Regs) int {
		if refusesToAnswer(t, r) {
			told.Add(1)
		}
		return 0
	}
	there.PreHandler = func(_ *kprobes.Kprobe, r *kprobes.Regs) int {
		if _, err := r.StackArg(0); errors.Is(err, ptrace.ErrNoAnswer) && len(r.Backtrace(5)) > 0 {
			stacks.Add(1)
		}
		return 0
	}
	register(t, s, foo, there)
	kr := &kprobes.Kretprobe{KP: kprobes.Kprobe{SymbolName: "there"}, Handler: func(*kprobes.KretprobeInstance, *kprobes.Regs) int { return 0 }}
	if err := s.RegisterKretprobe(kr); err != nil {
		t.Fatal(err)
	}
	const rounds = 3
	prog.Do("call 3", "called 3")
	if told.Load() != rounds || stacks.Load() != rounds || kr.NMissed() != rounds {
		t.Errorf("%s: %d strings and %d stacks did not answer, %d returns were missed, want %d", m, told.Load(), stacks.Load(), kr.NMissed(), rounds)
	}
	closeSession(t, s)
	prog.CheckClean()
}

// refusesToAnswer reads and writes the string that foo got. Of one that may not be read the error is another.
func refusesToAnswer(t *testing.T, r *kprobes.Regs) bool {
	at, _ := r.Arg(0)
	v, _ := r.Arg(1)
	text, err := r.ReadString(arch.Addr(at), 64)
	write := r.WriteString(arch.Addr(at), "x")
	if int64(v) < 0 {
		if !errors.Is(err, unix.EFAULT) || !errors.Is(write, unix.EFAULT) {
			t.Errorf("memory that may not be read: %q, %v; written: %v", text, err, write)
		}
		return false
	}
	if !errors.Is(err, ptrace.ErrNoAnswer) || !errors.Is(write, ptrace.ErrNoAnswer) {
		t.Errorf("the string reads as %q, %v; written: %v", text, err, write)
	}
	return true
}

// TestMemoryThatTheProgramProvides comes when it is read, or later.
func TestMemoryThatTheProgramProvides(t *testing.T) {
	prog := start(t, "absent", "served")
	s := attach(t, prog.PID(), kprobes.Options{})
	came := false
	register(t, s, &kprobes.Kprobe{SymbolName: "foo", PreHandler: func(_ *kprobes.Kprobe, r *kprobes.Regs) int {
		at, _ := r.Arg(0)
		if v, _ := r.Arg(1); int64(v) >= 0 {
			text, err := r.ReadString(arch.Addr(at), 64)
			came = err == nil
			if came && text != "served" || !came && !errors.Is(err, ptrace.ErrNoAnswer) {
				t.Errorf("the string reads as %q, %v", text, err)
			}
		}
		return 0
	}})
	for done := false; !done && !t.Failed(); {
		prog.Do("call 1", "called 1")
		if err := s.Do(func() { done = came }); err != nil {
			t.Fatal(err)
		}
	}
	closeSession(t, s)
	wantRight(t, prog)
}

// TestAnAttachWhoseMemoryNeverComesIsGivenUp at once, at whatever it waits.
func TestAnAttachWhoseMemoryNeverComesIsGivenUp(t *testing.T) {
	for name, absence := range absences {
		t.Run(name, func(t *testing.T) {
			prog := start(t, "absent", absence(t))
			for n := 1; ; n++ {
				done := giveUpAt(t, prog.PID(), n)
				prog.CheckClean()
				if done {
					break
				}
			}
			prog.Do("call 1", "called 1")
			wantRight(t, prog)
		})
	}
}

// TestTheTargetDoesNotReadForUsWhatNeverComes: what a program in the target would read the tracer reads, where a file is mapped whose file system may not answer. The thread
// would be held there for good.
func TestTheTargetDoesNotReadForUsWhatNeverComes(t *testing.T) {
	prog := start(t, "absent", silentFileSystem(t))
	s := attach(t, prog.PID(), kprobes.Options{})
	p, err := program.Build("foo", 0, []string{"rdi"}, program.Cond{}, program.WriteRecord{
		Ring:  program.Map{Kind: program.Ring, Size: program.MinRingSize},
		Items: []program.Item{{Kind: program.Bytes, Value: program.Reg("rdi"), Max: 8}},
	})
	if err != nil {
		t.Fatal(err)
	}
	records := 0
	kp := &kprobes.Kprobe{SymbolName: "foo", Program: p, RecordHandler: func(*kprobes.Kprobe, *kprobes.HitRecord) { records++ }}
	register(t, s, kp)
	s.WaitForOptimizer(t.Context())
	prog.Do("call 3", "called 3")
	closeSession(t, s)
	if records != 6 || kp.Hits() != 6 {
		t.Errorf("%d records, %d hits, want 6", records, kp.Hits())
	}
	prog.CheckClean()
	wantRight(t, prog)
}
