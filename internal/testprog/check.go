package testprog

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/procfs"
)

// regionName is how /proc/PID/maps shows memory that gokprobe injected.
const regionName = "/memfd:gokprobe"

// CheckClean fails the test unless the fixture is as if never traced: the text of
// every mapped file is the file's, nothing of gokprobe's is mapped, and no thread
// has a tracer.
func (p *Prog) CheckClean() {
	p.t.Helper()
	CheckClean(p.t, p.pid)
}

// CheckClean is Prog.CheckClean for any live process.
func CheckClean(t testing.TB, pid int) {
	t.Helper()
	dirt, err := dirtOf(pid, uprobesGo())
	if err != nil {
		t.Errorf("check that %d is clean: %v", pid, err)
	}
	for _, d := range dirt {
		t.Errorf("process %d is not clean: %s", pid, d)
	}
}

// dirtOf lists what a tracer left behind in process pid.
func dirtOf(pid int, until time.Time) ([]string, error) {
	var dirt []string
	live := liveTask(pid)
	mappings, err := procfs.Maps(live)
	if err != nil {
		return nil, err
	}
	texts := newTexts(live, until)
	defer texts.close()
	for _, m := range mappings {
		if m.Path == regionName {
			dirt = append(dirt, fmt.Sprintf("%v is mapped at %v", m.Path, m.Range))
			continue
		}
		d, err := texts.dirt(m)
		if err != nil {
			return dirt, err
		}
		dirt = append(dirt, d...)
	}
	tids, err := procfs.Tasks(pid)
	if err != nil {
		return dirt, err
	}
	for _, tid := range tids {
		if s, err := procfs.ReadStatus(pid, tid); err == nil && s.TracerPid != 0 {
			dirt = append(dirt, fmt.Sprintf("thread %d is traced by %d", tid, s.TracerPid))
		} else if err != nil && !procfs.Gone(err) {
			return dirt, err
		}
	}
	return dirt, nil
}

// texts opens each file once: some programs map one very often.
type texts struct {
	pid   int
	until time.Time // uprobes are waited for
	exe   string
	mem   *os.File
	files map[string]*textFile
}

type textFile struct {
	f   *os.File
	elf bool
}

func newTexts(pid int, until time.Time) *texts {
	return &texts{pid: pid, until: until, exe: exeOf(pid), files: map[string]*textFile{}}
}

func (x *texts) close() {
	if x.mem != nil {
		x.mem.Close()
	}
	for _, t := range x.files {
		t.f.Close()
	}
}

// dirt compares an executable mapping with what it was mapped from. For the
// vdso that is our own copy: the kernel maps the same pages into all processes. Files that are not ELF's, such as SBCL's heap, are
// no text: the program changes what it has mapped of them.
func (x *texts) dirt(m procfs.Mapping) ([]string, error) {
	if !m.Exec {
		return nil, nil
	}
	var want []byte
	var err error
	switch {
	case m.Path == "[vdso]":
		want, err = ownVDSO()
	case m.Anonymous() || m.Deleted && m.Path != x.exe:
		return nil, nil
	default:
		want, err = x.part(m)
	}
	if err != nil || want == nil {
		return nil, err
	}
	got := make([]byte, len(want))
	if err := x.read(m, got, want); err != nil {
		return nil, err
	}
	if bytes.Equal(got, want) {
		return nil, nil
	}
	var dirt []string
	for i := range want {
		if got[i] != want[i] && len(dirt) < 8 {
			dirt = append(dirt, fmt.Sprintf("text at %v (%s+%#x) is %#02x, in the file %#02x",
				m.Range.Start.Add(int64(i)), filepath.Base(m.Path), m.Offset+uint64(i), got[i], want[i]))
		}
	}
	return dirt, nil
}

// read reads code from the beginning of m, which was mapped from file.
func (x *texts) read(m procfs.Mapping, code, file []byte) (err error) {
	if x.mem == nil {
		if x.mem, err = os.Open("/proc/" + strconv.Itoa(x.pid) + "/mem"); err != nil {
			return err
		}
	}
	if _, err := x.mem.ReadAt(code, int64(m.Range.Start)); err != nil {
		return err
	}
	return outwait(x.mem, m, code, file, x.until)
}

