package debugfs

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/gokprobe/gokprobe/inject/fault"
	"github.com/gokprobe/gokprobe/internal/procfs"
)

// The files of threads, which the kernel has in /proc, and only if it was built for that: make-it-fail and fail-nth, in
// fail_function/tasks/TID. They are the session's, of its threads, and of fail_function.

// taskMode is that of the kernel's files (fs/proc/base.c).
const taskMode = 0o644

func (ff *failFunction) tasksFolder() *node {
	return &node{
		mode: modeTop,
		names: func() []string {
			var all []string
			for _, tid := range ff.threads() {
				all = append(all, strconv.Itoa(tid))
			}
			return all
		},
		child: func(name string) *node {
			tid, err := strconv.Atoi(name)
			if err != nil || strconv.Itoa(tid) != name || !slices.Contains(ff.threads(), tid) {
				return nil
			}
			return folder(modeTop, map[string]*node{"make-it-fail": ff.makeItFail(tid), "fail-nth": ff.failNth(tid)})
		},
	}
}

// threads returns the threads that the session holds.
func (ff *failFunction) threads() []int {
	var all []int
	for _, pid := range ff.tree.session.Processes() {
		if tids, err := procfs.UserTasks(pid); err == nil {
			all = append(all, tids...)
		}
	}
	return all
}

// makeItFail is whether the thread's calls may fail where there is a task filter. What the thread makes inherits it.
func (ff *failFunction) makeItFail(tid int) *node {
	return &node{
		mode: taskMode,
		read: func() ([]byte, error) {
			ff.mu.Lock()
			defer ff.mu.Unlock()
			return digit(ff.tasks[tid]), nil
		},
		write: func(p []byte) error {
			v, err := strconv.ParseInt(strings.TrimSpace(string(p)), 0, 32)
			if err != nil || v != 0 && v != 1 {
				return fmt.Errorf("%w: 0 or 1 is wanted", syscall.EINVAL)
			}
			ff.mu.Lock()
			defer ff.mu.Unlock()
			ff.mark(tid, v == 1)
			return nil
		},
	}
}

// failNth is which of the thread's calls from now on fails; 0 when it has.
func (ff *failFunction) failNth(tid int) *node {
	return &node{
		mode: taskMode,
		read: func() (text []byte, err error) {
			ff.decider.Do(func(d *fault.Decider) { text = fmt.Appendf(nil, "%d\n", d.FailNth(tid)) })
			return text, nil
		},
		write: func(p []byte) error {
			n, err := strconv.ParseUint(strings.TrimSpace(string(p)), 0, 32)
			if err != nil {
				return fmt.Errorf("%w: a number is wanted", syscall.EINVAL)
			}
			ff.tree.mu.Lock()
			defer ff.tree.mu.Unlock()
			ff.decider.Do(func(d *fault.Decider) { d.SetFailNth(tid, n) })
			return ff.apply()
		},
	}
}

// marked tells whether a thread's calls may fail where there is a task filter.
func (ff *failFunction) marked(_, tid int) bool {
	ff.mu.Lock()
	defer ff.mu.Unlock()
	return ff.tasks[tid]
}

// mark is make-it-fail of a thread. ff.mu is held.
func (ff *failFunction) mark(tid int, on bool) {
	if !on {
		delete(ff.tasks, tid)
		return
	}
	ff.tasks[tid] = true
	if len(ff.tasks) <= ff.forget {
		return
	}
	// Children that are not followed have gone without a word.
	for tid := range ff.tasks {
		if _, err := procfs.ReadStat(tid, 0); err != nil {
			delete(ff.tasks, tid)
		}
	}
	ff.forget = 2*len(ff.tasks) + 1000
}

// born is a ThreadWatcher's: what a thread makes inherits make-it-fail, and not fail-nth (kernel/fork.c).
func (ff *failFunction) born(creator, tid int) {
	ff.decider.Do(func(d *fault.Decider) { d.Forget(tid) })
	ff.mu.Lock()
	defer ff.mu.Unlock()
	ff.mark(tid, ff.tasks[creator])
}

// gone is a ThreadWatcher's, too.
func (ff *failFunction) gone(tid int) {
	ff.decider.Do(func(d *fault.Decider) { d.Forget(tid) })
	ff.mu.Lock()
	defer ff.mu.Unlock()
	delete(ff.tasks, tid)
}
