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

// mapWatch finds the processes that map a file's code: their executable, or a library.
//
// Without privilege the kernel announces no new processes. But inotify(7) announces every open
// of the file, and execve(2) and the dynamic linker open it. So the watch looks at all young
// processes right after an open, and at all others now and then: a process may come
// from a fork, or map a file that it has opened before.
type mapWatch struct {
	file   string
	id     procfs.FileID
	own    procfs.FileID // of gokprobe's executable
	opened chan struct{} // receives when the file was opened; nil without inotify

	mu   sync.Mutex
	seen map[int]*seenProcess // by process ID
}

// seenProcess is a process that the watch has looked at.
type seenProcess struct {
	start    uint64    // its start time, as /proc/PID/stat has it: another process may get the number
	young    time.Time // until then it is looked at after each open of the file
	looked   time.Time // when it was last looked at
	wasFound bool      // it maps the file and was handed on: it is not looked at again
}

const (
	// youth is how long a new process is looked at after each open of the file.
	youth = 5 * time.Second
	// lookAgain is how often older processes are looked at.
	lookAgain = 10 * time.Second
	// lookRound is how often all processes are listed if the file is not opened.
	lookRound = time.Second
)

// afterOpen are the pauses before each look after an open of the file: a process maps the
// file a moment after it has opened it.
var afterOpen = []time.Duration{0, 5 * time.Millisecond, 50 * time.Millisecond, 500 * time.Millisecond}

// newMapWatch watches a file until ctx is done. A name without a slash is looked up in $PATH
// if there is no such file here.
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
		return nil, usagef("-x %s: %w; give the file of an executable or a library", name, fileError(err))
	}
	w := &mapWatch{file: file, id: id, seen: map[int]*seenProcess{}}
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

// opens returns a channel that receives after opens of a file, until ctx is done; nil if
// inotify can't be used.
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

// watch sends each process that maps the file to found, once, until ctx is done. The receiver
// closes the target's id.
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

// tell looks once and sends the processes that it finds. It reports whether ctx still goes on.
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

// others lists the processes that map the file now, without the known ones.
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

// look lists the processes that map the file and that it has not listed before.
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
		if w.isDue(pid, now) && w.mapsFile(pid) && !ours(pid) {
			w.seen[pid].wasFound = true
			if id, err := ptrace.Identify(pid); err == nil {
				found = append(found, target{pid: pid, id: id, found: true})
			}
		}
	}
	maps.DeleteFunc(w.seen, func(pid int, _ *seenProcess) bool { return !there[pid] })
	return found
}

// forget lets the watch find a process again, after it has executed another file.
func (w *mapWatch) forget(pid int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.seen, pid)
}

// skip keeps a process of our own from being found.
func (w *mapWatch) skip(pid int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if st, err := procfs.ReadStat(pid, 0); err == nil {
		w.seen[pid] = &seenProcess{start: st.StartTime, wasFound: true}
	}
}

// ours reports whether one of our threads traces a process. Such a process is held already,
// or is a child of one that is, which may be followed.
func ours(pid int) bool {
	st, err := procfs.ReadStatus(pid, procfs.Living(pid))
	if err != nil || st.TracerPid == 0 {
		return false
	}
	_, err = os.Stat(fmt.Sprintf("/proc/self/task/%d", st.TracerPid))
	return err == nil
}

// isDue reports whether to look at a process now, and notes that it was looked at.
func (w *mapWatch) isDue(pid int, now time.Time) bool {
	o := w.seen[pid]
	if o != nil && (o.wasFound || now.After(o.young)) && now.Sub(o.looked) < lookAgain {
		return false
	}
	st, err := procfs.ReadStat(pid, 0)
	if err != nil {
		return false
	}
	if o == nil || o.start != st.StartTime {
		o = &seenProcess{start: st.StartTime, young: now.Add(youth)}
		w.seen[pid] = o
	}
	o.looked = now
	return !o.wasFound
}

// mapsFile reports whether a process maps code of the file. For processes that run gokprobe
// itself, guardians and other tracers, it reports false.
func (w *mapWatch) mapsFile(pid int) (found bool) {
	all, err := procfs.Maps(pid)
	if live := procfs.Living(pid); err == nil && len(all) == 0 && live != pid { // its first thread has ended
		all, err = procfs.Maps(live)
	}
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
