package symbols

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/gokprobe/gokprobe/internal/budget"
	"github.com/gokprobe/gokprobe/internal/debuginfod"
	"github.com/gokprobe/gokprobe/internal/targetfs"
)

// FetchDebugInfo fetches the debug information of the modules that the specifications name, and of the executable, from the servers in DEBUGINFOD_URLS; where that
// is not set, nothing is fetched. Only modules that have none here are asked for. It is to be called while no thread is held: what has been fetched is found in the
// client's cache later, and no other question to a Table asks a server. told hears of each how many bytes have come.
//
// The errors tell what was not fetched, and why. That no server has it is none.
func (t *Table) FetchDebugInfo(ctx context.Context, specs []string, told func(module string, n, total int64)) (errs []error) {
	if t.fetched == nil {
		return nil
	}
	for _, m := range t.meantBy(ctx, specs) {
		if m.img == nil || m.img.hasDebugInfo(t) || m.img.buildID == "" {
			continue
		}
		id := m.img.buildID
		err := t.fetched.Fetch(ctx, id, func(path string) error { return verifyBuildID(path, id) }, func(n, total int64) {
			if told != nil {
				told(m.Name, n, total)
			}
		})
		if err != nil && !errors.Is(err, debuginfod.ErrNotFound) {
			errs = append(errs, fmt.Errorf("the debug information of %s was not fetched: %w", m.Path, err))
		}
	}
	return errs
}

// Fetches tells whether the user wants that servers are asked for debug information.
func Fetches() bool { return fetching() != nil }

// meantBy is the executable, and the modules that specs name or whose functions they name.
func (t *Table) meantBy(ctx context.Context, specs []string) (mods []*Module) {
	s := t.snap.Load()
	add := func(m *Module) {
		if m != nil && !slices.Contains(mods, m) {
			mods = append(mods, m)
		}
	}
	for _, m := range s.named {
		if m.Kind == KindExecutable {
			add(m)
		}
	}
	for _, spec := range specs {
		queries, err := parseSpec(spec)
		if err != nil {
			continue
		}
		for _, q := range queries {
			if q.module == "" {
				continue
			}
			if named, err := s.modulesFor(q.module); err == nil {
				for _, m := range named {
					add(m)
				}
			}
		}
		if locs, err := t.Find(ctx, spec); err == nil && len(locs) == 1 {
			add(locs[0].Symbol.Module)
		}
	}
	return mods
}

// hasDebugInfo reports whether img, or its debug file, has debug information.
func (img *image) hasDebugInfo(t *Table) bool {
	if img.f.hasDWARF() {
		return true
	}
	f := img.debug(t)
	return f != nil && f.hasDWARF()
}

// verifyBuildID reads the build ID of the file at path, which must be id.
func verifyBuildID(path, id string) error {
	f, err := targetfs.Named(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	question := budget.Process().Open()
	defer question.Close()
	o, err := newObject(f, uint64(f.Size), question)
	if err != nil {
		return fmt.Errorf("the server's answer is no debug information: %w", err)
	}
	if has := buildIDNote(o.section(".note.gnu.build-id", question), 4); has != id {
		return fmt.Errorf("the server's answer has the build ID %q, not %s", has, id)
	}
	return nil
}

// fetching is the client that this process's environment asks for: one, so that a server that has failed is not asked for each process and file anew.
func fetching() *debuginfod.Client {
	client.mu.Lock()
	defer client.mu.Unlock()
	asked := map[string]string{}
	c := debuginfod.FromEnv(func(name string) string {
		asked[name] = os.Getenv(name)
		return asked[name]
	})
	if !maps.Equal(asked, client.env) {
		client.env, client.c = asked, c
	}
	return client.c
}

var client struct {
	mu  sync.Mutex
	env map[string]string
	c   *debuginfod.Client
}
