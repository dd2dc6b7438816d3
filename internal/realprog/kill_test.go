package realprog

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/internal/testsize"
	"github.com/gokprobe/gokprobe/kprobes"
)

// TestRedisSurvivesAKilledTracer: the tracer that has probes on the server's busiest functions is killed
// at any moment, and the server goes on as if nothing had happened; it forks, too. Recover puts
// its text back.
func TestRedisSurvivesAKilledTracer(t *testing.T) {
	r := startRedis(t)
	want := r.work(t)
	rounds := testsize.Rounds(1, 5, 50)
	for i := range rounds {
		kill := startTracer(t, r.PID(), []string{"setCommand", "getCommand", "incrCommand", "processCommand", "lookupKeyRead",
			"readQueryFromClient", "rdbSaveObject", "libc.so.6:memcpy", "libc.so.6:epoll_wait", "libc.so.6:malloc"})
		late := time.AfterFunc(time.Duration(rand.Int64N(int64(time.Second))), kill)
		r.same(t, "while the tracer is killed", want)
		late.Stop()
		kill()
		r.same(t, "after that", want)
		r.save(t)
		done, err := kprobes.Recover(context.Background(), r.PID())
		for err == nil && done.Kept > 0 {
			done, err = kprobes.Recover(context.Background(), r.PID())
		}
		if err != nil {
			t.Fatalf("round %d: recover: %v", i, err)
		}
		t.Logf("recovered: %+v", *done)
		testprog.CheckClean(t, r.PID())
	}
	sameText(t, "after all", want, r.work(t))
}

// same does the work, which must come out as unprobed.
func (r *redis) same(t *testing.T, when, want string) {
	t.Helper()
	sameText(t, when, want, r.work(t))
	if out, err := r.try("PING"); err != nil {
		log, _ := os.ReadFile(r.dir + "/log")
		t.Fatalf("the server has ended: %v: %s%s", r.Wait(), out, log)
	}
}

// startTracer starts a process that probes pid; kill ends it.
func startTracer(t *testing.T, pid int, specs []string) (kill func()) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestTracer$", "-test.timeout=30m")
	cmd.Env = append(os.Environ(), "GOKPROBE_TRACE="+strconv.Itoa(pid), "GOKPROBE_SPECS="+strings.Join(specs, " "))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	kill = func() {
		_ = cmd.Process.Kill()
		<-ended
	}
	t.Cleanup(kill)
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "armed\n" {
		t.Fatalf("the tracer says %q, then %v", line, err)
	}
	return kill
}

// TestTracer is not a test but the process that startTracer starts.
func TestTracer(t *testing.T) {
	pid, err := strconv.Atoi(os.Getenv("GOKPROBE_TRACE"))
	if err != nil {
		return
	}
	s, err := kprobes.Attach(context.Background(), pid, kprobes.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for first := true; ; first = false {
		var kps []*kprobes.Kprobe
		for _, spec := range strings.Fields(os.Getenv("GOKPROBE_SPECS")) {
			kp := &kprobes.Kprobe{SymbolName: spec}
			if rand.IntN(2) == 0 {
				kp.PreHandler = func(*kprobes.Kprobe, *kprobes.Regs) int { return 0 }
			}
			kps = append(kps, kp)
		}
		if err := s.RegisterKprobes(t.Context(), kps); err != nil {
			t.Fatal(err)
		}
		if first {
			fmt.Println("armed")
		}
		time.Sleep(100 * time.Millisecond) // this is a tracer, not a test
		if err := s.UnregisterKprobes(kps); err != nil {
			t.Fatal(err)
		}
	}
}
