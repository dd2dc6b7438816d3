package realprog

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/inject"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// log is what the server has logged so far.
func (r *redis) log(t testing.TB) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(r.dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// waitFor asks the server until its answer has text in it.
func (r *redis) waitFor(t testing.TB, command, text string) {
	t.Helper()
	testprog.Await(t, fmt.Sprintf("%q in the answer to %s", text, command), func() bool { return strings.Contains(r.cli(t, command+"\n"), text) })
}

// TestRedisUnderFaults: clients see nothing of writes that fail with EAGAIN, one in a hundred, since a reply that could
// not be written waits until the socket takes it (networking.c, writeToClient), and nothing but slowness of
// a malloc that takes 2 ms more, one in a thousand times.
func TestRedisUnderFaults(t *testing.T) {
	r := startRedis(t)
	want := r.work(t)
	for _, c := range []struct {
		name string
		rule inject.Rule
	}{
		{"write fails", inject.Rule{Spec: "libc.so.6:write", Attr: sometimes(0.01), Do: failsWith(unix.EAGAIN)}},
		{"malloc is slow", inject.Rule{Spec: "libjemalloc.so.2:malloc", Attr: sometimes(0.001), Do: delays(2 * time.Millisecond)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := attach(t, r.PID(), kprobes.Options{})
			stop := failing(t, s, c.rule)
			sameText(t, "meanwhile", want, r.work(t))
			if st := stop(); st.Injected < 10 {
				t.Errorf("only %d of %d calls were injected", st.Injected, st.Calls)
			}
			closeSession(t, s)
			r.CheckClean()
		})
	}
	sameText(t, "afterwards", want, r.work(t))
}

// TestRedisCannotFork: BGSAVE fails, and the server refuses writes until a save has succeeded
// (redis.conf, stop-writes-on-bgsave-error), which the next does.
func TestRedisCannotFork(t *testing.T) {
	r := startRedis(t)
	r.cli(t, "CONFIG SET save \"3600 1000000\"\nDEBUG POPULATE 1000\n")
	s := attach(t, r.PID(), kprobes.Options{})
	once := every(1)
	once.Times = 1
	stop := failing(t, s, inject.Rule{Spec: "libc.so.6:fork", Attr: once, Do: failsWith(unix.ENOMEM)})
	if out := r.cli(t, "BGSAVE\n"); !strings.HasPrefix(out, "ERR") {
		t.Errorf("BGSAVE without a fork says %q", out)
	}
	if out := r.cli(t, "SET a b\n"); !strings.HasPrefix(out, "MISCONF ") {
		t.Errorf("SET after a failed save says %q", out)
	}
	if out := r.cli(t, "EXISTS key:1\n"); out != "1\n" {
		t.Errorf("EXISTS after a failed save says %q", out)
	}
	r.save(t)
	if out := r.cli(t, "SET a b\nGET a\n"); out != "OK\nb\n" {
		t.Errorf("SET and GET after a good save say %q", out)
	}
	if st := stop(); st.Injected != 1 {
		t.Errorf("%d forks failed, want 1", st.Injected)
	}
	if log := r.log(t); strings.Count(log, "Can't save in background: fork: Cannot allocate memory") != 1 {
		t.Errorf("the log does not tell that the fork failed:\n%s", log)
	}
	closeSession(t, s)
	r.CheckClean()
	r.save(t)
}

// startLoggedRedis starts a server that writes all changes to its append-only file, and returns
// that file's number in the server.
func startLoggedRedis(t *testing.T) (r *redis, fd int) {
	r = startRedis(t)
	r.cli(t, "CONFIG SET appendonly yes\n")
	testprog.Await(t, "an append-only file", func() bool { // it gets this name when all data is in the files
		for n, path := range testprog.TakeSnapshot(t, r.PID()).FDs {
			if strings.HasSuffix(path, "/appendonly.aof.1.incr.aof") {
				fd = n
				return true
			}
		}
		return false
	})
	return r, fd
}

// TestRedisCannotLog: writes to the append-only file fail twice. The server then refuses changes until it
// has written what it owes (aof.c, flushAppendOnlyFile; "MISCONF Errors writing to the AOF file"), and
// what it has acknowledged is in the file, nothing else.
func TestRedisCannotLog(t *testing.T) {
	r, fd := startLoggedRedis(t)
	r.cli(t, "CONFIG SET appendfsync no\n") // each change is written at once
	s := attach(t, r.PID(), kprobes.Options{})
	twice := every(50)
	twice.Times = 2
	stop := failing(t, s, inject.Rule{
		Spec: "libc.so.6:write", Args: []string{"fd=$arg1:s32"}, If: fmt.Sprintf("fd == %d", fd),
		Attr: twice, Do: failsWith(unix.EAGAIN),
	})
	said := r.setAll(t, "key", 200)
	r.waitFor(t, "SET last 1", "OK")
	said["OK"]++
	if st := stop(); st.Injected == 0 || said["MISCONF"] == 0 {
		t.Errorf("%d of %d writes failed, and the server said %v", st.Injected, st.Calls, said)
	}
	closeSession(t, s)
	r.CheckClean()
	digest := r.cli(t, "DEBUG DIGEST\n")
	sameText(t, "what was logged", digest, strings.TrimPrefix(r.cli(t, "DEBUG LOADAOF\nDEBUG DIGEST\n"), "OK\n"))
	if size := r.cli(t, "DBSIZE\n"); size != fmt.Sprintln(said["OK"]) {
		t.Errorf("%d changes were acknowledged, but there are %s keys", said["OK"], size)
	}
}

// setAll sets n keys and counts the first words of the answers.
func (r *redis) setAll(t testing.TB, key string, n int) map[string]int {
	t.Helper()
	var script strings.Builder
	for i := range n {
		fmt.Fprintf(&script, "SET %s%d %d\n", key, i, i)
	}
	said := map[string]int{}
	for _, line := range strings.Split(r.cli(t, script.String()), "\n") {
		if word, _, _ := strings.Cut(line, " "); word != "" {
			said[word]++
		}
	}
	return said
}

// TestRedisServesWhileOneThreadIsHeld: the thread that syncs the append-only file is held in fdatasync for an hour. All
// others go on: the server notices that the sync takes too long, writes without it after two seconds (aof.c,
// flushAppendOnlyFile), and answers. The end of the session lets the thread go.
func TestRedisServesWhileOneThreadIsHeld(t *testing.T) {
	r, _ := startLoggedRedis(t)
	s := attach(t, r.PID(), kprobes.Options{})
	stop := failing(t, s, inject.Rule{Spec: "libc.so.6:fdatasync", Attr: every(1), Do: delays(time.Hour)})
	noticed := func() bool { return !strings.Contains(r.cli(t, "INFO persistence\n"), "aof_delayed_fsync:0") }
	i := 0
	testprog.Await(t, "a server that notices that its disk is slow", func() bool {
		i++
		if said := r.setAll(t, fmt.Sprint("key", i, "-"), 100); said["OK"] != 100 {
			t.Fatalf("the server says %v", said)
		}
		return noticed()
	})
	if st := stop(); st.Injected == 0 {
		t.Errorf("no sync was delayed")
	}
	closeSession(t, s)
	r.CheckClean()
	r.waitFor(t, "INFO persistence", "aof_pending_bio_fsync:0")
}
