package realprog

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// What C programs of this kind call, and calls that begin with other signals than the program's.
var (
	libcThreads = []string{"libc.so.6:pthread_*", "libc.so.6:__pthread*", "libc.so.6:*clone*", "libc.so.6:malloc", "libc.so.6:free",
		"libc.so.6:__libc_*", "libc.so.6:start_thread", "libc.so.6:*memset*", "libc.so.6:*sig*"}
	libcProcesses = []string{"libc.so.6:*spawn*", "libc.so.6:*fork*", "libc.so.6:*exec*", "libc.so.6:*wait*", "libc.so.6:*exit*",
		"libc.so.6:*sig*", "libc.so.6:*clone*", "libc.so.6:close", "libc.so.6:dup2"}
	libcSignals = []string{"libc.so.6:*sig*", "libc.so.6:raise", "libc.so.6:kill", "libc.so.6:str*", "libc.so.6:*printf*", "libc.so.6:malloc", "app_*"}
)

// killKinds are the kinds of targets that need nothing but what make setup-test installs.
func killKinds() []killKind {
	lives := func(name string, some []string, args ...string) killKind {
		return killKind{name: name, some: append([]string{"app_work", "app_outer"}, some...), start: func(t *testing.T) target {
			return startLives(t, testprog.Build(t, "lives"), 20, "", args...)
		}}
	}
	sanitized := func(what, work string, rounds int) killKind {
		return killKind{name: what + " " + work, some: append([]string{"app_work", "app_outer"}, libcThreads...), start: func(t *testing.T) target {
			return startLives(t, testprog.Build(t, "lives", "-fsanitize="+what), rounds, "ASAN_OPTIONS=detect_leaks=0", work)
		}}
	}
	kinds := []killKind{
		lives("threads", libcThreads, "threads"),
		lives("spawn", libcProcesses, "spawn"),
		lives("fork", libcProcesses, "fork"),
		lives("traps", libcSignals, "traps"),
		lives("traps nodefer", libcSignals, "traps", "nodefer"),
		lives("traps onstack", libcSignals, "traps", "onstack"),
		lives("traps ignored", libcSignals, "ignored"),
		lives("traps set", libcSignals, "sets"),
		lives("masked", append(libcSignals, libcThreads...), "masked"),
		lives("signals", libcSignals, "signals"),
		sanitized("address", "threads", 20),
		sanitized("thread", "threads", 3),
		{name: "filter", start: startFiltered, all: []string{"libc.so.6:*", "foo"},
			some: []string{"foo", "libc.so.6:*printf*", "libc.so.6:str*", "libc.so.6:*write*", "libc.so.6:read"}},
		{name: "coroutines", start: startCoroutines, all: []string{"libc.so.6:*", "libstdc++.so.6:*"},
			some: []string{"cr_*", "ct_step", "libstdc++.so.6:__cxa_*", "libgcc_s.so.1:_Unwind_*", "libc.so.6:malloc", "libc.so.6:pthread_*"}},
		{name: "go", start: startGoServer, all: []string{"main.*", "net/http.*", "encoding/json.*"},
			some: []string{"main.handler", "main.primes", "main.deep", "net/http.(*conn).serve", "runtime.mallocgcSmallNoscan", "runtime.gcStart"}},
		{name: "redis", start: startRedisTarget, some: []string{"setCommand", "getCommand", "processCommand", "lookupKeyRead", "libc.so.6:mem*",
			"libc.so.6:epoll_wait", "libc.so.6:malloc", "libc.so.6:*fork*"}},
		{name: "nginx", start: startNginxTarget, some: []string{"ngx_http_*", "ngx_event_accept", "ngx_palloc", "libc.so.6:mem*", "libc.so.6:writev"}},
		script("python", "python3", "work.py", []string{"PyObject_Call", "_PyEval_EvalFrameDefault", "libc.so.6:malloc", "libc.so.6:*fork*", "libc.so.6:pthread_*"}),
	}
	for i := range kinds {
		kinds[i].short = slices.Contains(shortKinds, kinds[i].name)
		kinds[i].told = slices.Contains(toldKinds, kinds[i].name)
	}
	return kinds
}

// shortKinds are those of make test.
var shortKinds = []string{"threads", "masked", "signals", "address threads", "thread threads", "coroutines", "go", "nginx"}

// toldKinds may die: see SECURITY.md.
var toldKinds = []string{"traps set", "filter"}

