package debugfs_test

import (
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/gokprobe/gokprobe/kprobes"
)

func TestFS(t *testing.T) {
	tr := open(t, "prey", kprobes.Options{})
	tr.must(tr.add(events, "p:mine/greet length text=+0(%di):string\nr:ret target $retval"))
	if err := fstest.TestFS(tr.Snapshot(),
		"kprobes/list", "kprobes/enabled", "kprobes/blacklist", "sys/debug/kprobes-optimization",
		"tracing/trace", "tracing/trace_pipe", "tracing/events/enable", "tracing/events/mine/filter",
		"tracing/events/mine/greet/format", "tracing/events/kprobes/ret/hist"); err != nil {
		t.Error(err)
	}
}

func TestModes(t *testing.T) {
	tr := open(t, "prey", kprobes.Options{})
	tr.must(tr.add(events, "p:greet length"))
	for name, want := range map[string]fs.FileMode{
		"kprobes/list": 0o400, "kprobes/enabled": 0o600, "kprobes/blacklist": 0o400, "sys/debug/kprobes-optimization": 0o644,
		"tracing/kprobe_events": 0o640, "tracing/trace": 0o640, "tracing/trace_pipe": 0o440, "tracing/kprobe_profile": 0o440,
		"tracing": fs.ModeDir | 0o700, "tracing/events": fs.ModeDir | 0o755, "tracing/events/kprobes/greet": fs.ModeDir | 0o755,
		"tracing/events/kprobes/greet/id": 0o440, "tracing/events/kprobes/greet/enable": 0o640,
	} {
		if info, err := fs.Stat(tr, name); err != nil || info.Mode() != want {
			t.Errorf("%s has mode %v (%v), want %v", name, info, err, want)
		}
	}
}
