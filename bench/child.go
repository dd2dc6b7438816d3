package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// A program that benches starts itself again in two roles: as a target, and as a
// measurer, which traces a target of its own. So every measurement has a fresh tracer
// that sees only the processors that it is given.
const (
	roleEnv      = "GOKPROBE_BENCH"
	roleTarget   = "target"
	roleMeasurer = "measure"
)

// Child runs this process in its role if it was started by Run, and returns its exit status.
// A program that calls Run has to call Child first in its main function, and to exit if
// isChild.
func Child() (status int, isChild bool) {
	var err error
	switch role := os.Getenv(roleEnv); {
	case role == "":
		return 0, false
	case len(os.Args) != 2:
		err = fmt.Errorf("%s is set to %q", roleEnv, role)
	case role == roleTarget:
		err = runTarget(os.Args[1], os.Stdin, os.Stdout)
	default:
		err = runMeasurer(os.Args[1])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1, true
	}
	return 0, true
}

// job is a request to a measurer, outcome its answer.
type (
	job struct {
		Measure measure
		Image   string // the file
		CPUs    []int  // two, if there are two
	}
	outcome struct {
		NS   float64 // per call
		Note string  // why there is no NS
		Err  string
	}
)

// unavailable is an error that is no failure: this machine lacks the thing to be
// measured.
type unavailable struct{ reason string }

func (u *unavailable) Error() string { return u.reason }

func runMeasurer(text string) error {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return err
	}
	var o outcome
	var none *unavailable
	ns, err := j.run()
	switch {
	case errors.As(err, &none):
		o.Note = none.reason
	case err != nil:
		o.Err = err.Error()
	default:
		o.NS = ns
	}
	return json.NewEncoder(os.Stdout).Encode(o)
}

// do runs the job in a measurer. The measurer and its target are killed when ctx ends.
func (j job) do(ctx context.Context) (ns float64, err error) {
	text, err := json.Marshal(j)
	if err != nil {
		return 0, err
	}
	cmd, err := self(roleMeasurer, string(text))
	if err != nil {
		return 0, err
	}
	var out bytes.Buffer
	cmd.Stdout = &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is not for it
	if err := startOn(cmd, j.processors()); err != nil {
		return 0, fmt.Errorf("starting a measurer: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) })
	err = cmd.Wait()
	if !stop() {
		return 0, context.Cause(ctx)
	}
	var o outcome
	if err != nil {
		return 0, fmt.Errorf("the measurer: %w", err)
	}
	if err := json.Unmarshal(out.Bytes(), &o); err != nil {
		return 0, fmt.Errorf("the measurer said %q: %w", out.String(), err)
	}
	switch {
	case o.Err != "":
		return 0, errors.New(o.Err)
	case o.Note != "":
		return 0, &unavailable{o.Note}
	}
	return o.NS, nil
}

// processors lists the processors that the measurer may use, nil for all.
func (j job) processors() []int {
	if j.Measure.Load == oneProcessor {
		return j.CPUs[:1]
	}
	return nil
}

// startOn starts cmd on the processors: a child inherits its parent thread's.
func startOn(cmd *exec.Cmd, cpus []int) error {
	if cpus == nil {
		return cmd.Start()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, some unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return err
	}
	for _, c := range cpus {
		some.Set(c)
	}
	if err := unix.SchedSetaffinity(0, &some); err != nil {
		return err
	}
	err := cmd.Start()
	return errors.Join(err, unix.SchedSetaffinity(0, &all))
}

// usable are the processors that this process may use, in order.
func usable() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("asking for the processors: %w", err)
	}
	var cpus []int
	for c := range len(set) * 64 {
		if set.IsSet(c) {
			cpus = append(cpus, c)
		}
	}
	return cpus, nil
}