// startLives starts a case of the fixture lives, which plays so many rounds at a time.
func startLives(t *testing.T, bin string, rounds int, env string, args ...string) target {
	dir := t.ArtifactDir() // for its core
	script := `cd "$1" && shift && exec "$@"`
	prog := testprog.StartWith(t, testprog.Options{Env: []string{env}}, "/bin/sh", append([]string{"-c", script, "sh", dir, bin}, args...)...)
	run := fmt.Sprintf("run %s %d", args[0], rounds)
	want := prog.Do(run, "ran")
	return target{
		pid: prog.PID(),
		work: func(t testing.TB) {
			t.Helper()
			sameText(t, "work", want, prog.Do(run, "ran"))
		},
		quit: func(t testing.TB) {
			t.Helper()
			if verdict := prog.Quit(); verdict != "right" {
				t.Errorf("at its end the target says %q", verdict)
			}
		},
	}
}

// startFiltered starts a program whose seccomp filter ends it for all calls but read(2), write(2), exit(2) and exit_group(2).
func startFiltered(t *testing.T) target {
	prog := testprog.Start(t, testprog.Build(t, "rev_jail"), "few")
	const run = "foo 10000"
	want := prog.Do(run, "did")
	return target{
		pid:  prog.PID(),
		work: func(t testing.TB) { t.Helper(); sameText(t, "work", want, prog.Do(run, "did")) },
		quit: func(t testing.TB) {
			t.Helper()
			if verdict := prog.Quit(); verdict != "right" {
				t.Errorf("at its end the target says %q", verdict)
			}
		},
	}
}

func startCoroutines(t *testing.T) target {
	prog := testprog.Start(t, testprog.Build(t, "coro20", "-std=c++20"))
	return target{
		pid: prog.PID(),
		work: func(t testing.TB) {
			t.Helper()
			for _, c := range []struct{ run, want string }{{"run generator 20", "ran generator 20 sum 490"}, {"run threads 10", "ran threads 10 sum 185"}} {
				sameText(t, "work", c.want, prog.Do(c.run, "ran"))
			}
		},
		quit: func(t testing.TB) {
			t.Helper()
			if verdict := prog.Quit(); verdict != "right" {
				t.Errorf("at its end the target says %q", verdict)
			}
		},
	}
}

func startGoServer(t *testing.T) target {
	bin := filepath.Join(t.TempDir(), "gohttp")
	output(t, "", requires(t, "go")[0], "build", "-o", bin, "./testdata/gohttp")
	prog := testprog.Start(t, bin)
	url := "http://" + strings.Fields(prog.Expect("listens"))[1]
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	want := goWork(t, prog, client, url)
	return target{
		pid:  prog.PID(),
		work: func(t testing.TB) { t.Helper(); sameText(t, "work", want, goWork(t, prog, client, url)) },
		quit: func(testing.TB) { prog.Quit() },
	}
}

func startRedisTarget(t *testing.T) target {
	r := startRedis(t)
	want := r.work(t)
	return target{
		pid: r.PID(),
		work: func(t testing.TB) {
			t.Helper()
			sameText(t, "work", want, r.work(t))
			r.save(t)
		},
		quit: func(t testing.TB) {
			t.Helper()
			_, _ = r.try("SHUTDOWN", "NOSAVE")
			if e := r.Wait(); e != (testprog.Exit{}) {
				t.Errorf("redis-server has ended with %+v", e)
			}
		},
	}
}

func startNginxTarget(t *testing.T) target {
	n := startNginx(t)
	want, worker := n.work(t), n.worker(t)
	return target{
		pid: worker,
		work: func(t testing.TB) {
			t.Helper()
			sameText(t, "work", want, n.work(t))
			if now := n.worker(t); now != worker {
				t.Fatalf("the worker was %d, now %d answers", worker, now)
			}
		},
		quit: func(testing.TB) {},
	}
}

// script is a kind whose targets are a script of testdata/kills.
func script(name, interpreter, file string, some []string, args ...string) killKind {
	return killKind{name: name, some: some, start: func(t *testing.T) target {
		path, err := filepath.Abs(filepath.Join("testdata/kills", file))
		if err != nil {
			t.Fatal(err)
		}
		return rounds(start(t, t.ArtifactDir(), slices.Concat(requires(t, interpreter), args, []string{path})...), 5)
	}}
}

// rounds is a target that answers to a number of rounds, on a line, with "ran NUMBER SUM".
func rounds(prog *testprog.Prog, n int) target {
	want := prog.Do(strconv.Itoa(n), "ran")
	return target{
		pid:  prog.PID(),
		work: func(t testing.TB) { t.Helper(); sameText(t, "work", want, prog.Do(strconv.Itoa(n), "ran")) },
		quit: func(testing.TB) { prog.Quit() },
	}
}
