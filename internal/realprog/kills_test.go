package realprog

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/internal/testsize"
)

// The campaign of killed tracers. Its oracle is the target's own verdict: it works while a tracer attaches, probes
// and is killed, works on, makes threads and processes, and ends as it should; the kernel tells that its
// text is that of its files, and that nobody traces it and none of the tracer's processes is left.

// target is a live program and what it can be asked to do.
type target struct {
	pid  int
	work func(t testing.TB) // fails t unless all results are right
	quit func(t testing.TB) // ends it, and fails t unless it ends as it should
}

// killKind is a kind of targets.
type killKind struct {
	name  string
	start func(t *testing.T) target
	all   []string // what "everything" is: patterns
	some  []string // what its work calls most
	short bool     // for make test, too
	told  bool     // SECURITY.md tells that it may die: killed if GOKPROBE_TOLD is set, to see how often
}

// killsEach is how many tracers of one target are killed, one after the other, before another one is started.
const killsEach = 4

// kills is how many tracers are killed: of each kind, in make test, in make torture, or as GOKPROBE_KILLS says.
func kills(t testing.TB) int {
	n := testsize.Rounds(1, 4, 24)
	if s := os.Getenv("GOKPROBE_KILLS"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatalf("GOKPROBE_KILLS: %v", err)
		}
	}
	return n
}

// TestTargetsOutliveTheirTracer kills tracers at any moment of their lives, by twos on a machine of two processors.
func TestTargetsOutliveTheirTracer(t *testing.T) { onAllKinds(t, kills(t), false) }

// TestTargetsDoNotNoticeThatTheirTracerLeaves interrupts tracers at any moment, and has them end.
func TestTargetsDoNotNoticeThatTheirTracerLeaves(t *testing.T) {
	onAllKinds(t, max(kills(t)/4, 1), true)
}

// onAllKinds has n tracers of each kind of targets killed, or interrupted.
func onAllKinds(t *testing.T, n int, leaves bool) {
	seed := testprog.Seed(t, 1)
	tracer := filepath.Join(t.TempDir(), "gokprobe")
	output(t, "", requires(t, "go")[0], "build", "-o", tracer, "github.com/gokprobe/gokprobe/cmd/gokprobe")
	var all tally
	t.Run("kinds", func(t *testing.T) {
		for i, k := range slices.Concat(killKinds(), packagedKinds()) {
			if !k.short && !testsize.Torture() || k.told && os.Getenv("GOKPROBE_TOLD") == "" {
				continue
			}
			t.Run(k.name, func(t *testing.T) {
				t.Parallel()
				r := rand.New(rand.NewPCG(seed, uint64(i)))
				for done := 0; done < n && !late(t); {
					t.Run(fmt.Sprint(done), func(t *testing.T) {
						c := &killing{killKind: k, tracer: tracer, rand: r, tally: &all, leaves: leaves}
						defer func() { done += max(c.kills, 1) }()
						c.run(t, min(killsEach, n-done))
					})
				}
			})
		}
	})
	t.Logf("\n%s", all.table())
}

// late tells whether the rest of the test's time is wanted for its end.
func late(t *testing.T) bool {
	end, ends := t.Deadline()
	return ends && time.Until(end) < 3*time.Minute
}

// killing is a target and the tracers of it that are killed.
type killing struct {
	killKind
	target
	tracer string
	rand   *rand.Rand
	tally  *tally
	leaves bool // they are interrupted only
	cycles bool // they are interrupted, killed, or end by themselves
	kills  int
	doing  phase // what is judged at the moment
}

// phase is what a failure now would be.
type phase string

const (
	working    phase = "wrong"
	recovering phase = "recovery"
	leaving    phase = "left behind"
	ending     phase = "wrong end"
)

func (k *killing) run(t *testing.T, n int) {
	k.doing = working
	k.target = k.start(t)
	defer func() {
		if t.Failed() {
			k.blame(t)
		}
	}()
	k.works(t)
	for range n {
		k.kills++
		k.tally.note(k.name, "kills")
		k.one(t)
		if t.Failed() {
			return
		}
	}
	k.doing = ending
	k.quit(t)
}

// one has one tracer killed, and judges what is left.
func (k *killing) one(t *testing.T) {
	if k.cycles {
		k.leaves = k.rand.IntN(2) == 0
	}
	v := newVictim(t, k)
	t.Logf("%s", v)
	k.doing = working
	for killed := v.start(); ; {
		k.works(t)
		select {
		case <-killed:
		default:
			continue
		}
		break
	}
	for range 3 {
		k.works(t)
	}
	k.doing = recovering
	v.mend()
	k.doing = leaving
	v.gone()
	testprog.CheckClean(t, k.pid)
	k.doing = working
	k.works(t)
}

// works has the target work. What comes after a wrong result tells nothing.
func (k *killing) works(t *testing.T) {
	t.Helper()
	if k.work(t); t.Failed() {
		t.FailNow()
	}
}

// blame counts what went wrong, and shows the threads of a target that lives.
func (k *killing) blame(t *testing.T) {
	st, err := procfs.ReadStat(k.pid, 0)
	dead := err != nil || st.State == 'Z' || st.State == 'X'
	if dead && k.doing != ending {
		k.doing = "deaths"
	}
	k.tally.note(k.name, k.doing)
	t.Logf("judged: %s, in directory %s", k.doing, t.ArtifactDir())
	if dead {
		return
	}
	showThreads(t, k.pid)
}

// showThreads shows what a process and its children wait for.
func showThreads(t *testing.T, pid int) {
	tids, _ := procfs.Tasks(pid)
	for _, tid := range tids {
		dir := fmt.Sprintf("/proc/%d/task/%d/", pid, tid)
		call, _ := os.ReadFile(dir + "syscall")
		where, _ := os.ReadFile(dir + "wchan")
		if st, err := procfs.ReadStatus(pid, tid); err == nil {
			t.Logf("thread %d of %d: %s, traced by %d, blocks %x: %s", tid, pid, where, st.TracerPid, st.SigBlk, strings.TrimSpace(string(call)))
		}
		children, _ := procfs.Children(pid, tid)
		for _, c := range children {
			showThreads(t, c)
		}
	}
}

// tally counts what came of kills, by kind.
type tally struct {
	mu     sync.Mutex
	counts map[string]map[phase]int
	kinds  []string
}

func (y *tally) note(kind string, what phase) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.counts == nil {
		y.counts = map[string]map[phase]int{}
	}
	if y.counts[kind] == nil {
		y.counts[kind] = map[phase]int{}
		y.kinds = append(y.kinds, kind)
	}
	y.counts[kind][what]++
}

// table has a line for each kind.
func (y *tally) table() string {
	columns := []phase{"kills", "deaths", working, ending, recovering, leaving, "mended", "recovered", "refused"}
	var b strings.Builder
	line := func(kind string, of map[phase]int) {
		fmt.Fprintf(&b, "%-16s", kind)
		for _, c := range columns {
			fmt.Fprintf(&b, " %11d", of[c])
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "%-16s", "")
	for _, c := range columns {
		fmt.Fprintf(&b, " %11s", c)
	}
	b.WriteByte('\n')
	all := map[phase]int{}
	for _, kind := range y.kinds {
		line(kind, y.counts[kind])
		for c, n := range y.counts[kind] {
			all[c] += n
		}
	}
	line("all", all)
	return b.String()
}
