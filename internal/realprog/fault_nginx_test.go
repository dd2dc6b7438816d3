package realprog

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/inject"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// TestNginxUnderFailingAccept: every 20th accept4 fails. nginx logs each, and takes the connection up later
// (ngx_event_accept.c): after ECONNABORTED at the next event, after EMFILE when accept_mutex_delay
// is over, after ENOSYS with accept, for good. Clients see nothing of it.
func TestNginxUnderFailingAccept(t *testing.T) {
	const aborted, full, none = "(103: Software caused connection abort)", "(24: Too many open files)", "(38: Function not implemented)"
	for _, c := range []struct {
		name  string
		rule  inject.Rule
		errno unix.Errno
		says  string
	}{
		{"ECONNABORTED", inject.Rule{Spec: "libc.so.6:accept4"}, unix.ECONNABORTED, aborted},
		{"EMFILE", inject.Rule{Spec: "libc.so.6:accept4"}, unix.EMFILE, full},
		{"ENOSYS", inject.Rule{Spec: "libc.so.6:accept4"}, unix.ENOSYS, none},
		{"ECONNABORTED of the system call", inject.Rule{Syscall: "accept4"}, unix.ECONNABORTED, aborted},
		{"EMFILE of the system call, by stops", inject.Rule{Syscall: "accept4", SyscallBy: kprobes.SyscallByStops}, unix.EMFILE, full},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := startNginx(t)
			want := n.work(t)
			worker := n.worker(t)
			s := attach(t, worker, kprobes.Options{})
			c.rule.Attr, c.rule.Do = every(20), failsWith(c.errno)
			stop := failing(t, s, c.rule)
			sameText(t, "under failing accepts", want, n.work(t))
			st := stop()
			if st.Injected == 0 || (st.Injected == 1) != (c.errno == unix.ENOSYS) || st.Injected != st.Calls/20 {
				t.Errorf("%d of %d calls failed", st.Injected, st.Calls)
			}
			closeSession(t, s)
			testprog.CheckClean(t, worker)
			sameText(t, "afterwards", want, n.work(t))
			log, err := os.ReadFile(n.log)
			if err != nil {
				t.Fatal(err)
			}
			if logged := strings.Count(string(log), "accept4() failed "+c.says); logged != int(st.Injected) {
				t.Errorf("%d of %d failures are logged:\n%s", logged, st.Injected, log)
			}
			n.CheckClean()
		})
	}
}
