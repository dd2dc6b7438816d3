package ptrace

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
)

// TestDoRunsOnTheTracersThread, one closure at a time, in the order of each caller; within one at once.
func TestDoRunsOnTheTracersThread(t *testing.T) {
	const callers, each = 8, 200
	tr := must2(New())
	defer tr.Close()
	if tr.Own() {
		t.Error("this is the tracer's thread")
	}
	var running atomic.Int32
	last := map[int]int{}
	var wg sync.WaitGroup
	for c := range callers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for n := range each {
				if err := tr.Do(func() {
					if running.Add(1) != 1 || !tr.Own() || unix.Gettid() != tr.tid || last[c] != n {
						t.Errorf("call %d of %d, of which %d were made, on thread %d", n, c, last[c], unix.Gettid())
					}
					nested := false
					if err := tr.Do(func() { nested = true }); err != nil || !nested {
						t.Errorf("within a call: %v, %v", nested, err)
					}
					last[c] = n + 1
					running.Add(-1)
				}); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	wg.Wait()
	for c := range callers {
		if last[c] != each {
			t.Errorf("caller %d: %d calls", c, last[c])
		}
	}
}

// TestTheHostsChildrenAreItsOwn: programs that were started before a tracer was, perhaps on the thread that it has got, are waited for by who has started them.
func TestTheHostsChildrenAreItsOwn(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // the thread that is free next is the one that has just been used
	for range 20 {
		cmd := exec.Command("/proc/self/exe", "-test.run=^$")
		must(cmd.Start())
		tr := must2(New())
		must(tr.Do(func() {
			if children := must2(procfs.Children(os.Getpid(), tr.tid)); len(children) != 1 || children[0] != tr.bell.pid {
				t.Errorf("the tracer's children are %v, its bell is %d", children, tr.bell.pid)
			}
		}))
		testprog.Await(t, "an end of the child", func() bool {
			st, err := procfs.ReadStat(cmd.Process.Pid, 0)
			return err != nil || st.State == 'Z'
		})
		must(tr.Do(func() {}))
		if err := cmd.Wait(); err != nil {
			t.Errorf("the child's end: %v", err)
		}
		tr.Close()
	}
}

// TestAClosedTracerIsGone: its thread and its bell have ended, nobody is called any more, and Close may be called again by anybody.
func TestAClosedTracerIsGone(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "threads"), "3")
	tr := must2(New())
	tr.SetHandler(Nop{})
	must(tr.Do(func() { must2(tr.Attach(prog.PID())) }))
	tid, bell := tr.tid, tr.bell.pid
	var wg sync.WaitGroup
	for range 4 {
		wg.Add(1)
		go func() { defer wg.Done(); tr.Close() }()
	}
	wg.Wait()
	if _, err := procfs.ReadStat(os.Getpid(), tid); err == nil {
		t.Errorf("thread %d is there still", tid)
	}
	if _, err := procfs.ReadStat(bell, 0); err == nil {
		t.Errorf("the bell %d is there still", bell)
	}
	if err := tr.Do(func() { t.Error("it is called") }); !errors.Is(err, ErrClosed) {
		t.Errorf("a call ends with %v", err)
	}
	tr.postUnlessClosed(func() { t.Error("it is called") })
	tr.Wake()
	tr.Close()
	prog.CheckClean() // nobody has detached
	if got := prog.Quit(); got != "right" {
		t.Errorf("the program says %q, want right", got)
	}
}

// TestAPanicOfACallIsTheHandlers, and the tracer goes on. One that ends the goroutine ends the tracer, which says so.
func TestAPanicOfACallIsTheHandlers(t *testing.T) {
	tr, p := must2(New()), &patient{}
	tr.SetHandler(p)
	must(tr.Do(func() { panic("a bug") }))
	must(tr.Do(func() {}))
	if v := p.panics(); len(v) != 1 || v[0] != "a bug" {
		t.Errorf("it panics with %v", v)
	}
	done := make(chan error)
	must(tr.Do(func() {
		go func() { done <- tr.Do(func() {}) }() // one that waits meanwhile is served, or told
		runtime.Goexit()
	}))
	if err := <-done; err != nil && !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	<-tr.gone
	if v := p.panics(); len(v) != 2 || !strings.Contains(fmt.Sprint(v[1]), "Goexit") {
		t.Errorf("it panics with %v", v)
	}
	if err := tr.Do(func() {}); !errors.Is(err, ErrClosed) {
		t.Errorf("a call ends with %v", err)
	}
	tr.Close()
}

