package testprog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// freezer is a version of cgroups' freezers.
type freezer struct {
	roots        []string // where it may be mounted: the first that there is
	file         string   // that freezes
	freeze, thaw string   // what is written there
	state, done  string   // which file says what then
}

var freezers = map[int]freezer{
	1: {[]string{"/sys/fs/cgroup/freezer"}, "freezer.state", "FROZEN", "THAWED", "freezer.state", "FROZEN\n"},
	2: {[]string{"/sys/fs/cgroup/unified", "/sys/fs/cgroup"}, "cgroup.freeze", "1", "0", "cgroup.events", "frozen 1"},
}

// write does not make the file: where there is no such cgroup the directory may be another file system's.
func write(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// Freeze freezes the fixture by a cgroup of the given version, 1 or 2, until thaw is called, at the end of the test at the latest. Threads that
// one of version 1 has frozen do not come to a ptrace-stop; those of version 2 do. Where no such cgroup can be made ok is false: the fixture runs
// on then.
func (p *Prog) Freeze(version int) (thaw func(), ok bool) {
	p.t.Helper()
	v := freezers[version]
	for _, root := range v.roots {
		dir := filepath.Join(root, fmt.Sprintf("gokprobe-test-%d", os.Getpid()))
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		thaw = func() {
			_ = write(filepath.Join(dir, v.file), v.thaw)
			_ = write(filepath.Join(root, "cgroup.procs"), strconv.Itoa(p.pid))
			_ = os.Remove(dir)
		}
		if write(filepath.Join(dir, "cgroup.procs"), strconv.Itoa(p.pid)) != nil || write(filepath.Join(dir, v.file), v.freeze) != nil {
			thaw()
			continue
		}
		p.t.Cleanup(thaw)
		Await(p.t, "a frozen "+p.name, func() bool {
			b, err := os.ReadFile(filepath.Join(dir, v.state))
			if err != nil {
				p.t.Fatalf("%s: freeze: %v", p.name, err)
			}
			return strings.Contains(string(b), v.done)
		})
		return thaw, true
	}
	p.t.Logf("%s: no cgroup of version %d can be made here to freeze it", p.name, version)
	return func() {}, false
}
