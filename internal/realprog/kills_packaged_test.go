package realprog

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// packagedKinds are those that need packages which make setup-test does not install.
func packagedKinds() []killKind {
	return []killKind{
		script("prolog", "swipl", "work.pl", []string{"libc.so.6:pthread_*", "libc.so.6:*fork*", "libc.so.6:malloc", "libc.so.6:*sig*"}),
		script("ruby", "ruby", "work.rb", []string{"libc.so.6:pthread_*", "libc.so.6:*fork*", "libc.so.6:malloc", "libc.so.6:*sig*", "rb_*call*"}),
		script("sbcl", "sbcl", "work.lisp", []string{"libc.so.6:pthread_*", "libc.so.6:*sig*", "libc.so.6:mmap", "os_*", "gc_*"}, "--script"),
		script("java", "java", "Work.java", []string{"libc.so.6:pthread_*", "libc.so.6:*clone*", "libc.so.6:malloc", "libc.so.6:*sig*"}),
		{name: "mono", start: startMono, some: []string{"libc.so.6:pthread_*", "libc.so.6:*sig*", "libc.so.6:malloc", "mono_thread_*", "mono_gc_*"}},
		{name: "haproxy", start: startHaproxy, some: []string{"libc.so.6:recv", "libc.so.6:send*", "libc.so.6:epoll_*", "libc.so.6:mem*", "http_*"}},
		{name: "mariadb", start: startMariadb, some: []string{"libc.so.6:pthread_*", "libc.so.6:mem*", "libc.so.6:malloc", "libc.so.6:p*64", "libc.so.6:*clone*"}},
	}
}

func startMono(t *testing.T) target {
	tools := requires(t, "mono", "mcs")
	exe := filepath.Join(t.TempDir(), "work.exe")
	output(t, "", tools[1], "-out:"+exe, "testdata/kills/work.cs")
	return rounds(start(t, t.ArtifactDir(), tools[0], exe), 5)
}

const haproxyConf = `global
  nbthread 2
defaults
  mode http
  timeout connect 1m
  timeout client 1m
  timeout server 1m
frontend all
  bind %s
  http-request return status 200 content-type text/plain lf-string "hello %%[path,lower]"
`

func startHaproxy(t *testing.T) target {
	tools := requires(t, "haproxy", "ab")
	dir, address := t.ArtifactDir(), freeAddress(t)
	conf := filepath.Join(dir, "conf")
	write(t, conf, fmt.Sprintf(haproxyConf, address))
	prog := start(t, dir, tools[0], "-db", "-f", conf)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	get := func(path string) (string, error) {
		r, err := client.Get("http://" + address + path)
		if err != nil {
			return "", err
		}
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		return string(b), err
	}
	for range 100_000 {
		if _, err := get("/"); err == nil {
			break
		}
	}
	return target{
		pid: prog.PID(),
		work: func(t testing.TB) {
			t.Helper()
			for i := range 20 {
				if got, err := get(fmt.Sprintf("/SOME/%d", i)); err != nil || got != fmt.Sprintf("hello /some/%d", i) {
					t.Fatalf("haproxy answers %q, %v", got, err)
				}
			}
			out := output(t, "", tools[1], "-q", "-n", "400", "-c", "10", "http://"+address+"/AB")
			if !strings.Contains(out, "Failed requests:        0\n") || !strings.Contains(out, "Complete requests:      400\n") {
				t.Errorf("ab says %s", out)
			}
		},
		quit: func(t testing.TB) {
			t.Helper()
			if err := prog.Signal(syscall.SIGUSR1); err != nil { // an end when all is done
				t.Error(err)
			}
			if e := prog.Wait(); e != (testprog.Exit{}) {
				t.Errorf("haproxy has ended with %+v", e)
			}
		},
	}
}

// mariaScript fills a table and asks for it; the answers depend on nothing else.
const mariaScript = `CREATE DATABASE IF NOT EXISTS d%[1]d; USE d%[1]d; DROP TABLE IF EXISTS t;
CREATE TABLE t (id INT PRIMARY KEY, s VARCHAR(80), KEY (s));
INSERT INTO t SELECT seq, MD5(seq) FROM seq_1_to_300;
BEGIN; UPDATE t SET s = CONCAT(s, 'x') WHERE id %% 3 = 0; ROLLBACK;
UPDATE t SET s = CONCAT(s, 'y') WHERE id %% 5 = 0;
SELECT COUNT(*), SUM(LENGTH(s)), MIN(s), MAX(s) FROM t;
SELECT a.id, b.id FROM t a JOIN t b ON a.id = b.id * 7 ORDER BY a.s LIMIT 5;
`

func startMariadb(t *testing.T) target {
	tools := requires(t, "mariadbd", "mariadb", "mariadb-install-db")
	dir, err := os.MkdirTemp("", "maria") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	data, socket := filepath.Join(dir, "data"), filepath.Join(dir, "s")
	output(t, "", tools[2], "--no-defaults", "--datadir="+data, "--user=root", "--auth-root-authentication-method=normal", "--skip-test-db")
	prog := start(t, dir, tools[0], "--no-defaults", "--datadir="+data, "--socket="+socket, "--skip-networking", "--user=root",
		"--innodb-buffer-pool-size=16M", "--thread-cache-size=0", "--log-error="+filepath.Join(dir, "log"))
	ask := func(n int) (string, error) {
		return run(fmt.Sprintf(mariaScript, n), tools[1], "--no-defaults", "-u", "root", "-S", socket)
	}
	want := ""
	for range 10_000 {
		if want, err = ask(0); err == nil {
			break
		}
	}
	if err != nil {
		t.Fatalf("mariadbd does not answer: %v: %s", err, want)
	}
	return target{
		pid: prog.PID(),
		work: func(t testing.TB) {
			t.Helper()
			const clients = 3
			got := make(chan string, clients)
			for n := range clients {
				go func() {
					out, err := ask(n)
					if err != nil {
						out += err.Error()
					}
					got <- out
				}()
			}
			for range clients {
				sameText(t, "work", want, <-got)
			}
		},
		quit: func(t testing.TB) {
			t.Helper()
			if err := prog.Signal(syscall.SIGTERM); err != nil {
				t.Error(err)
			}
			if e := prog.Wait(); e != (testprog.Exit{}) {
				t.Errorf("mariadbd has ended with %+v", e)
			}
		},
	}
}