// part is what m maps of its file, which may end before m does; nothing of one that is no text.
func (x *texts) part(m procfs.Mapping) ([]byte, error) {
	t := x.files[m.Path]
	if t == nil {
		name := m.Path
		if name == x.exe {
			name = "/proc/" + strconv.Itoa(x.pid) + "/exe"
		}
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		_, err = elf.NewFile(f)
		t = &textFile{f, err == nil || m.Path == x.exe}
		x.files[m.Path] = t
	}
	if !t.elf {
		return nil, nil
	}
	st, err := t.f.Stat()
	if err != nil {
		return nil, err
	}
	left := max(st.Size()-int64(m.Offset), 0) // a mapping may be as long as it likes
	b := make([]byte, min(m.Range.Len(), uint64(left)))
	n, err := t.f.ReadAt(b, int64(m.Offset))
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return b[:n], err
}

// besides is part, where others may be in the text; what can't be read has nobody.
func (x *texts) besides(m procfs.Mapping) []byte {
	if !BesideUprobes() || m.Anonymous() || m.Deleted && m.Path != x.exe {
		return nil
	}
	file, _ := x.part(m)
	return file
}

func exeOf(pid int) string { s, _ := procfs.Exe(pid); return s }

// liveTask is a thread of process pid that has not ended; its files in /proc show
// the process's memory, which those of an ended leader do not. It is 0 if all
// threads have ended.
func liveTask(pid int) int {
	tids, _ := procfs.Tasks(pid)
	for _, tid := range tids {
		if s, err := procfs.ReadStat(pid, tid); err == nil && s.State != 'Z' && s.State != 'X' {
			return tid
		}
	}
	return 0
}

func ownVDSO() ([]byte, error) {
	mappings, err := procfs.Maps(os.Getpid())
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(mappings, func(m procfs.Mapping) bool { return m.Path == "[vdso]" })
	if i < 0 {
		return nil, nil
	}
	return readMem(os.Getpid(), mappings[i].Range)
}

// readMem reads r of process pid's memory.
func readMem(pid int, r arch.Range) ([]byte, error) {
	f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/mem")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, r.Len())
	_, err = f.ReadAt(b, int64(r.Start))
	return b, err
}

// Snapshot is what must be the same in a process before it is traced and after.
type Snapshot struct {
	Text    map[string][]byte // executable mappings: "range path" to contents
	Mapped  []string          // paths of all mapped files, sorted, each once
	FDs     map[int]string    // open files: number to /proc/PID/fd link
	Signals map[int]string    // by thread id: blocked, ignored and caught signals, SIGTRAP pending
	Private uint64            // bytes of anonymous memory that can be written; Compare does not look at it
}

// TakeSnapshot records process pid. Threads that end meanwhile are left out.
func TakeSnapshot(t testing.TB, pid int) Snapshot {
	t.Helper()
	return mustSnapshot(t, pid, uprobesGo())
}

func mustSnapshot(t testing.TB, pid int, until time.Time) Snapshot {
	t.Helper()
	s, err := takeSnapshot(pid, until)
	if err != nil {
		t.Fatalf("snapshot of %d: %v", pid, err)
	}
	return s
}

// Compare fails the test unless process pid is as s recorded it. Of threads it
// looks at those that live both times. A difference counts only if it stays: a
// thread that is just creating another has all signals blocked for a moment.
func (s Snapshot) Compare(t testing.TB, pid int) {
	t.Helper()
	var diff []string
	until := uprobesGo()
	for range 100 {
		if diff = s.diff(mustSnapshot(t, pid, until)); len(diff) == 0 {
			return
		}
	}
	for _, d := range diff {
		t.Errorf("process %d changed: %s", pid, d)
	}
}

