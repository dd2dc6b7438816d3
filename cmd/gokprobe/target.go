package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/gokprobe/gokprobe/internal/escape"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/ptrace"
)

// target is the process that a command is about.
type target struct {
	pid int
	// id tells this process from a later one with the same number. It is nil if no process had the number.
	id *ptrace.Identity
	// found says that the process was found by its name or file. If it can't be attached to, because it has ended
	// or is another user's, the command goes on with the others; if the user has named its number, that is an error.
	found bool
}

// still returns an error if the number may belong to another process by now. Facts that were
// read by number, such as files below /proc, are about t if still returns nil afterwards.
func (t target) still() error {
	if t.id == nil {
		return nil
	}
	if err := t.id.Still(); err != nil {
		return attachError(err)
	}
	return nil
}

// findTarget translates the value of -p: a process ID, or the name of the only
// process that has it.
func findTarget(arg string) (target, error) {
	if arg == "" {
		return target{}, usagef("no process given, name it with -p PID")
	}
	if pid, err := strconv.Atoi(arg); err == nil {
		if pid <= 0 {
			return target{}, usagef("-p %s is no process ID", arg)
		}
		id, _ := ptrace.Identify(pid) // if there is no such process, attaching says so
		return target{pid: pid, id: id}, nil
	}
	found := named(arg)
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return target{}, attachError(fmt.Errorf("cannot attach to %s: no process has this name, give a process ID", escape.Quote(arg)))
	}
	ids := make([]string, len(found))
	for i, t := range found {
		ids[i] = strconv.Itoa(t.pid)
		t.id.Close()
	}
	return target{}, usagef("%w: %s", &severalError{len(found), arg}, strings.Join(ids, ", "))
}

// severalError is the error of a name that several processes have.
type severalError struct {
	n    int
	name string
}

func (e *severalError) Error() string {
	return fmt.Sprintf("%d processes are named %q, choose one by its ID", e.n, e.name)
}

// orAll adds to a severalError that -all takes all of the processes.
func orAll(err error) error {
	if e := new(severalError); errors.As(err, &e) {
		return usagef("%w, or take them all with -all", err)
	}
	return err
}

// whom holds the flags that name processes.
type whom struct {
	names  []string
	all    bool
	file   string // empty for none
	follow bool   // their children as well
}

// whomFlags are the flags that name processes, for a command that takes several. does is what
// the command does to a process: "attach to" or "inject into".
func whomFlags(does string) []cli.Flag {
	return []cli.Flag{
		&cli.StringSliceFlag{Name: "p", Usage: does + " process `PID`, or to the only one of that name; repeatable"},
		&cli.BoolFlag{Name: "all", Usage: "take all processes of a name that -p gives"},
		&cli.StringFlag{Name: "x", Usage: does + " every process that runs or maps `FILE`, an executable or a library, now and later"},
	}
}

func parseWhom(c *cli.Context) whom {
	return whom{c.StringSlice("p"), c.Bool("all"), c.String("x"), c.Bool("follow")}
}

// isGiven reports whether the flags name any process.
func (w whom) isGiven() bool { return len(w.names) > 0 || w.all || w.file != "" }

// findTargets translates the values of -p; with -all a name means all processes that have it.
// several reports whether there may be more than one: several were found, or processes that
// map file may come later.
func (w whom) findTargets() (found []target, several bool, err error) {
	args, all := w.names, w.all
	if len(args) == 0 && w.file == "" {
		args = []string{""} // for which findTarget has the error
	}
	defer func() {
		if err != nil {
			for _, t := range found {
				t.id.Close()
			}
		}
	}()
	names := 0
	for _, arg := range args {
		_, perr := strconv.Atoi(arg)
		if all && perr != nil && arg != "" {
			names++
			of := named(arg)
			if len(of) == 0 {
				return found, false, attachError(fmt.Errorf("cannot attach to %s: no process has this name, give a process ID", escape.Quote(arg)))
			}
			found = append(found, of...)
			continue
		}
		t, err := findTarget(arg)
		if err != nil {
			return found, false, orAll(err)
		}
		found = append(found, t)
	}
	if all && names == 0 {
		return found, false, usagef("-all takes all processes of a name, give it with -p NAME")
	}
	seen := map[int]bool{}
	for _, t := range found {
		if seen[t.pid] {
			return found, false, usagef("-p names process %d twice", t.pid)
		}
		seen[t.pid] = true
	}
	return found, len(found) > 1 || w.file != "", nil
}

// forks tells that children of the processes belong to them which are forked before those are held.
func (w whom) forks() bool { return w.all && w.follow }

// forked lists the processes of the names that have -all which are not in known, nor held by us. It adds them to known.
func (w whom) forked(known map[int]bool) (found []target) {
	for _, arg := range w.names {
		if _, err := strconv.Atoi(arg); err == nil {
			continue
		}
		for _, t := range named(arg) {
			if known[t.pid] || ours(t.pid) {
				t.id.Close()
				continue
			}
			known[t.pid] = true
			found = append(found, t)
		}
	}
	return found
}

// warnForked warns of processes that were forked while the only one of the name, pid, was attached to.
func (w whom) warnForked(std stdio, pid int) {
	if !w.forks() {
		return
	}
	more := w.forked(map[int]bool{pid: true})
	for _, t := range more {
		t.id.Close()
	}
	if len(more) > 0 {
		std.warn("%s of the name came while process %d was attached to, and nobody follows them; with the same flags again all are taken", escape.Count(len(more), "process"), pid)
	}
}

// named lists the processes of a name, as pidof(1) does: the thread group leader's
// comm, which the kernel cuts at 15 bytes.
func named(name string) []target {
	const commLen = 15
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var found []target
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		id, err := ptrace.Identify(pid)
		if err != nil {
			continue // it has just ended
		}
		if comm, err := procfs.Comm(pid, 0); err == nil && comm == name[:min(len(name), commLen)] {
			found = append(found, target{pid: pid, id: id, found: true})
		} else {
			id.Close()
		}
	}
	return found
}