// TestATracerOfThisThread works here, without a thread and a bell of its own: it attaches, reads and lets go.
func TestATracerOfThisThread(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "threads"), "2")
	prog.Send("start")
	done := make(chan bool)
	go func() {
		defer close(done)
		runtime.LockOSThread() // its end lets go of everything
		tr := NewHere(Nop{})
		if !tr.Own() {
			t.Error("it is not of this thread")
		}
		p, err := tr.Attach(prog.PID())
		if err != nil {
			t.Error(err)
			return
		}
		if err := p.Space.Freeze(func(*Frozen) error {
			return p.Remote(func(r *Remote) error {
				if pid, err := r.Syscall(unix.SYS_GETPID); err != nil || int(pid) != p.PID {
					t.Errorf("getpid: %d, %v", pid, err)
				}
				return nil
			})
		}); err != nil {
			t.Error(err)
		}
		if err := tr.Detach(p); err != nil {
			t.Error(err)
		}
	}()
	<-done
	prog.CheckClean()
	prog.Do("stop", "calls")
	if got := prog.Quit(); got != "right" {
		t.Errorf("the program says %q, want right", got)
	}
}

// TestSomebodyKillsTheBell: there is another one, and calls go on.
func TestSomebodyKillsTheBell(t *testing.T) {
	tr := must2(New())
	defer tr.Close()
	for range 5 {
		var pid int
		must(tr.Do(func() { pid = tr.bell.pid }))
		must(unix.Kill(pid, unix.SIGKILL))
		testprog.Await(t, "another bell", func() (other bool) {
			must(tr.Do(func() { other = tr.bell.pid != pid }))
			return other
		})
	}
}

// TestAThreadAtABreakpointComesBeforeTheNextCall: the call was sent while another one was under way, in which the thread came there. Work in slices
// is such calls.
func TestAThreadAtABreakpointComesBeforeTheNextCall(t *testing.T) {
	k := probe(t, "call")
	at := k.symbol("probed")
	k.do(func() error { k.plant(at); return nil })
	for n := range 20 {
		next := make(chan int)
		k.do(func() error {
			k.prog.Send(fmt.Sprintf("go %d", 3*n))
			testprog.Await(t, "a thread at the breakpoint", func() bool {
				st, err := procfs.ReadStat(k.prog.PID(), 0)
				return err == nil && st.State == 't'
			})
			go func() {
				hits := 0
				_ = k.tr.Do(func() { hits = k.hits })
				next <- hits
			}()
			testprog.Await(t, "the next call", func() bool { return k.tr.unanswered() > 0 })
			return nil
		})
		if hits := <-next; hits != n+1 {
			t.Errorf("at the next call there were %d hits, want %d", hits, n+1)
		}
		k.prog.Expect("ret")
	}
	k.end()
}

// TestACallMayHaveOthersAnswered that were sent with it, as RecallAll does.
func TestACallMayHaveOthersAnswered(t *testing.T) {
	k := probe(t, "call")
	var ran []string
	var sent sync.WaitGroup
	k.do(func() error {
		for _, f := range []func(){func() { k.tr.answer(); ran = append(ran, "first") }, func() { ran = append(ran, "second") }} {
			n := k.tr.unanswered()
			sent.Go(func() { _ = k.tr.Do(f) })
			testprog.Await(t, "the call", func() bool { return k.tr.unanswered() > n })
		}
		return nil
	})
	sent.Wait()
	if got := strings.Join(ran, ", "); got != "second, first" {
		t.Errorf("ran: %s", got)
	}
	k.do(func() error { return nil })
	k.end()
}

// TestAThreadsEndIsWaitedFor, also on a kernel that offers nothing to wait for.
func TestAThreadsEndIsWaitedFor(t *testing.T) {
	for _, old := range []bool{false, true} {
		own, end := make(chan ownThread), make(chan bool)
		begin := func() ownThread {
			go func() {
				runtime.LockOSThread()
				own <- thisThread()
				<-end
			}()
			return <-own
		}
		o := begin()
		for o.tid == os.Getpid() { // the program's first thread does not end
			o = begin()
		}
		if old && o.pidfd >= 0 {
			unix.Close(o.pidfd)
			o.pidfd = -1
		}
		waited := make(chan bool)
		go func() { o.waitEnd(); close(waited) }()
		for range 1000 {
			runtime.Gosched()
		}
		select {
		case <-waited:
			t.Error("it has not ended")
		default:
		}
		close(end)
		<-waited
		if st, err := procfs.ReadStat(os.Getpid(), o.tid); err == nil && st.State != 'X' && st.StartTime == o.start {
			t.Errorf("it is there still: %+v", st)
		}
	}
}
