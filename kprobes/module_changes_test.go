package kprobes_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// libc is a C library that the modules fixture and its libraries are built with.
type libc struct {
	name  string
	flags []string
}

var glibc = libc{name: "glibc"}

const muslSpecs = "/usr/lib/x86_64-linux-musl/musl-gcc.specs"

// libcs is glibc and musl, which never unmaps a library.
var libcs = []libc{glibc, {"musl", []string{"-specs=" + muslSpecs}}}

func (c libc) requires(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(muslSpecs); c.name == "musl" && err != nil {
		t.Skip("musl is not installed: apt-get install musl-tools")
	}
}

func (c libc) lib(t *testing.T, name string) string {
	return testprog.Build(t, name, append([]string{"-shared", "-fPIC"}, c.flags...)...)
}

func (c libc) prog(t *testing.T) string {
	return testprog.Build(t, "modules", append([]string{"-rdynamic"}, c.flags...)...)
}

// said collects what a session warns of.
type said []string

func (l *said) log(m string) { *l = append(*l, m) }

func (l *said) want(t *testing.T, want ...string) {
	t.Helper()
	for i, m := range *l {
		if i >= len(want) || !strings.Contains(m, want[i]) {
			t.Errorf("the session warns %q, want something with %q", *l, want)
			break
		}
	}
	if len(*l) < len(want) {
		t.Errorf("the session warns %q, want something with %q", *l, want)
	}
	*l = nil
}

// loading starts the fixture under a session.
func (c libc) loading(t *testing.T, opts kprobes.Options) (*testprog.Prog, *kprobes.Session, *said) {
	t.Helper()
	prog := testprog.Start(t, c.prog(t))
	warned := &said{}
	opts.Log = testprog.ButUprobes(warned.log)
	return prog, attach(t, prog.PID(), opts), warned
}

// textOf is the code of a library as it is mapped.
func textOf(t *testing.T, prog *testprog.Prog, path string) (text []byte) {
	t.Helper()
	for where, code := range testprog.TakeSnapshot(t, prog.PID()).Text {
		if strings.HasSuffix(where, path) {
			text = append(text, code...)
		}
	}
	if len(text) == 0 {
		t.Errorf("no code of %s is mapped", path)
	}
	return text
}

func wantWaiting(t *testing.T, s *kprobes.Session, kp *kprobes.Kprobe, reason string) {
	t.Helper()
	st := s.Status(kp)
	if !st.Waiting || st.Flags&kprobes.FlagGone != 0 || st.Reason != reason || st.Addr != 0 || kp.Addr != 0 {
		t.Errorf("status %+v, want it to wait since %q", st, reason)
	}
}

func wantGone(t *testing.T, s *kprobes.Session, kp *kprobes.Kprobe, waiting bool) {
	t.Helper()
	if st := s.Status(kp); st.Flags&kprobes.FlagGone == 0 || st.Waiting != waiting || st.Mechanism != kprobes.NoMechanism {
		t.Errorf("status %+v, want it to be gone and waiting: %v", st, waiting)
	}
	if err := s.EnableKprobe(kp); !errors.Is(err, kprobes.ErrGone) || !errors.Is(err, unix.EINVAL) {
		t.Errorf("enabling a probe that is gone: %v", err)
	}
}

func wantPlaced(t *testing.T, s *kprobes.Session, kp *kprobes.Kprobe) {
	t.Helper()
	if st := s.Status(kp); st.Flags&kprobes.FlagGone != 0 || st.Waiting || st.Addr == 0 || st.Addr != kp.Addr {
		t.Errorf("status %+v, want it to be placed", st)
	}
}

