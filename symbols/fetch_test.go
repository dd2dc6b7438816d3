package symbols

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDebugInformationIsFetchedWhereItIsAskedFor, and from the cache alone otherwise; that of another build is not used.
func TestDebugInformationIsFetchedWhereItIsAskedFor(t *testing.T) {
	for what, same := range map[string]bool{"the program's": true, "another's": false} {
		prog := build(t, "names.c", "-g", "-Wl,--build-id")
		served := prog
		if !same {
			served = build(t, "lines.c", "-g", "-Wl,--build-id")
		}
		content, err := os.ReadFile(served)
		must(t, err)
		run(t, "strip", prog)
		asked := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			asked++
			_, _ = w.Write(content)
		}))
		t.Cleanup(server.Close)
		cache := t.TempDir()
		t.Setenv("DEBUGINFOD_CACHE_PATH", cache)
		t.Setenv("DEBUGINFOD_URLS", server.URL)
		tg := start(t, prog)
		if _, err := tg.open(t).Resolve(t.Context(), "hidden"); err == nil || asked > 0 {
			t.Errorf("%s: %v, asked %d times before anybody wanted that", what, err, asked)
		}
		errs := tg.open(t).FetchDebugInfo(t.Context(), []string{"hidden"}, nil)
		if asked != 1 || len(errs) == 0 != same || !same && !strings.Contains(errs[0].Error(), "build ID") {
			t.Errorf("%s: asked %d times: %v", what, asked, errs)
		}
		_, err = tg.open(t).Resolve(t.Context(), "hidden")
		kept, _ := filepath.Glob(filepath.Join(cache, "*", "*"))
		if (err == nil) != same || (len(kept) == 1) != same {
			t.Errorf("%s: %v, kept %v", what, err, kept)
		}
		t.Setenv("DEBUGINFOD_URLS", "")
		if _, err := tg.open(t).Resolve(t.Context(), "hidden"); err == nil {
			t.Errorf("%s: the cache is looked into, which nobody wants", what)
		}
	}
}
