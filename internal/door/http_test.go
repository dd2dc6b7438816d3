package door

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

func request(t *testing.T, s *Server, method, target string, body io.Reader) *http.Response {
	t.Helper()
	tr := &http.Transport{Dial: func(_, _ string) (net.Conn, error) { return net.Dial("unix", s.Name()) }} //nolint:staticcheck
	t.Cleanup(tr.CloseIdleConnections)
	req, err := http.NewRequest(method, "http://session"+target, body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func TestHTTPSaysWhatItMeans(t *testing.T) {
	tree, s, _ := opened(t)
	tree.set("p:a b\n", "0\n")
	for _, row := range []struct {
		method, target, body string
		status               int
		errno, answer        string
	}{
		{"GET", "/kprobe_events", "", 200, "", "p:a b\n"},
		{"PUT", "/kprobe_events", "p:c d\n", 204, "", ""},
		{"POST", "/kprobe_events", "p:e f\n", 204, "", ""},
		{"GET", "//kprobe_events", "", 200, "", "p:c d\np:e f\n"},
		{"PUT", "/kprobe_events", "", 204, "", ""},
		{"GET", "/kprobe_events", "", 200, "", ""},
		{"GET", "/events", "", 409, "EISDIR", "is a directory\n"},
		{"GET", "/events/", "", 200, "", `[{"name":"one","mode":"dr-xr-xr-x","size":0}]` + "\n"},
		{"GET", "/empty/", "", 200, "", "[]\n"},
		{"GET", "/list/", "", 404, "ENOTDIR", "not a directory\n"},
		{"GET", "/nothing", "", 404, "ENOENT", "file does not exist\n"},
		{"GET", "/../../etc/passwd", "", 404, "ENOENT", "no such file or directory\n"},
		{"GET", "/a%20b/%C3%BC%23%2541%3F", "", 200, "", "odd\n"},
		{"POST", "/list", "x", 403, "EPERM", "operation not permitted\n"},
		{"POST", "/events/one/enable", "2", 400, "EINVAL", "invalid argument\n"},
		{"DELETE", "/list", "", 403, "EPERM", "operation not permitted\n"},
		{"PATCH", "/list", "", 405, "", ""},
	} {
		resp := request(t, s, row.method, row.target, strings.NewReader(row.body))
		answer, err := io.ReadAll(resp.Body)
		if resp.StatusCode != row.status || resp.Header.Get("X-Errno") != row.errno || string(answer) != row.answer || err != nil {
			t.Errorf("%s %s: %d %q %q %v", row.method, row.target, resp.StatusCode, resp.Header.Get("X-Errno"), answer, err)
		}
	}
	if info := request(t, s, "HEAD", "/list", nil).Header.Get("X-Info"); info != `{"name":"list","mode":"-r--------","size":0}` {
		t.Error(info)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return copy(p, bytes.Repeat([]byte("x"), len(p))), nil }

func TestWhatIsTooLongChangesNothing(t *testing.T) {
	tree, s, _ := opened(t)
	tree.set("p:a b\n", "0\n")
	for _, size := range []int64{64 << 20, MaxWrite + 1} {
		for _, method := range []string{"PUT", "POST"} {
			resp := request(t, s, method, "/kprobe_events", io.LimitReader(endless{}, size))
			if resp.StatusCode != 413 || resp.Header.Get("X-Errno") != "E2BIG" {
				t.Errorf("%s of %d bytes: %v", method, size, resp.Status)
			}
		}
	}
	if events, _, writes := tree.get(); events != "p:a b\n" || writes != 0 {
		t.Errorf("%q after %d writes", events, writes)
	}
}

func TestAClientThatIsKilledInTheMiddleOfAWriteChangesNothing(t *testing.T) {
	tree, s, c := opened(t)
	tree.set("p:a b\n", "0\n")
	conn, err := net.Dial("unix", s.Name())
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(conn, "PUT /kprobe_events HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\np:c d\n")
	_ = conn.Close()
	err = s.Close()
	if events, _, _ := tree.get(); err != nil || events != "p:a b\n" {
		t.Errorf("%q %v", events, err)
	}
	if _, err := c.Open("list"); err == nil {
		t.Error("a file of a session that has ended could be opened")
	}
}

func TestRubbishIsNoRequest(t *testing.T) {
	_, s, _ := opened(t)
	conn, err := net.Dial("unix", s.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = conn.Write(bytes.Repeat([]byte{0, 0xff, '\r', '\n'}, 1<<10))
	b, _ := io.ReadAll(conn)
	if !strings.HasPrefix(string(b), "HTTP/1.1 400") {
		t.Errorf("%.50q", b)
	}
}
