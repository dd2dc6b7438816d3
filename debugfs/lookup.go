package debugfs

import (
	"context"
	"errors"
	"syscall"

	"github.com/gokprobe/gokprobe/symbols"
)

// resolve looks a name up, once more among what the process has loaded meanwhile: while the session has no
// probes nobody tells it of that.
func (t *Tree) resolve(name string) ([]symbols.Location, error) {
	table := t.session.Symbols()
	found, err := table.Resolve(context.Background(), name)
	if !errors.Is(err, syscall.ENOENT) {
		return found, err
	}
	if err := table.Refresh(); err != nil {
		return nil, err
	}
	return table.Resolve(context.Background(), name)
}
