package realprog

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/internal/testsize"
)

// victim is a tracer that is killed: the command itself, as it is installed.
type victim struct {
	t      testing.TB
	kind   *killing
	bin    string // its own path, by which its processes are known
	args   []string
	since  moment
	after  time.Duration
	widows bool // what outlives the tracer is killed with it
	cmd    *exec.Cmd
	said   bytes.Buffer  // on standard error
	heard  chan struct{} // closed when that has ended
}

// moment is from when on the time to the kill counts.
type moment string

const (
	begun moment = "exec"  // it attaches, arms
	armed moment = "armed" // it optimizes, or has
	asked moment = "asked to end"
)

// newVictim chooses by chance what the tracer does and when it is killed.
func newVictim(t testing.TB, k *killing) *victim {
	t.Helper()
	r := k.rand
	v := &victim{t: t, kind: k, bin: filepath.Join(t.TempDir(), "gokprobe"), widows: r.IntN(4) == 0 && testsize.Torture()}
	if err := os.Link(k.tracer, v.bin); err != nil {
		t.Fatal(err)
	}
	if v.args = chooseWork(r, k); k.cycles {
		v.args = cycleWork(r, v.args)
	}
	v.since = []moment{begun, armed, armed, asked}[r.IntN(4)]
	if k.leaves {
		v.since, v.widows = []moment{begun, armed}[r.IntN(2)], false
	}
	v.after = time.Duration(r.Int64N(int64(map[moment]time.Duration{
		begun: time.Second, armed: time.Second / 2, asked: time.Second / 4,
	}[v.since])))
	return v
}

func (v *victim) String() string {
	if v.kind.leaves {
		return fmt.Sprintf("interrupted %v after %s: gokprobe %s", v.after, v.since, strings.Join(v.args, " "))
	}
	with := ""
	if v.widows {
		with = ", with what outlives it"
	}
	return fmt.Sprintf("killed %v after %s%s: gokprobe %s", v.after, v.since, with, strings.Join(v.args, " "))
}

// chooseWork is a command line.
func chooseWork(r *rand.Rand, k *killing) []string {
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	everything, some := k.all, k.some
	if len(everything) == 0 {
		everything = []string{"libc.so.6:*"}
	}
	args := []string{"attach", "-p", strconv.Itoa(k.pid)}
	specs := everything
	switch n := r.IntN(8); {
	case n == 0: // calls that are delayed a little, or could be made to fail and are not
		args[0] = "inject"
		if r.IntN(3) == 0 {
			args = append(args, "-syscall", pick("clone*", "execve", "%signal", "write", "futex"))
		} else {
			args = append(args, "-sym", pick(some...))
		}
		return append(args, [][]string{{"-errno", "EIO", "-dry-run"}, {"-delay", "10us..1ms", "-probability", "20%"}, {"-errno", "EIO", "-dry-run", "-interval", "7"}}[r.IntN(3)]...)
	case n < 4:
		specs = slices.DeleteFunc(slices.Clone(some), func(string) bool { return r.IntN(2) == 0 })
		if len(specs) == 0 {
			specs = some
		}
		args = append(args, pick("-count", "-args", "-regs"))
	default:
		args = append(args, pick("-count", "-count", "-regs"))
	}
	for _, s := range specs {
		args = append(args, "-sym", s)
	}
	for _, flag := range []string{"-ret", "-no-optimize", "-follow"} {
		if r.IntN(5) < 2 {
			args = append(args, flag)
		}
	}
	return args
}

// start starts the tracer; what it returns is closed when it has been killed, or has ended.
func (v *victim) start() (killed <-chan struct{}) {
	v.t.Helper()
	v.cmd = exec.Command(v.bin, v.args...)
	v.cmd.Stdout = io.Discard
	stderr, err := v.cmd.StderrPipe()
	if err != nil {
		v.t.Fatal(err)
	}
	if err := v.cmd.Start(); err != nil {
		v.t.Fatal(err)
	}
	done, isArmed := make(chan struct{}), make(chan struct{})
	v.heard = make(chan struct{})
	go v.listen(stderr, isArmed)
	go func() {
		defer close(done)
		v.killAtItsMoment(isArmed)
	}()
	v.t.Cleanup(func() {
		<-done
		v.killAll()
		<-v.heard
		if v.t.Failed() {
			v.t.Logf("the tracer said:\n%s", &v.said)
		}
	})
	return done
}

// listen takes in what the tracer says, and closes armed when it says so or ends.
func (v *victim) listen(stderr io.Reader, armed chan<- struct{}) {
	defer func() {
		if armed != nil {
			close(armed)
		}
		_, _ = io.Copy(io.Discard, stderr)
		close(v.heard)
	}()
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		if v.said.Len() < 4096 {
			fmt.Fprintln(&v.said, lines.Text())
		}
		if strings.HasPrefix(lines.Text(), "armed: ") && armed != nil {
			close(armed)
			armed = nil
		}
	}
}

func (v *victim) killAtItsMoment(isArmed <-chan struct{}) {
	if v.since != begun {
		<-isArmed
	}
	if v.since == asked {
		_ = v.cmd.Process.Signal(syscall.SIGINT)
	}
	<-time.After(v.after)
	if v.kind.leaves {
		_ = v.cmd.Process.Signal(syscall.SIGINT)
		if st, err := v.cmd.Process.Wait(); err == nil {
			if st := st.Sys().(syscall.WaitStatus); st.Signaled() && (v.since != begun || st.Signal() != syscall.SIGINT) { // before it knew what to do
				v.t.Errorf("it has ended with %v", st.Signal())
			}
		}
		return
	}
	_ = v.cmd.Process.Kill()
	if v.widows {
		v.killAll()
	}
	if st, err := v.cmd.Process.Wait(); err == nil && st.ExitCode() > 0 {
		v.kind.tally.note(v.kind.name, "refused")
		v.t.Logf("%s: it has ended by itself, with %v", v, st)
	}
}

// mend has the target put right, by whatever has outlived the tracer or by gokprobe recover.
func (v *victim) mend() {
	v.t.Helper()
	v.gone()
	out, err := run("", v.bin, "recover", "-p", strconv.Itoa(v.kind.pid))
	for n := 0; err == nil && strings.Contains(out, "run this once more") && n < 5000; n++ {
		out, err = run("", v.bin, "recover", "-p", strconv.Itoa(v.kind.pid))
	}
	if err != nil {
		v.t.Fatalf("recover: %v: %s", err, out)
	}
	if strings.HasPrefix(out, "nothing") {
		v.kind.tally.note(v.kind.name, "mended")
	} else {
		v.kind.tally.note(v.kind.name, "recovered")
	}
}

// gone waits until no process of the tracer's is left.
func (v *victim) gone() {
	v.t.Helper()
	testprog.Await(v.t, "an end of the killed tracer's processes", func() bool { return len(v.left()) == 0 })
}

// left are the processes that run the tracer's program.
func (v *victim) left() (pids []int) {
	exes, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, exe := range exes {
		if to, err := os.Readlink(exe); err == nil && to == v.bin {
			pid, _ := strconv.Atoi(strings.Split(exe, "/")[2])
			pids = append(pids, pid)
		}
	}
	return pids
}

func (v *victim) killAll() {
	for _, pid := range v.left() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}
