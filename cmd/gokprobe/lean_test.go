package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"
)

// addresses is a running process's address space in bytes, as the field of its status says.
func addresses(t *testing.T, pid int, field string) uint64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(field + `:\s+(\d+) kB`).FindSubmatch(b)
	if m == nil {
		t.Fatalf("no %s in %s", field, b)
	}
	n, err := strconv.ParseUint(string(m[1]), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n << 10
}

func TestACommandWithoutAScenarioReservesNoAddressesForOne(t *testing.T) {
	p := prey(t)
	l := attachTo(t, p, "-sym", "foo")
	if n := addresses(t, l.cmd.Process.Pid, "VmPeak"); n >= 4<<30 {
		t.Errorf("%d MiB", n>>20)
	}
	limit, err := exec.Command("prlimit", "--as", "-o", "SOFT", "--noheadings", "--pid", strconv.Itoa(l.cmd.Process.Pid)).Output()
	own, ownErr := exec.Command("prlimit", "--as", "-o", "SOFT", "--noheadings", "--pid", strconv.Itoa(os.Getpid())).Output()
	if err != nil || ownErr != nil || string(limit) != string(own) {
		t.Errorf("its limit is %s, not %s: %v %v", limit, own, err, ownErr)
	}
	l.interrupt()
	p.CheckClean()
	p.Quit()
}

func TestWithFewAddressesNothingIsSaid(t *testing.T) {
	for _, args := range []string{"--version", "script -h"} {
		out, err := exec.Command("sh", "-c", "ulimit -v 2000000; exec "+program+" "+args+" 2>&1 >/dev/null").Output()
		if err != nil || len(out) > 0 {
			t.Errorf("%s: %v, %q", args, err, out)
		}
	}
}
