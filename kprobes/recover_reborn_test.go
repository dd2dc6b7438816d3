package kprobes_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/ptrace"
)

// TestANumberThatIsAnothersByNow: the process that is meant ends before an attach, or at each event of it before it is held, and another one gets its
// number at once. That one is not attached to.
func TestANumberThatIsAnothersByNow(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "reborn"))
	for n := int64(0); n < 24; n++ {
		var pid int
		if _, err := fmt.Sscanf(p.Do("child", "child "), "child %d", &pid); err != nil {
			t.Fatal(err)
		}
		id, err := ptrace.Identify(pid)
		if err != nil {
			t.Fatal(err)
		}
		swap := func() {
			if got := p.Do("swap", "swapped"); got != fmt.Sprintf("swapped %d", pid) {
				t.Errorf("the number is not given again: %s", got)
			}
		}
		var count atomic.Int64
		swapped := n == 0
		if swapped {
			swap()
		}
		end := kprobes.AtEvents(func() {
			if st, err := procfs.ReadStatus(pid, 0); err != nil || st.TracerPid != 0 {
				return // it is held: nobody gets its number
			}
			if count.Add(1) == n {
				swapped = true
				swap()
			}
		}, func(*ptrace.Tracer) {})
		s, err := kprobes.Attach(context.Background(), pid, kprobes.Options{Meant: id})
		end()
		switch {
		case !swapped && err != nil:
			t.Errorf("the attach failed: %v", err)
		case swapped && err == nil:
			t.Errorf("swapped at event %d: the other one was attached to", n)
		}
		if s != nil {
			closeSession(t, s)
		}
		if swapped && id.Still() == nil {
			t.Error("the one that was meant has its number still")
		}
		if err != nil && !errors.Is(err, unix.ESRCH) {
			t.Errorf("swapped at event %d: %v", n, err)
		}
		testprog.CheckClean(t, pid)
		id.Close()
		p.Do("end", "ended")
		if !swapped {
			break
		}
	}
	wantRight(t, p)
}