// TestProbesWaitForTheirLibrary (G13): a batch of probes in libraries that are there and in one
// that is not. They are hit from its first constructor on.
func TestProbesWaitForTheirLibrary(t *testing.T) {
	for _, c := range libcs {
		t.Run(c.name, func(t *testing.T) {
			c.requires(t)
			prog, s, warned := c.loading(t, kprobes.Options{})
			lib := c.lib(t, "libplug.so")
			foo, built, plugged, inside := boosted.probe("foo"), boosted.probe("libplug.so:build"),
				stepped.probe(lib+":plugged"), boosted.probe("libplug.so:plugged+0x8")
			silent := boosted.probe("libplug.so:plugged")
			silent.Flags = kprobes.FlagDisabled
			register(t, s, built, foo, plugged, inside, silent)
			warned.want(t, "libplug.so:build waits: libplug.so is not loaded yet", "plugged waits", "plugged+0x8 waits", "plugged waits")
			wantWaiting(t, s, built, "libplug.so is not loaded yet")
			wantPlaced(t, s, foo)

			prog.Do("open 0 "+c.lib(t, "libother.so"), "did")
			wantWaiting(t, s, built, "libplug.so is not loaded yet")
			prog.Do("open 1 "+lib, "did")
			wantHits(t, built, 1)
			prog.Do("call 1 plugged 100", "did")
			for _, kp := range []*kprobes.Kprobe{plugged, inside} {
				wantPlaced(t, s, kp)
				wantHits(t, kp, 100)
			}
			wantHits(t, silent, 0)
			if err := s.EnableKprobe(silent); err != nil {
				t.Fatal(err)
			}
			prog.Do("call 1 plugged 10", "did")
			wantHits(t, silent, 10)
			warned.want(t)
			closeSession(t, s)
			prog.CheckClean()
			wantRight(t, prog)
		})
	}
}

