package ptrace

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/testprog"
)

// victim is a file that the target may not write; and that shows whether anybody has.
type victim struct {
	name string
	text []byte
	info os.FileInfo
}

func newVictim(t *testing.T) *victim {
	dir, err := os.MkdirTemp("/tmp", "victim") // other users must come there
	must(err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(os.Chmod(dir, 0o755))
	v := &victim{name: filepath.Join(dir, "file"), text: bytes.Repeat([]byte("not yours\n"), 1000)}
	must(os.WriteFile(v.name, v.text, 0o644))
	must(os.Chtimes(v.name, time.Time{}, time.Unix(1e9, 0)))
	v.info, err = os.Stat(v.name)
	must(err)
	must(unix.Mkfifo(filepath.Join(dir, "fifo"), 0o666))
	return v
}

func (v *victim) check(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(v.name)
	must(err)
	info, err := os.Stat(v.name)
	must(err)
	changed := func(i os.FileInfo) syscall.Timespec { return i.Sys().(*syscall.Stat_t).Ctim }
	if !bytes.Equal(text, v.text) || !info.ModTime().Equal(v.info.ModTime()) || changed(info) != changed(v.info) {
		t.Fatalf("a file that is not the target's was changed: %d bytes, were %d", len(text), len(v.text))
	}
}

// TestNoFileIsTouchedThatTheTargetPutsInPlaceOfItsMemfd: while shared memory is mapped, the number of the memfd gets to mean another
// file. Nothing is opened but a fresh memfd, and nothing taken for shared memory that is not.
func TestNoFileIsTouchedThatTheTargetPutsInPlaceOfItsMemfd(t *testing.T) {
	v := newVictim(t)
	fifo := filepath.Join(filepath.Dir(v.name), "fifo")
	for _, who := range []string{"thread", "table"} {
		for _, what := range []string{
			"path:" + v.name, "ro:" + v.name, "path:" + fifo, "path:" + filepath.Dir(fifo), "rw:/dev/null", "path:/dev/zero",
			"tmp:/dev/shm", "memfd:10000", "sealed", "fresh", "huge", "nothing",
		} {
			t.Run(who+" "+filepath.Base(what), func(t *testing.T) { swapped(t, v, who, what) })
		}
	}
}

func swapped(t *testing.T, v *victim, who, what string) {
	options := testprog.Options{}
	if os.Geteuid() == 0 {
		options.UID = 65534
	}
	prog := testprog.StartWith(t, options, testprog.Build(t, "swapper"), who, what)
	before := ""
	if what != "nothing" {
		before = prog.Do("size", "size")
	}
	ours := descriptors()
	withTarget(t, prog, func(p *Process) {
		refused, shared := 0, 0
		// A thread that waits for its processor misses its chance, again and again on a machine with other work: once it must have it.
		for i := 0; (i < 5000 || i < 500_000 && refused == 0 && what != "fresh") && (refused < 3 || i < 20) && (i < 100 || what != "nothing"); i++ {
			switch err := mapOnce(p); {
			case err == nil:
				shared++
			case errors.Is(err, errChanged):
				t.Error(err)
				return
			default:
				refused++
			}
		}
		if refused == 0 && what != "fresh" && what != "nothing" {
			t.Errorf("the other file was never met in %d attempts", shared)
		}
	})
	for d := range descriptors() {
		if !ours[d] { // an earlier session's may have been closed meanwhile
			t.Errorf("a descriptor is left: %s", d)
		}
	}
	v.check(t)
	if what != "nothing" && what != "fresh" {
		if after := prog.Do("size", "size"); after != before {
			t.Errorf("the target's own file: %s, was %s", after, before)
		}
	}
	prog.Do("call 3", "called 3")
	prog.CheckClean()
}

var errChanged = errors.New("what the target has mapped is not what the tracer has")

// mapOnce maps an extent, looks whether both sides see the same, and unmaps it.
func mapOnce(p *Process) error {
	const at, page = arch.Addr(0x200000000000), 4096
	e := Extent{Data: arch.Range{Start: at, End: at + 2*page}, Code: arch.Range{Start: at + 2*page, End: at + 3*page}}
	m, err := p.Space.MapShared("gokprobe", e)
	if err != nil {
		return err
	}
	defer m.Unmap()
	copy(m.Data[page:], "data")
	copy(m.Code, "code")
	for _, want := range []string{"data", "code"} {
		b := make([]byte, len(want))
		at := map[string]arch.Addr{"data": at + page, "code": at + 2*page}[want]
		if err := p.Space.ReadMemory(at, b); err != nil || string(b) != want {
			return fmt.Errorf("%w: %q at %s, not %q: %w", errChanged, b, at, want, err)
		}
	}
	return p.Space.Unmap(arch.Range{Start: e.Data.Start, End: e.Code.End})
}

// descriptors are those that are open here, with what each is.
func descriptors() map[string]bool {
	fds, err := os.ReadDir("/proc/self/fd")
	must(err)
	open := map[string]bool{}
	for _, fd := range fds {
		if what, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil { // not that of the directory
			open[fd.Name()+" "+what] = true
		}
	}
	return open
}

// TestAProgramMayEndOrBeExecutedWhileItsMemoryIsMapped: the number then means what the new program has there.
func TestAProgramMayEndOrBeExecutedWhileItsMemoryIsMapped(t *testing.T) {
	v := newVictim(t)
	for _, who := range []string{"exec", "exit"} {
		t.Run(who, func(t *testing.T) {
			prog := testprog.Start(t, testprog.Build(t, "swapper"), who, "path:"+v.name)
			tr, err := New()
			must(err)
			tr.SetHandler(Nop{})
			defer tr.Close()
			var p *Process
			must(tr.Do(func() { p, err = tr.Attach(prog.PID()) }))
			must(err)
			// In between the tracer learns of the exec, or the end. The thread that ends the program may miss its chance, again and again.
			dropped := false
			for i := 0; i < 30 || who == "exit" && !dropped && i < 500_000; i++ {
				must(tr.Do(func() {
					if dropped = p.dropped; !dropped {
						err = mapOnce(p)
					}
				}))
				if errors.Is(err, errChanged) {
					t.Fatal(err)
				}
			}
			must(tr.Do(func() {
				if !p.dropped {
					must(tr.Detach(p))
				}
			}))
			v.check(t)
			if who == "exit" {
				prog.Wait()
			}
		})
	}
}

// withTarget is hold for a program that runs.
func withTarget(t *testing.T, prog *testprog.Prog, f func(*Process)) {
	t.Helper()
	tr, err := New()
	must(err)
	tr.SetHandler(Nop{})
	defer tr.Close()
	must(tr.Do(func() {
		p, err := tr.Attach(prog.PID())
		if err != nil {
			t.Error(err)
			return
		}
		f(p)
		if err := tr.Detach(p); err != nil {
			t.Error(err)
		}
	}))
}
