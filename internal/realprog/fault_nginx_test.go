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
	for _, c := range []struct {
		name  string
		errno unix.Errno
		says  string
		once  bool
	}{
		{"ECONNABORTED", unix.ECONNABORTED, "accept4() failed (103: Software caused connection abort)", false},
		{"EMFILE", unix.EMFILE, "accept4() failed (24: Too many open files)", false},
		{"ENOSYS", unix.ENOSYS, "accept4() failed (38: Function not implemented)", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := startNginx(t)
			want := n.work(t)
			worker := n.worker(t)
			s := attach(t, worker, kprobes.Options{})
			stop := failing(t, s, inject.Rule{Spec: "libc.so.6:accept4", Attr: every(20), Do: failsWith(c.errno)})
			sameText(t, "under failing accepts", want, n.work(t))
			st := stop()
			if c.once != (st.Injected == 1) || st.Injected != st.Calls/20 {
				t.Errorf("%d of %d calls failed", st.Injected, st.Calls)
			}
			closeSession(t, s)
			testprog.CheckClean(t, worker)
			sameText(t, "afterwards", want, n.work(t))
			log, err := os.ReadFile(n.log)
			if err != nil {
				t.Fatal(err)
			}
			if logged := strings.Count(string(log), c.says); logged != int(st.Injected) {
				t.Errorf("%d of %d failures are logged:\n%s", logged, st.Injected, log)
			}
			n.CheckClean()
		})
	}
}