// TestALibraryIsFoundByItsSONAME: a probe waits for it, and is placed where it is mapped, also in an executed program, though the file has another name
// (libc-2.31.so is libc.so.6 to all who use it), or the path is one of a link's.
func TestALibraryIsFoundByItsSONAME(t *testing.T) {
	lib := testprog.Build(t, "libplug.so", "-shared", "-fPIC", "-Wl,-soname,libplugged.so.3")
	link := filepath.Join(t.TempDir(), "link.so")
	if err := os.Symlink(lib, link); err != nil {
		t.Fatal(err)
	}
	prog, s, warned := glibc.loading(t, kprobes.Options{Follow: true})
	names := []string{"libplugged.so.3:plugged", "libplugged.so:plugged", link + ":plugged"}
	var kps []*kprobes.Kprobe
	for _, name := range names {
		kps = append(kps, boosted.probe(name))
	}
	register(t, s, kps...)
	warned.want(t, "libplugged.so.3:plugged waits", "libplugged.so:plugged waits", "link.so:plugged waits")
	prog.Do("open 0 "+lib, "did")
	prog.Do("call 0 plugged 10", "did")
	prog.Do("spawn "+glibc.prog(t), "ready")
	prog.Do("tell open 0 "+lib, "did")
	prog.Do("tell call 0 plugged 5", "did")
	late := boosted.probe(names[0])
	register(t, s, late)
	for _, kp := range kps {
		wantHits(t, kp, 15)
	}
	prog.Do("call 0 plugged 10", "did")
	wantHits(t, late, 10)
	warned.want(t)
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestWaitingProbesObey: those that wait can be disabled, enabled and unregistered, and none is
// placed that was unregistered.
func TestWaitingProbesObey(t *testing.T) {
	prog, s, _ := glibc.loading(t, kprobes.Options{})
	off, on, never := boosted.probe("libplug.so:plugged"), boosted.probe("libplug.so:plugged"), boosted.probe("libplug.so:plugged")
	on.Flags = kprobes.FlagDisabled
	register(t, s, off, on, never)
	for _, err := range []error{s.DisableKprobe(off), s.EnableKprobe(on), s.UnregisterKprobe(never)} {
		if err != nil {
			t.Error(err)
		}
	}
	if err := s.RegisterKprobe(on); !errors.Is(err, kprobes.ErrRegistered) {
		t.Errorf("registered twice: %v", err)
	}
	prog.Do("open 0 "+glibc.lib(t, "libplug.so"), "did")
	prog.Do("call 0 plugged 5", "did")
	wantHits(t, off, 0)
	wantHits(t, on, 5)
	wantHits(t, never, 0)
	if st := s.Status(off); st.Addr == 0 || st.Flags != kprobes.FlagDisabled {
		t.Errorf("the disabled probe: %+v", st)
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestOnlyLibrariesAreWaitedFor: a name that is no library's is an error at once (A12), and so
// is a symbol that a loaded library does not have. After an error nothing waits.
func TestOnlyLibrariesAreWaitedFor(t *testing.T) {
	prog, s, warned := glibc.loading(t, kprobes.Options{})
	prog.Do("open 0 "+glibc.lib(t, "libother.so"), "did")
	linker, libc := textOf(t, prog, "/ld-linux-x86-64.so.2"), textOf(t, prog, "/libc.so.6")
	for _, name := range []string{"nonesuch", "plug:plugged", "libother.so:plugged", "libother:plugged"} {
		waits, kp := boosted.probe("libplug.so:plugged"), boosted.probe(name)
		if err := s.RegisterKprobes(t.Context(), []*kprobes.Kprobe{waits, kp}); !errors.Is(err, unix.ENOENT) {
			t.Errorf("%s: %v, want ENOENT", name, err)
		}
		if st := s.Status(waits); st.Waiting {
			t.Errorf("%s: a probe of a batch that failed waits: %+v", name, st)
		}
	}
	warned.want(t)
	if !bytes.Equal(textOf(t, prog, "/ld-linux-x86-64.so.2"), linker) {
		t.Error("a breakpoint is left in the dynamic linker")
	}
	if !bytes.Equal(textOf(t, prog, "/libc.so.6"), libc) {
		t.Error("jumps are left in the C library")
	}
	prog.Do("open 1 "+glibc.lib(t, "libplug.so"), "did")
	closeSession(t, s)
	wantRight(t, prog)
}

// TestJprobesAndKretprobesWait, and follow a library to where it is loaded next.
func TestJprobesAndKretprobesWait(t *testing.T) {
	prog, s, _ := glibc.loading(t, kprobes.Options{})
	var sum, results int64
	jp := &kprobes.Jprobe{KP: kprobes.Kprobe{SymbolName: "libplug.so:plugged"}, Entry: func(v int64) { sum += v }}
	rp := &kprobes.Kretprobe{KP: kprobes.Kprobe{SymbolName: "libplug.so:plugged"},
		Handler: func(_ *kprobes.KretprobeInstance, regs *kprobes.Regs) int {
			v, _ := regs.Get("rax")
			results += int64(v)
			return 0
		}}
	if err := errors.Join(s.RegisterJprobe(jp), s.RegisterKretprobe(rp)); err != nil {
		t.Fatal(err)
	}
	tooLarge := &kprobes.Kretprobe{KP: kprobes.Kprobe{SymbolName: "libplug.so:plugged"}, DataSize: 1 << 20}
	if err := s.RegisterKretprobe(tooLarge); !errors.Is(err, kprobes.ErrDataSize) {
		t.Errorf("a kretprobe that waits is checked: %v", err)
	}
	for i := range int64(3) {
		prog.Do("open 0 "+glibc.lib(t, "libplug.so"), "did")
		if got, want := prog.Do("call 0 plugged 10", "did"), "did 1315"; got != want {
			t.Errorf("the program says %q, want %q", got, want)
		}
		if sum != 45*(i+1) || results != 1315*(i+1) || rp.NMissed() != 0 {
			t.Errorf("after %d times: arguments %d, results %d, %d missed", i+1, sum, results, rp.NMissed())
		}
		prog.Do("close 0", "did")
		if i == 0 {
			prog.Do("occupy 0", "did")
		}
	}
	prog.Do("vacate", "did")
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestALibraryWithoutThePlaceIsToldOnce: what comes does not have the symbol, or not for a
// probe. The probe goes on waiting.
func TestALibraryWithoutThePlaceIsToldOnce(t *testing.T) {
	prog, s, warned := glibc.loading(t, kprobes.Options{})
	missing, inside := boosted.probe("libplug.so:nonesuch"), boosted.probe("libplug.so:plugged+0x1")
	register(t, s, missing, inside)
	warned.want(t, "waits", "waits")
	for range 3 {
		prog.Do("open 0 "+glibc.lib(t, "libplug.so"), "did")
		prog.Do("call 0 plugged 5", "did")
		prog.Do("close 0", "did")
	}
	warned.want(t, "no such symbol", "not the start of an instruction")
	if st := s.Status(missing); !st.Waiting || !strings.Contains(st.Reason, "nonesuch") {
		t.Errorf("status %+v", st)
	}
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// TestUnloadedLibraryTakesItsProbes (A19, F19): what is where the library was is not touched,
// whatever is done with its probes, which have to be unregistered all the same.
func TestUnloadedLibraryTakesItsProbes(t *testing.T) {
	for _, how := range []string{"unregister", "disable", "close"} {
		t.Run(how, func(t *testing.T) {
			prog, s, _ := glibc.loading(t, kprobes.Options{})
			prog.Do("open 0 "+glibc.lib(t, "libplug.so"), "did")
			kp, second, foo := boosted.probe("plugged"), stepped.probe("plugged"), boosted.probe("foo")
			register(t, s, kp, second, foo)
			byAddr := &kprobes.Kprobe{Addr: kp.Addr}
			register(t, s, byAddr)
			prog.Do("call 0 plugged 10", "did")
			prog.Do("close 0", "did")
			wantGone(t, s, kp, true)
			wantGone(t, s, second, true)
			wantGone(t, s, byAddr, false)
			wantPlaced(t, s, foo)
			prog.Do("occupy 0", "did")
			switch how {
			case "unregister":
				if err := s.UnregisterKprobes([]*kprobes.Kprobe{kp, second, byAddr}); err != nil {
					t.Errorf("unregister: %v", err)
				}
			case "disable":
				if err := s.DisableKprobe(kp); err != nil {
					t.Errorf("disable: %v", err)
				}
			}
			prog.Do("start", "did")
			prog.Do("stop", "did")
			for _, kp := range []*kprobes.Kprobe{kp, second, byAddr} {
				wantHits(t, kp, 10)
			}
			closeSession(t, s)
			prog.Do("vacate", "did")
			prog.CheckClean()
			wantRight(t, prog)
		})
	}
}

// TestWhoWaitsIsLeftAlone: libraries with probes come and go, and threads that wait in a system call all the time are not woken. The kernel counts how often
// they have gone to sleep.
func TestWhoWaitsIsLeftAlone(t *testing.T) {
	path := glibc.lib(t, "libplug.so")
	prog, s, _ := glibc.loading(t, kprobes.Options{NoOptimize: true})
	prog.Do("rest 4", "did")
	plugged := &kprobes.Kprobe{SymbolName: "libplug.so:plugged"}
	register(t, s, &kprobes.Kprobe{SymbolName: "foo"}, plugged)
	prog.Do("cycle 1 "+path, "did")
	slept := sleeps(t, prog.PID())
	if len(slept) != 4 {
		t.Fatalf("%d threads wait", len(slept))
	}
	prog.Do("cycle 50 "+path, "did")
	for tid, n := range sleeps(t, prog.PID()) {
		if n != slept[tid] {
			t.Errorf("a thread that waits was woken: it went to sleep %s times before, %s now", slept[tid], n)
		}
	}
	wantHits(t, plugged, 51*4)
	closeSession(t, s)
	prog.CheckClean()
	wantRight(t, prog)
}

// sleeps tells how often each thread but the first has gone to sleep in a system call, and waits for those that run.
func sleeps(t *testing.T, pid int) map[int]string {
	t.Helper()
	tids, err := procfs.Tasks(pid)
	if err != nil {
		t.Fatal(err)
	}
	times := map[int]string{}
	for _, tid := range tids {
		if tid == pid {
			continue
		}
		for b, err := procfs.ReadBlocked(pid, tid); err != nil || b.Number != unix.SYS_PAUSE; b, err = procfs.ReadBlocked(pid, tid) {
			if err != nil && !errors.Is(err, procfs.ErrRunning) {
				t.Fatal(err)
			}
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/status", pid, tid))
		if err != nil {
			t.Fatal(err)
		}
		_, n, _ := strings.Cut(string(status), "\nvoluntary_ctxt_switches:")
		times[tid], _, _ = strings.Cut(strings.TrimSpace(n), "\n")
	}
	return times
}