func (s Snapshot) diff(now Snapshot) []string {
	d := diffMaps("executable mapping", s.Text, now.Text, bytes.Equal, false)
	if !slices.Equal(s.Mapped, now.Mapped) {
		d = append(d, fmt.Sprintf("mapped files were %q, are %q", s.Mapped, now.Mapped))
	}
	same := func(a, b string) bool { return a == b }
	d = append(d, diffMaps("file descriptor", s.FDs, now.FDs, same, false)...)
	return append(d, diffMaps("signals of thread", s.Signals, now.Signals, same, true)...)
}

// diffMaps compares two maps; onlyCommon leaves out keys that one of them lacks.
func diffMaps[K string | int, V string | []byte](what string, a, b map[K]V, same func(V, V) bool, onlyCommon bool) []string {
	show := func(v V) string {
		if len(v) > 80 {
			return fmt.Sprintf("%d bytes", len(v))
		}
		return string(v)
	}
	var d []string
	for k, was := range a {
		if is, ok := b[k]; ok && !same(was, is) {
			d = append(d, fmt.Sprintf("%s %v was %s, is %s", what, k, show(was), show(is)))
		} else if !ok && !onlyCommon {
			d = append(d, fmt.Sprintf("%s %v is gone", what, k))
		}
	}
	for k, is := range b {
		if _, ok := a[k]; !ok && !onlyCommon {
			d = append(d, fmt.Sprintf("%s %v is new: %s", what, k, show(is)))
		}
	}
	slices.Sort(d)
	return d
}

func takeSnapshot(pid int, until time.Time) (Snapshot, error) {
	s := Snapshot{Text: map[string][]byte{}, FDs: map[int]string{}, Signals: map[int]string{}}
	live := liveTask(pid)
	mappings, err := procfs.Maps(live)
	if err != nil {
		return s, err
	}
	texts := newTexts(live, until)
	defer texts.close()
	files := map[string]bool{}
	for _, m := range mappings {
		if !m.Anonymous() {
			files[m.Path] = true
		} else if m.Write {
			s.Private += m.Range.Len()
		}
		if m.Exec && m.Path != "[vsyscall]" && !ofUprobes(m) { // not readable through /proc/PID/mem
			b := make([]byte, m.Range.Len())
			if err := texts.read(m, b, texts.besides(m)); err != nil {
				return s, err
			}
			s.Text[strings.TrimSpace(m.Range.String()+" "+m.Path)] = b
		}
	}
	s.Mapped = slices.Sorted(maps.Keys(files))
	if err := s.takeFDs(live); err != nil {
		return s, err
	}
	return s, s.takeSignals(pid)
}

func (s *Snapshot) takeFDs(pid int) error {
	dir := "/proc/" + strconv.Itoa(pid) + "/fd"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		if err != nil {
			return err
		}
		if link, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil {
			s.FDs[n] = link
		}
	}
	return nil
}

// settledStatus reads a thread's status until its blocked signals are the same several
// times in a row: a handler blocks some, and glibc all of them around the making of
// threads and processes, for a moment.
func settledStatus(pid, tid int) (st procfs.Status, err error) {
	var last procfs.SigSet
	same := 0
	for range 100 {
		if st, err = procfs.ReadStatus(pid, tid); err != nil || same == 4 {
			break
		}
		if same++; st.SigBlk != last {
			last, same = st.SigBlk, 0
		}
		if st.State == 'R' && st.SigBlk != 0 { // perhaps in a handler, and without a processor
			time.Sleep(time.Millisecond)
		}
	}
	return st, err
}

func (s *Snapshot) takeSignals(pid int) error {
	tids, err := procfs.Tasks(pid)
	if err != nil {
		return err
	}
	for _, tid := range tids {
		st, err := settledStatus(pid, tid)
		if procfs.Gone(err) {
			continue
		} else if err != nil {
			return err
		}
		trap := st.SigPnd.Has(5) || st.ShdPnd.Has(5)
		s.Signals[tid] = fmt.Sprintf("blocked %x ignored %x caught %x SIGTRAP pending %v", st.SigBlk, st.SigIgn, st.SigCgt, trap)
	}
	return nil
}
