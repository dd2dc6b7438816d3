package realprog

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

const (
	goRequests = 600
	goAborted  = 6 // of them; every 97th
	goClients  = 16
)

// goWork sends goRequests requests from goClients clients at once, and describes the
// answers in the order of the requests. When it is done, the server has no connection: its descriptors are those that it had before.
func goWork(t testing.TB, prog *testprog.Prog, client *http.Client, url string) string {
	t.Helper()
	defer client.CloseIdleConnections()
	answers := make([]string, goRequests)
	next := make(chan int)
	var wg sync.WaitGroup
	for range goClients {
		wg.Go(func() {
			for n := range next {
				answers[n] = goAnswer(client, url, n)
			}
		})
	}
	for n := range goRequests {
		next <- n
	}
	close(next)
	wg.Wait()
	prog.Do("idle?", "idle")
	return strings.Join(answers, "\n")
}

// goAnswer sends no request twice: a body that can't be rewound is not sent again
// when the server closes the connection.
func goAnswer(client *http.Client, url string, n int) string {
	body := io.MultiReader(bytes.NewReader(bytes.Repeat([]byte{byte(n)}, 100*n)))
	r, err := client.Post(fmt.Sprintf("%s/work?n=%d", url, n), "text/plain", body)
	if err != nil {
		return fmt.Sprint(n, " no answer")
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return fmt.Sprint(n, " ", err)
	}
	return fmt.Sprintf("%d %s %x", n, r.Status, sha256.Sum256(b))
}

// TestGoServer: goroutines that move between threads, stacks that are copied, the
// garbage collector's signals, panics.
func TestGoServer(t *testing.T) {
	for _, flags := range []string{"", "-s -w"} {
		t.Run("ldflags="+flags, func(t *testing.T) { testGoServer(t, flags) })
	}
}

// goCalls counts calls of Go functions that do not call themselves. A function that
// finds too little stack has it copied and starts again: two hits, one call.
type goCalls struct {
	last  map[uint64]*kprobes.Kprobe // by goroutine
	calls map[string]uint64
}

func (c *goCalls) pre(kp *kprobes.Kprobe, regs *kprobes.Regs) int {
	g, _ := regs.Get("r14")
	if c.last[g] != kp {
		c.calls[kp.SymbolName]++
	}
	c.last[g] = kp
	return 0
}

func testGoServer(t *testing.T, ldflags string) {
	tools := requires(t, "go")
	bin := filepath.Join(t.TempDir(), "gohttp")
	output(t, "", tools[0], "build", "-ldflags", ldflags, "-o", bin, "./testdata/gohttp")
	prog := testprog.Start(t, bin)
	url := "http://" + strings.Fields(prog.Expect("listens"))[1]
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	var c goCalls
	campaign{
		pid: prog.PID(),
		specs: []string{"main.handler", "main.primes", "main.deep", "net/http.(*conn).serve", "net/http.(*ServeMux).ServeHTTP",
			"encoding/json.(*Encoder).Encode", "runtime.gcStart", "runtime.mallocgcSmallNoscan"},
		pre: func(kp *kprobes.Kprobe, regs *kprobes.Regs) int { return c.pre(kp, regs) },
		work: func(t testing.TB) string {
			t.Helper()
			c = goCalls{map[uint64]*kprobes.Kprobe{}, map[string]uint64{}}
			return goWork(t, prog, client, url)
		},
		counts: func(t testing.TB, h hits) {
			t.Logf("calls: %v", c.calls)
			for _, each := range []string{"main.handler", "main.primes", "net/http.(*conn).serve", "net/http.(*ServeMux).ServeHTTP"} {
				wantHits(t, c.calls, each, goRequests)
			}
			wantHits(t, c.calls, "encoding/json.(*Encoder).Encode", goRequests-goAborted)
		},
	}.run(t)
	prog.Quit()
}
