package realprog

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// commandsScript makes 32 children for each line that it reads, which is a number, and most of them execute another program.
const commandsScript = `
while read -r n; do
  sum=0
  for ((i = 0; i < 8; i++)); do
    x=$(echo $((i * n)))
    /bin/true
    (exit $((i % 7))); sum=$((sum + $? + x))
    y=$(/bin/echo "$i"); sum=$((sum + y))
  done
  echo "done $n $sum"
done
`

// TestBashFollowed: all functions of a shell are counted in it and in all of its children, which execute programs that lack them. The children are as many as
// the script has started, and the results are the same.
func TestBashFollowed(t *testing.T) {
	tools := requires(t, "bash")
	dir := t.TempDir()
	script := filepath.Join(dir, "script")
	write(t, script, commandsScript)
	prog := start(t, dir, tools[0], "--norc", script)
	work := func(n int) string { return prog.Do(strconv.Itoa(n), "done ") }
	want := work(3)
	before := testprog.TakeSnapshot(t, prog.PID())
	s := attach(t, prog.PID(), kprobes.Options{Follow: true})
	counts := everyFunction(t, s, "bash")
	forks := counts["make_child"]
	if forks == nil {
		t.Fatal("make_child is not probed")
	}
	const each = 32 // children of one work
	for i := range 2 {
		sameText(t, "under probes", want, work(3))
		if n := forks.Hits(); n != uint64(i+1)*each {
			t.Errorf("after %d times %d children there are %d", i+1, each, n)
		}
		s.WaitForOptimizer(t.Context())
	}
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	testprog.CheckClean(t, prog.PID())
	before.Compare(t, prog.PID())
	sameText(t, "after all", want, work(3))
	prog.Quit()
}

// everyFunction probes all functions of a module, those that can be, and returns the probes by the functions' names.
func everyFunction(t testing.TB, s *kprobes.Session, module string) map[string]*kprobes.Kprobe {
	t.Helper()
	probes := map[string]*kprobes.Kprobe{}
	var kps []*kprobes.Kprobe
	for _, sym := range s.Symbols().Symbols(module + ":*") {
		if !sym.Func || probes[sym.Linkage] != nil || strings.HasPrefix(sym.Linkage, "_") { // _start and its kin may be no functions
			continue
		}
		kp := &kprobes.Kprobe{SymbolName: module + ":" + sym.Linkage}
		probes[sym.Linkage] = kp
		kps = append(kps, kp)
	}
	if err := s.RegisterKprobes(t.Context(), kps); err != nil {
		t.Fatalf("register %d probes: %v", len(kps), err)
	}
	t.Logf("%d functions are probed", len(kps))
	return probes
}
