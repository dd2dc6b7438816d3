package debugfs_test

import (
	"context"
	"errors"
	"testing"

	"github.com/gokprobe/gokprobe/debugfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// Whatever would change closed files, or those of a closed session, says so; all can still be read.
func TestAClosedTreeSaysSo(t *testing.T) {
	for name, closes := range map[string]func(*kprobes.Session, *debugfs.Tree) error{
		"tree":    func(_ *kprobes.Session, tr *debugfs.Tree) error { return tr.Close() },
		"session": func(s *kprobes.Session, _ *debugfs.Tree) error { return s.Close() },
	} {
		s, err := kprobes.Launch(context.Background(), kprobes.Command{Path: testprog.MustBuild("shop"), Args: []string{"shop"}}, kprobes.Options{})
		if err != nil {
			t.Fatal(err)
		}
		tr := debugfs.New(s, debugfs.Options{})
		if err := closes(s, tr); err != nil {
			t.Fatal(err)
		}
		for file, text := range map[string]string{
			"tracing/kprobe_events": "p deliver", "tracing/tracing_on": "0", "tracing/trace": "x", "tracing/set_event_pid": "1",
			"kprobes/enabled": "0", failing + "inject": "deliver", failing + "times": "1",
		} {
			if _, err := tr.Write(file, []byte(text)); !errors.Is(err, kprobes.ErrClosed) {
				t.Errorf("%s closed: write to %s: %v", name, file, err)
			}
			f, err := tr.Open(file)
			if err != nil {
				t.Errorf("%s closed: %v", name, err)
				continue
			}
			f.Close()
		}
		if err := tr.Truncate("tracing/kprobe_events"); !errors.Is(err, kprobes.ErrClosed) {
			t.Errorf("%s closed: truncate: %v", name, err)
		}
		for _, boot := range []string{"p,deliver", ""} {
			if err := tr.Boot(boot); !errors.Is(err, kprobes.ErrClosed) {
				t.Errorf("%s closed: boot %q: %v", name, boot, err)
			}
		}
		if err := errors.Join(tr.Close(), s.Close()); err != nil {
			t.Errorf("%s closed: %v", name, err)
		}
	}
}
