package realprog

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// redis is a running server with its tools.
type redis struct {
	*testprog.Prog
	dir    string
	socket string
	tools  []string
}

func startRedis(t *testing.T) *redis {
	tools := requires(t, "redis-server", "redis-cli", "redis-benchmark", "redis-check-rdb")
	dir, err := os.MkdirTemp("", "redis") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	r := &redis{dir: dir, socket: filepath.Join(dir, "s"), tools: tools}
	write(t, filepath.Join(dir, "conf"), strings.Join([]string{
		"port 0", "unixsocket " + r.socket, "daemonize no", "dir " + dir, "logfile " + dir + "/log",
		`save ""`, "appendonly no", "enable-debug-command yes", "io-threads 2", ""}, "\n"))
	r.Prog = start(t, dir, tools[0], filepath.Join(dir, "conf"))
	testprog.Await(t, "an answer of redis-server", func() bool {
		out, err := r.try("PING")
		return err == nil && strings.TrimSpace(out) == "PONG"
	})
	return r
}

func (r *redis) try(args ...string) (string, error) {
	return run("", append([]string{r.tools[1], "-s", r.socket}, args...)...)
}

func (r *redis) cli(t testing.TB, script string) string {
	t.Helper()
	return output(t, script, r.tools[1], "-s", r.socket)
}

// redisScript has commands of every type, whose replies depend on nothing but them.
const redisScript = `SET greeting hello
APPEND greeting " world"
GET greeting
GET nothing
STRLEN greeting
INCR counter
INCRBY counter 41
INCRBYFLOAT price 10.5
LPUSH list 3 1 2 10 20 -5 7.5
SORT list
SORT list DESC LIMIT 1 3
SORT list ALPHA STORE sorted
LRANGE sorted 0 -1
INCR greeting
HSET hash a 1 b 2 c 3
HGETALL hash
ZADD z 1 one 2.5 two 3 three
ZRANGEBYSCORE z 2 +inf WITHSCORES
SETRANGE bits 3 xyz
BITCOUNT bits
EVAL "local s = 0; for i = 1, 200 do redis.call('SET', 'k' .. i, i); s = s + redis.call('GET', 'k' .. i) end; return s" 0
EVAL "return redis.error_reply('no')" 0
MULTI
INCR counter
GET counter
EXEC
PFADD hll a b c d e f
PFCOUNT hll
OBJECT ENCODING list
EXPIRE greeting 1000
TYPE z
DBSIZE
DEBUG DIGEST
`

var (
	redisCalls  = regexp.MustCompile(`cmdstat_([a-z]+):calls=(\d+)`)
	redisFailed = regexp.MustCompile(`rejected_calls=\d+,failed_calls=\d+`)
)

// work runs the script and a load of several clients. The result holds the replies,
// the digest of all data, and how often the server says each command was called.
func (r *redis) work(t testing.TB) string {
	t.Helper()
	r.cli(t, "FLUSHALL\nSCRIPT FLUSH\nCONFIG RESETSTAT\n")
	replies := r.cli(t, redisScript)
	output(t, "", r.tools[2], "-s", r.socket, "-q", "-n", "400", "-c", "20", "-t", "set,get,incr,lpush,rpop,sadd,hset,zadd,mset")
	output(t, "", r.tools[2], "-s", r.socket, "-q", "-n", "800", "-c", "20", "-P", "16", "-t", "set,get")
	digest := r.cli(t, "DEBUG DIGEST\n")
	return replies + digest + r.calls(t)
}

// calls is the server's own count of commands; some of the tools' own are left out.
func (r *redis) calls(t testing.TB) string {
	t.Helper()
	var lines []string
	stats := r.cli(t, "INFO commandstats\n")
	for _, line := range strings.Split(stats, "\n") {
		if m := redisCalls.FindStringSubmatch(line); m != nil && !strings.Contains("info config ping command", m[1]) {
			lines = append(lines, m[1]+" "+m[2]+" "+redisFailed.FindString(line))
		}
	}
	return strings.Join(lines, "\n")
}

// TestRedis: a server under load, probed in its own functions and in the C library's.
func TestRedis(t *testing.T) {
	r := startRedis(t)
	campaign{
		pid: r.PID(),
		specs: []string{"setCommand", "getCommand", "incrCommand", "lpushCommand", "sortCommand", "processCommand",
			"evalCommand", "lookupKeyRead", "readQueryFromClient", "libc.so.6:memcpy", "libc.so.6:epoll_wait"},
		work: r.work,
		counts: func(t testing.TB, h hits) {
			for name, calls := range r.counted(t) {
				if _, probed := h[name+"Command"]; probed {
					wantHits(t, h, name+"Command", calls)
				}
			}
		},
		same: []string{"setCommand", "getCommand", "incrCommand", "lpushCommand", "sortCommand", "evalCommand"},
	}.run(t)
}

// counted is the server's count of calls by command.
func (r *redis) counted(t testing.TB) map[string]uint64 {
	t.Helper()
	n := map[string]uint64{}
	for _, line := range strings.Split(r.calls(t), "\n") {
		var name string
		var calls uint64
		if _, err := fmt.Sscan(line, &name, &calls); err == nil {
			n[name] = calls
		}
	}
	return n
}

// TestRedisSavesInBackground: the server forks while it is probed, and the child
// writes all data to a file.
func TestRedisSavesInBackground(t *testing.T) {
	for _, follow := range []bool{false, true} {
		t.Run(fmt.Sprintf("follow=%v", follow), func(t *testing.T) {
			r := startRedis(t)
			r.cli(t, "DEBUG POPULATE 5000\n")
			before := testprog.TakeSnapshot(t, r.PID())
			s := attach(t, r.PID(), kprobes.Options{Follow: follow})
			saves, writes := boosted.probe("rdbSaveBackground"), boosted.probe("rdbSaveObject")
			if err := s.RegisterKprobes(t.Context(), []*kprobes.Kprobe{saves, writes}); err != nil {
				t.Fatal(err)
			}
			for i := range 3 {
				r.save(t)
				out := output(t, "", r.tools[3], filepath.Join(r.dir, "dump.rdb"))
				if !strings.Contains(out, "RDB looks OK") || !strings.Contains(out, "5000 keys read") {
					t.Errorf("save %d: redis-check-rdb says:\n%s", i, out)
				}
			}
			if n := saves.Hits(); n != 3 {
				t.Errorf("rdbSaveBackground: %d hits, want 3", n)
			}
			want := uint64(0) // the child does it
			if follow {
				want = 3 * 5000
			}
			if n := writes.Hits(); n != want {
				t.Errorf("rdbSaveObject: %d hits, want %d", n, want)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			before.Compare(t, r.PID())
		})
	}
}

// save has the server save in the background, and waits until it has.
func (r *redis) save(t testing.TB) {
	t.Helper()
	r.cli(t, "BGSAVE\n")
	info := ""
	testprog.Await(t, "an end of the background save", func() bool {
		info = r.cli(t, "INFO persistence\n")
		return strings.Contains(info, "rdb_bgsave_in_progress:0")
	})
	if !strings.Contains(info, "rdb_last_bgsave_status:ok") {
		t.Errorf("the save failed:\n%s", info)
	}
}
