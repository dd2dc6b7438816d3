package debuginfod

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const id = "0123456789abcdef"

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// server is one that answers with f, and counts its requests.
func server(t *testing.T, f http.HandlerFunc) (url string, asked *int) {
	asked = new(int)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*asked++
		if r.Method != http.MethodGet || r.URL.Path != "/below/buildid/"+id+"/debuginfo" {
			t.Errorf("%s %s", r.Method, r.URL)
		}
		f(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL + "/below/", asked
}

func client(t *testing.T, vars ...string) *Client {
	t.Helper()
	env := map[string]string{"DEBUGINFOD_CACHE_PATH": t.TempDir()}
	for _, v := range vars {
		name, value, _ := strings.Cut(v, "=")
		env[name] = value
	}
	return FromEnv(func(name string) string { return env[name] })
}

func ok(string) error { return nil }

func gives(content string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, content) }
}

// files lists what is in the cache.
func files(t *testing.T, c *Client) string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(c.dir, "*", "*"))
	must(t, err)
	for i := range all {
		all[i], _ = filepath.Rel(c.dir, all[i])
	}
	return strings.Join(all, " ")
}

func TestWithoutServersThereIsNoClient(t *testing.T) {
	if c := client(t, "DEBUGINFOD_URLS= "); c != nil || c.Path(id) != "" || !errors.Is(c.Fetch(t.Context(), id, ok, nil), ErrNotFound) {
		t.Error("there is one")
	}
}

func TestTheCacheIsThatOfTheCClient(t *testing.T) {
	for want, vars := range map[string]map[string]string{
		"/a/" + id + "/debuginfo":                          {"DEBUGINFOD_CACHE_PATH": "/a", "XDG_CACHE_HOME": "/b", "HOME": "/c"},
		"/b/debuginfod_client/" + id + "/debuginfo":        {"XDG_CACHE_HOME": "/b", "HOME": "/c"},
		"/c/.cache/debuginfod_client/" + id + "/debuginfo": {"HOME": "/c"},
		"": {},
	} {
		vars["DEBUGINFOD_URLS"] = "http://host"
		if got := FromEnv(func(n string) string { return vars[n] }).Path(id); got != want {
			t.Errorf("%v: %q, want %q", vars, got, want)
		}
	}
	for _, bad := range []string{"", "..", "../../etc", "0g", "AB", "abc", strings.Repeat("ab", 65)} {
		if p := client(t, "DEBUGINFOD_URLS=http://host").Path(bad); p != "" {
			t.Errorf("%q is a build ID: %s", bad, p)
		}
	}
}

func TestServersAreAskedInOrderAndOnce(t *testing.T) {
	none, askedNone := server(t, http.NotFound)
	broken, _ := server(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	has, askedHas := server(t, gives("the content"))
	c := client(t, "DEBUGINFOD_URLS="+none+" "+broken+" "+has)
	told := int64(0)
	for range 2 {
		must(t, c.Fetch(t.Context(), id, ok, func(n, _ int64) { told = n }))
	}
	got, err := os.ReadFile(c.Path(id))
	must(t, err)
	if string(got) != "the content" || *askedNone != 1 || *askedHas != 1 || told != int64(len(got)) || files(t, c) != id+"/debuginfo" {
		t.Errorf("%q, asked %d and %d times, told of %d bytes, files %s", got, *askedNone, *askedHas, told, files(t, c))
	}
}

func TestThatNobodyHasAFileIsRememberedForAWhile(t *testing.T) {
	url, asked := server(t, http.NotFound)
	c := client(t, "DEBUGINFOD_URLS="+url)
	for range 2 {
		if err := c.Fetch(t.Context(), id, ok, nil); !errors.Is(err, ErrNotFound) {
			t.Errorf("%v", err)
		}
	}
	if *asked != 1 {
		t.Errorf("asked %d times", *asked)
	}
	old := time.Now().Add(-missFor)
	must(t, os.Chtimes(c.Path(id), old, old))
	_ = c.Fetch(t.Context(), id, ok, nil)
	if *asked != 2 {
		t.Errorf("asked %d times", *asked)
	}
}

// A server may say and do anything: nothing of it stays, and it does not hold us.
func TestAServerThatLiesOrHangsLeavesNothing(t *testing.T) {
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	wait := func(r *http.Request) {
		select {
		case <-hang:
		case <-r.Context().Done():
		}
	}
	for what, f := range map[string]http.HandlerFunc{
		"hangs":            func(_ http.ResponseWriter, r *http.Request) { wait(r) },
		"hangs in between": func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "x"); w.(http.Flusher).Flush(); wait(r) },
		"is too large":     gives(strings.Repeat("x", 1001)),
		"says less": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "900")
			fmt.Fprint(w, "x")
		},
		"never ends": func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 1<<10)); err != nil {
					return
				}
			}
		},
		"leads elsewhere": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
		},
		"is another file": gives("another"),
	} {
		url, _ := server(t, f)
		c := client(t, "DEBUGINFOD_URLS="+url, "DEBUGINFOD_TIMEOUT=1", "DEBUGINFOD_MAXSIZE=1000")
		c.stall = 50 * time.Millisecond
		err := c.Fetch(t.Context(), id, func(string) error { return errors.New("another build ID") }, nil)
		if err == nil || errors.Is(err, ErrNotFound) || files(t, c) != "" {
			t.Errorf("%s: %v, files %q", what, err, files(t, c))
		}
	}
}

func TestOtherSchemesAreNotAsked(t *testing.T) {
	c := client(t, "DEBUGINFOD_URLS=file:///etc ftp://host")
	if err := c.Fetch(t.Context(), id, ok, nil); err == nil || !strings.Contains(err.Error(), "http") {
		t.Errorf("%v", err)
	}
}
