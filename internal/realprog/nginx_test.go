package realprog

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// nginx is a master process; its workers answer, and say which one did.
type nginx struct {
	*testprog.Prog
	ab, url string
	log     string // the path of its error log
	client  http.Client
}

const nginxConf = `daemon off;
worker_processes 1;
error_log %[1]s/error.log;
pid %[1]s/pid;
events { worker_connections 256; accept_mutex_delay 20ms; }
http {
  access_log %[1]s/access.log;
  client_body_temp_path %[1]s/t; proxy_temp_path %[1]s/t; fastcgi_temp_path %[1]s/t; uwsgi_temp_path %[1]s/t; scgi_temp_path %[1]s/t;
  gzip on; gzip_min_length 100; gzip_types text/plain;
  server { listen %[2]s; root %[1]s/www; add_header Worker $pid;
    location /moved { return 301 /small.txt; } }
}
`

func startNginx(t *testing.T) *nginx {
	tools := requires(t, "nginx", "ab")
	dir := t.TempDir()
	www := filepath.Join(dir, "www")
	if err := os.Mkdir(www, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // the worker is another user
		t.Fatal(err)
	}
	write(t, filepath.Join(www, "small.txt"), strings.Repeat("small text\n", 50))
	write(t, filepath.Join(www, "big.bin"), strings.Repeat("\x00\x01\xfe\xcc", 200_000))
	address := freeAddress(t)
	conf, log := filepath.Join(dir, "conf"), filepath.Join(dir, "error.log")
	write(t, conf, fmt.Sprintf(nginxConf, dir, address))
	n := &nginx{Prog: start(t, dir, tools[0], "-c", conf, "-e", log), ab: tools[1], url: "http://" + address, log: log}
	t.Cleanup(func() { // a killed master would leave its workers behind
		if err := n.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		n.Wait()
	})
	n.client.Transport = &http.Transport{DisableKeepAlives: true, DisableCompression: true}
	testprog.Await(t, "an answer of nginx", func() bool {
		r, err := n.client.Get(n.url + "/small.txt")
		if err == nil {
			r.Body.Close()
		}
		return err == nil
	})
	return n
}

// freeAddress is a port that nobody else is given until the test ends: a socket that does not listen holds it. Both it and the server's
// have SO_REUSEADDR, so the server may have it.
func freeAddress(t testing.TB) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	local := &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}
	if err := errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1), unix.Bind(fd, local)); err != nil {
		t.Fatal(err)
	}
	got, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", got.(*unix.SockaddrInet4).Port)
}

// get describes an answer, and tells which worker gave it.
func (n *nginx) get(t testing.TB, path, encoding string) (answer, worker string) {
	t.Helper()
	req, err := http.NewRequest("GET", n.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if encoding != "" {
		req.Header.Set("Accept-Encoding", encoding)
	}
	r, err := n.client.Do(req)
	if err != nil {
		t.Fatalf("get %s: %v", path, err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatalf("get %s: %v", path, err)
	}
	return fmt.Sprintf("%s %s %s %x\n", path, r.Status, r.Header.Get("Content-Encoding"), sha256.Sum256(body)), r.Header.Get("Worker")
}

func (n *nginx) worker(t testing.TB) (pid int) {
	t.Helper()
	_, w := n.get(t, "/small.txt", "")
	if _, err := fmt.Sscan(w, &pid); err != nil {
		t.Fatalf("worker %q: %v", w, err)
	}
	return pid
}

const (
	nginxEach = 5   // single requests for each of nginxPaths
	abEach    = 200 // requests of one run of ab
	nginxAll  = 5*nginxEach + 2*abEach + nginxEach
)

var nginxPaths = []string{"/small.txt", "/big.bin", "/missing", "/moved"}

var abResult = regexp.MustCompile(`(?m)^(Complete requests|Failed requests|Non-2xx responses|Total transferred|HTML transferred):.*$`)

// work makes nginxAll requests; a redirect is followed, which makes two of one.
func (n *nginx) work(t testing.TB) string {
	t.Helper()
	var b bytes.Buffer
	for range nginxEach {
		for _, path := range nginxPaths {
			answer, _ := n.get(t, path, "")
			b.WriteString(answer)
		}
		answer, _ := n.get(t, "/small.txt", "gzip")
		b.WriteString(answer)
	}
	for _, path := range []string{"/small.txt", "/big.bin"} {
		out := output(t, "", n.ab, "-q", "-n", fmt.Sprint(abEach), "-c", "10", n.url+path)
		b.WriteString(strings.Join(abResult.FindAllString(out, -1), "\n") + "\n")
	}
	return b.String()
}

// TestNginxWorker: the process that answers, of another user than its tracer.
func TestNginxWorker(t *testing.T) {
	n := startNginx(t)
	campaign{
		pid: n.worker(t),
		specs: []string{"ngx_http_process_request", "ngx_http_finalize_request", "ngx_http_send_header", "ngx_event_accept",
			"ngx_palloc", "ngx_open_cached_file", "libc.so.6:memcpy", "libc.so.6:malloc", "libc.so.6:writev", "libc.so.6:epoll_wait"},
		work: n.work,
		counts: func(t testing.TB, h hits) {
			wantHits(t, h, "ngx_http_process_request", nginxAll)
		},
		same: []string{"ngx_http_process_request", "ngx_http_send_header"},
	}.run(t)
	n.CheckClean()
}

// TestNginxReloadsUnderProbes: the master makes new workers while it is probed. They
// are let go with the original code, or probed as well.
func TestNginxReloadsUnderProbes(t *testing.T) {
	for _, follow := range []bool{false, true} {
		t.Run(fmt.Sprintf("follow=%v", follow), func(t *testing.T) {
			n := startNginx(t)
			want := n.work(t)
			s := attach(t, n.PID(), kprobes.Options{Follow: follow})
			spawns, requests := boosted.probe("ngx_spawn_process"), stepped.probe("ngx_http_process_request")
			if err := s.RegisterKprobes(t.Context(), []*kprobes.Kprobe{spawns, requests}); err != nil {
				t.Fatal(err)
			}
			for i := range 3 {
				n.reload(t)
				if got := spawns.Hits(); got != uint64(i+1) {
					t.Errorf("ngx_spawn_process: %d hits after reload %d", got, i+1)
				}
			}
			old := requests.Hits()
			sameText(t, "after reloads", want, n.work(t))
			if got := requests.Hits() - old; follow && got != nginxAll || !follow && got != 0 {
				t.Errorf("ngx_http_process_request: %d hits, the workers answered %d requests", got, nginxAll)
			}
			worker := n.worker(t)
			if !follow {
				testprog.CheckClean(t, worker)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			n.CheckClean()
			testprog.CheckClean(t, worker)
			sameText(t, "after all probes", want, n.work(t))
		})
	}
}

// reload has the master replace its worker, and waits until it has.
func (n *nginx) reload(t testing.TB) {
	t.Helper()
	old := n.worker(t)
	if err := n.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	testprog.Await(t, "a new worker alone", func() bool { // each try is a request, which either of them may answer
		return n.worker(t) != old && n.children(t) == 1
	})
}

// children is how many workers the master has.
func (n *nginx) children(t testing.TB) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", n.PID()))
	if err != nil {
		t.Fatal(err)
	}
	return len(strings.Fields(string(b)))
}
