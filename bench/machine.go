package bench

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Machine is where was measured.
type Machine struct {
	CPU        string `json:"cpu"`
	Processors int    `json:"processors"` // that this process may use
	Virtual    bool   `json:"virtual"`    // under a hypervisor, as the CPU tells
	Kernel     string `json:"kernel"`
	Go         string `json:"go"`
	// Load is how many threads ran or wanted to in the minute before (/proc/loadavg): more
	// than few disturb the figures.
	Load float64 `json:"load"`
}

// String is one line.
func (m Machine) String() string {
	kind := ""
	if m.Virtual {
		kind = ", virtual"
	}
	return fmt.Sprintf("%s, processors: %d%s, Linux %s, %s, load %.1f", m.CPU, m.Processors, kind, m.Kernel, m.Go, m.Load)
}

func thisMachine() Machine {
	m := Machine{CPU: "unknown processor", Kernel: "unknown", Go: runtime.Version()}
	if cpus, err := usable(); err == nil {
		m.Processors = len(cpus)
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		first, _, _ := strings.Cut(string(load), " ")
		m.Load, _ = strconv.ParseFloat(first, 64)
	}
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return m
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() && lines.Text() != "" { // the first processor's
		switch name, value, _ := strings.Cut(lines.Text(), ":"); strings.TrimSpace(name) {
		case "model name":
			m.CPU = strings.TrimSpace(value)
		case "flags":
			m.Virtual = slices.Contains(strings.Fields(value), "hypervisor")
		}
	}
	return m
}
