package realprog

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/gokprobe/gokprobe/inject"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// askAll requests the file n times from several clients and counts the answers.
func askAll(t testing.TB, url string, n int) string {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	answers := make([]string, n)
	var wg sync.WaitGroup
	for c := range goClients {
		wg.Go(func() {
			for i := c; i < n; i += goClients {
				answers[i] = ask(client, url)
			}
		})
	}
	wg.Wait()
	count := map[string]int{}
	for _, a := range answers {
		count[a]++
	}
	return fmt.Sprint(count)
}

func ask(client *http.Client, url string) string {
	r, err := client.Get(url)
	if err != nil {
		return err.Error()
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return err.Error()
	}
	return r.Status + ": " + strings.TrimSpace(string(b))
}

// TestGoServerCannotOpenFiles: every fourth os.OpenFile returns an error. The server, which asks errors.Is what
// it is, reports it to who has asked, and to nobody else; afterwards it serves all again.
func TestGoServerCannotOpenFiles(t *testing.T) {
	tools := requires(t, "go")
	dir := t.TempDir()
	bin := filepath.Join(dir, "gofiles")
	output(t, "", tools[0], "build", "-o", bin, "./testdata/gofiles")
	file := filepath.Join(dir, "greeting.txt")
	write(t, file, "hello")
	prog := testprog.Start(t, bin, dir)
	url := "http://" + strings.Fields(prog.Expect("listens"))[1] + "/greeting.txt"
	const good = "200 OK: hello"
	all := func(answer string, n int) string { return fmt.Sprint(map[string]int{answer: n}) }
	sameText(t, "before", all(good, 100), askAll(t, url, 100))
	for _, c := range []struct{ err, answer string }{
		{"ENOENT", "404 Not Found: no such file or directory"},
		{"os.ErrNotExist", "404 Not Found: file does not exist"},
		{`&fs.PathError{Op: "open", Path: name, Err: EACCES}`, "403 Forbidden: open " + file + ": permission denied"},
		{"EMFILE", "500 Internal Server Error: too many open files"},
		{"io.ErrUnexpectedEOF", "500 Internal Server Error: unexpected EOF"},
		{`"the disk is on fire"`, "500 Internal Server Error: the disk is on fire"},
	} {
		t.Run(c.err, func(t *testing.T) {
			s := attach(t, prog.PID(), kprobes.Options{})
			stop := failing(t, s, inject.Rule{Spec: "os.OpenFile", Attr: every(4), Do: []inject.Action{inject.Results{Error: c.err}}})
			want := fmt.Sprint(map[string]int{good: 300, c.answer: 100})
			sameText(t, "with failing files", want, askAll(t, url, 400))
			if st := stop(); st.Injected != 100 {
				t.Errorf("%d of %d calls failed", st.Injected, st.Calls)
			}
			closeSession(t, s)
			prog.CheckClean()
			sameText(t, "afterwards", all(good, 100), askAll(t, url, 100))
		})
	}
	prog.Quit()
}
