package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/ptrace"
)

// mapWatch finds the processes that map a file's code: a program that they run, or a library.
//
// The kernel tells nobody without privilege of new processes, but inotify(7) tells of every open of the file, which execve(2) and the dynamic
// linker do. So all young processes are looked at right after one, and all others now and then: a process may be forked, or map a file that
// it has opened before.
type mapWatch struct {
	file   string
	id     procfs.FileID
	own    procfs.FileID // of this program
	opened chan struct{} // the file was opened; nil where inotify is not to be had

	mu   sync.Mutex
	seen map[int]*onlooker
}

// onlooker is a process that does not map the file, as far as is known, or that was told of.
type onlooker struct {
	start  uint64    // its start time, as /proc/PID/stat has it: another process may get the number
	young  time.Time // until when it is looked at each time
	looked time.Time
	told   bool
}

const (
	// youth is how long after it was seen first a process is looked at whenever the file is opened.
	youth = 5 * time.Second
	// lookAgain is how long others are not looked at, at most.
	lookAgain = 10 * time.Second
	// lookRound is how often new processes are listed without a reason.
	lookRound = time.Second
)

// afterOpen is when processes are looked at after the file was opened: it is mapped a moment later.
var afterOpen = []time.Duration{0, 5 * time.Millisecond, 50 * time.Millisecond, 500 * time.Millisecond}

// newMapWatch watches a file, or the program that a name without a slash stands for. Ctx ends the watch.
func newMapWatch(ctx context.Context, name string) (*mapWatch, error) {
	file := name
	if !strings.Contains(name, "/") {
		if _, err := os.Stat(name); err != nil {
			if found, err := exec.LookPath(name); err == nil {
				file = found
			}
		}
	}
	id, err := fileID(file)
	if err != nil {
		return nil, usagef("-x %s: %w; give the file of a program or a library", name, fileError(err))
	}
	w := &mapWatch{file: file, id: id, seen: map[int]*onlooker{}}
	w.own, _ = fileID("/proc/self/exe")
	w.opened = opens(ctx, file)
	return w, nil
}

func fileID(file string) (procfs.FileID, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0) // it may be a FIFO
	if err != nil {
		return procfs.FileID{}, err
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return procfs.FileID{}, errors.Join(err, errors.New("it is not a regular file"))
	}
	return procfs.IdentifyFile(f)
}

// opens tells of opens of a file until ctx is done; nil where that can't be had.
func opens(ctx context.Context, file string) chan struct{} {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), "inotify")
	if _, err := unix.InotifyAddWatch(fd, file, unix.IN_OPEN); err != nil {
		_ = f.Close()
		return nil
	}
	context.AfterFunc(ctx, func() { _ = f.Close() })
	opened := make(chan struct{}, 1)
	go func() {
		buf := make([]byte, 16<<10)
		for {
			if _, err := f.Read(buf); err != nil {
				return
			}
			select {
			case opened <- struct{}{}:
			default:
			}
		}
	}()
	return opened
}

// watch tells of each process that maps the file, once, until ctx is done. A target that is taken is its taker's.
func (w *mapWatch) watch(ctx context.Context, found chan<- target) {
	round := time.NewTicker(lookRound)
	defer round.Stop()
	for w.tell(ctx, found) {
		select {
		case <-ctx.Done():
		case <-round.C:
		case <-w.opened:
			w.lookAfterOpen(ctx, found)
		}
	}
}

// tell looks once. It reports false when ctx is done.
func (w *mapWatch) tell(ctx context.Context, found chan<- target) bool {
	for _, t := range w.look() {
		select {
		case found <- t:
		case <-ctx.Done():
			t.id.Close()
		}
	}
	return ctx.Err() == nil
}

func (w *mapWatch) lookAfterOpen(ctx context.Context, found chan<- target) {
	for _, d := range afterOpen {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
		if !w.tell(ctx, found) {
			return
		}
	}
}

// others lists the processes that map the file now, but those that are known.
func (w *mapWatch) others(known []target) (found []target) {
	for _, t := range w.look() {
		if slices.ContainsFunc(known, func(k target) bool { return k.pid == t.pid }) {
			t.id.Close()
		} else {
			found = append(found, t)
		}
	}
	return found
}

// look lists the processes that map the file and were not told of.
func (w *mapWatch) look() (found []target) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	there := make(map[int]bool, len(entries))
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		there[pid] = true
		if w.due(pid, now) && w.mapped(pid) && !ours(pid) {
			w.seen[pid].told = true
			if id, err := ptrace.Identify(pid); err == nil {
				found = append(found, target{pid: pid, id: id, found: true})
			}
		}
	}
	maps.DeleteFunc(w.seen, func(pid int, _ *onlooker) bool { return !there[pid] })
	return found
}

// forget makes the watch tell of a process anew, which executes another program now.
func (w *mapWatch) forget(pid int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.seen, pid)
}

// ours tells of a process that one of our threads traces: it is held, or was forked by one that is and may be followed.
func ours(pid int) bool {
	st, err := procfs.ReadStatus(pid, 0)
	if err != nil || st.TracerPid == 0 {
		return false
	}
	_, err = os.Stat(fmt.Sprintf("/proc/self/task/%d", st.TracerPid))
	return err == nil
}

// due tells whether a process is to be looked at now.
func (w *mapWatch) due(pid int, now time.Time) bool {
	o := w.seen[pid]
	if o != nil && (o.told || now.After(o.young)) && now.Sub(o.looked) < lookAgain {
		return false
	}
	st, err := procfs.ReadStat(pid, 0)
	if err != nil {
		return false
	}
	if o == nil || o.start != st.StartTime {
		o = &onlooker{start: st.StartTime, young: now.Add(youth)}
		w.seen[pid] = o
	}
	o.looked = now
	return !o.told
}

// mapped tells whether a process may run code of the file. Guardians and other tracers, which run this program, are left out.
func (w *mapWatch) mapped(pid int) (found bool) {
	all, err := procfs.Maps(pid)
	if err != nil {
		return false
	}
	for _, m := range all {
		if !m.Exec || m.Anonymous() {
			continue
		}
		switch m.File() {
		case w.own:
			return false
		case w.id:
			found = true
		}
	}
	return found
}
