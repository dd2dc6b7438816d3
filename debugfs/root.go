package debugfs

import (
	"io/fs"
	"maps"
	"slices"
	"strings"
)

// Modes as the kernel has them (kernel/kprobes.c, debugfs_kprobe_init; kernel/trace/trace.h,
// TRACE_MODE_WRITE; fs/tracefs/inode.c).
const (
	modeTop     fs.FileMode = fs.ModeDir | 0o755
	modeTracing fs.FileMode = fs.ModeDir | 0o700
	modeRead    fs.FileMode = 0o440
	modeWrite   fs.FileMode = 0o640
)

// folder is a directory with fixed contents.
func folder(mode fs.FileMode, in map[string]*node) *node {
	return &node{
		mode:  mode,
		names: func() []string { return slices.Collect(maps.Keys(in)) },
		child: func(name string) *node { return in[name] },
	}
}

// shows is a file that can only be read.
func shows(mode fs.FileMode, read func() string) *node {
	return &node{mode: mode, read: func() ([]byte, error) { return []byte(read()), nil }}
}

func (t *Tree) root() *node {
	return folder(modeTop, map[string]*node{
		"kprobes": folder(modeTop, map[string]*node{
			"list":      shows(0o400, t.list),
			"enabled":   t.enabledFile(),
			"blacklist": shows(0o400, t.blacklist),
		}),
		"sys": folder(modeTop, map[string]*node{
			"debug": folder(modeTop, map[string]*node{"kprobes-optimization": t.optimizationFile()}),
		}),
		"tracing":         folder(modeTracing, t.tracing()),
		"fail_function":   t.failing.folder(),
		"error_injection": folder(modeTop, map[string]*node{"list": t.injectable()}),
	})
}

func (t *Tree) tracing() map[string]*node {
	return map[string]*node{
		"kprobe_events":    t.definitions(kprobeEvents),
		"uprobe_events":    t.definitions(uprobeEvents),
		"dynamic_events":   t.definitions(allEvents),
		"synthetic_events": t.syntheticFile(),
		"kprobe_profile":   shows(modeRead, t.kprobeProfile),
		"uprobe_profile":   shows(modeRead, t.uprobeProfile),
		"error_log": {
			mode:  modeWrite,
			read:  func() ([]byte, error) { return []byte(t.errors.String()), nil },
			write: func([]byte) error { return nil }, // as the kernel: only truncation clears
			clear: func() error { t.errors.Clear(); return nil },
		},
		"trace": {
			mode:  modeWrite,
			read:  func() ([]byte, error) { t.tellLosses(); return t.trace.text(), nil },
			write: func([]byte) error { return nil }, // as the kernel: only truncation clears
			clear: func() error { t.tellLosses(); t.trace.clear(); return nil },
		},
		"trace_pipe": {mode: modeRead, pipe: func(wait bool) *pipe {
			if !wait {
				t.session.FlushRecords()
			}
			return &pipe{b: t.trace, wait: wait, losses: t.tellLosses}
		}},
		"tracing_on":       t.tracingOnFile(),
		"buffer_size_kb":   t.bufferSizeFile(),
		"snapshot":         t.snapshotFile(),
		"set_event":        t.setEventFile(),
		"set_event_pid":    t.setEventPIDFile(),
		"available_events": shows(modeRead, func() string { return t.eventNames(func(*event) bool { return true }) }),
		"current_tracer":   choice("nop", "nop"),
		"available_tracers": shows(modeRead, func() string {
			return "nop\n"
		}),
		"trace_clock":                choice("[mono]", "mono"),
		"README":                     shows(modeRead, func() string { return strings.TrimPrefix(readme, "\n") }),
		"available_filter_functions": shows(modeRead, t.functionNames),
		"options":                    folder(modeTracing, map[string]*node{"stacktrace": t.stacktraceOption()}),
		"events":                     t.eventsFolder(),
	}
}

// eventsFolder is tracing/events.
func (t *Tree) eventsFolder() *node {
	return &node{
		mode:  modeTop,
		names: func() []string { return append(t.groups(), "enable") },
		child: func(name string) *node {
			if name == "enable" {
				return t.enableFile(t.all, stateOfAll)
			}
			if !slices.Contains(t.groups(), name) {
				return nil
			}
			return t.groupFolder(name)
		},
	}
}

func (t *Tree) groupFolder(group string) *node {
	members := func() []*event { return t.inGroup(group) }
	return &node{
		mode: modeTop,
		names: func() []string {
			all := []string{"enable", "filter"}
			for _, ev := range members() {
				all = append(all, ev.name)
			}
			return all
		},
		child: func(name string) *node {
			for _, ev := range members() {
				if ev.name == name {
					return t.eventFolder(ev)
				}
			}
			switch name {
			case "enable":
				return t.enableFile(members, stateOfAll)
			case "filter":
				return t.groupFilterFile(group, members)
			}
			return nil
		},
	}
}

func (t *Tree) eventFolder(ev *event) *node {
	return folder(modeTop, map[string]*node{
		"enable":  t.enableFile(func() []*event { return []*event{ev} }, stateOfOne),
		"id":      shows(modeRead, ev.idText),
		"format":  shows(modeRead, ev.format),
		"filter":  t.filterFile(ev),
		"trigger": t.triggerFile(ev),
		"hist":    shows(modeRead, ev.histText),
	})
}
