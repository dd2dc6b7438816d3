package debugfs_test

import (
	"strings"
	"syscall"
	"testing"

	"github.com/gokprobe/gokprobe/kprobes"
)

// Events of the boot parameter are on; one that is wrong is in error_log (kernel/trace/trace_kprobe.c, setup_boot_kprobe_events).
func TestEventsOfTheBootParameter(t *testing.T) {
	tr := open(t, "prey", kprobes.Options{})
	tr.must(tr.Boot("p:in,target,v=%di:u64;r:g/out,target,$retval:s64;"))
	tr.is(events, "p:kprobes/in target v=%di:u64\nr10:g/out target arg1=$retval:s64\n")
	tr.is("tracing/events/enable", "1\n")
	tr.call("target", 33)
	tr.wantLines(`in: \(.*\) v=33`, `out: \(.*\) arg1=11`)
	tr.refused(tr.Boot("p:more,target2;p:wrong,gone;p:never,foo"), syscall.ENOENT)
	if list := tr.cat(events); !strings.HasSuffix(list, "p:kprobes/more target2\n") {
		t.Errorf("the events are %s", list)
	}
	if log := tr.cat("tracing/error_log"); !strings.Contains(log, "  Command: p:wrong gone\n                   ^\n") {
		t.Errorf("error_log is %s", log)
	}
	tr.refused(tr.Boot("p,"+strings.Repeat("x", 5000)), syscall.EINVAL)
}
