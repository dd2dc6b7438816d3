package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/gokprobe/gokprobe/internal/procfs"
)

// findTarget translates the value of -p: a process ID, or the name of the only
// process that has it.
func findTarget(arg string) (int, error) {
	if arg == "" {
		return 0, usagef("no process given, name it with -p PID")
	}
	if pid, err := strconv.Atoi(arg); err == nil {
		if pid <= 0 {
			return 0, usagef("-p %s is no process ID", arg)
		}
		return pid, nil
	}
	pids := named(arg)
	switch len(pids) {
	case 1:
		return pids[0], nil
	case 0:
		return 0, attachError(fmt.Errorf("cannot attach to %q: no process has this name, give a process ID", arg))
	}
	ids := make([]string, len(pids))
	for i, pid := range pids {
		ids[i] = strconv.Itoa(pid)
	}
	return 0, usagef("%d processes are named %q, choose one by its ID: %s", len(pids), arg, strings.Join(ids, ", "))
}

// named lists the processes of a name, as pidof(1) does: the thread group leader's
// comm, which the kernel cuts at 15 bytes.
func named(name string) []int {
	const commLen = 15
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		if comm, err := procfs.Comm(pid, 0); err == nil && comm == name[:min(len(name), commLen)] {
			pids = append(pids, pid)
		}
	}
	return pids
}
