package debugfs_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"

	"github.com/gokprobe/gokprobe/kprobes"
)

// command is something that a user may do: write text to a file, append it, or read.
func command(r *rand.Rand) (how int, file, text string) {
	pick := func(s ...string) string { return s[r.IntN(len(s))] }
	name := pick("a", "b", "c")
	def := pick("p:", "r:", "r3:") + name + " " + pick("target", "target2", "foo", "six", "length", "nosuch", "target+4") +
		pick("", " v=%di", " v=$arg1:s32 w=$retval", " s=+0(%di):string", " c=$comm", " x=@text:char[4]", " bad=%zz")
	switch r.IntN(9) {
	case 0, 1:
		return 1, events, def + "\n" + pick(def, "-:"+name)
	case 2:
		return r.IntN(2), pick(events, "tracing/dynamic_events"), pick("", "-:"+name, "!"+def)
	case 3, 4:
		return 0, pick("tracing/events/enable", group+"enable", group+name+"/enable"), pick("0", "1")
	case 5:
		return 0, group + name + "/filter", pick("0", "v > 5", "v == 3 || common_pid != 0", "w < 4 && v & 1", "v = 1", `s ~ "t*"`)
	case 6:
		return r.IntN(2), group + name + "/trigger", pick("", "!") +
			pick("traceoff:1 if v == 9", "traceon", "stacktrace:3", "snapshot:1", "hist:keys=common_pid", "hist:keys=v:vals=v", "enable_event:kprobes:b", "disable_event:kprobes:c:2")
	case 7:
		return 0, pick("tracing/tracing_on", "kprobes/enabled", "sys/debug/kprobes-optimization", "tracing/snapshot", "tracing/trace"), pick("0", "1", "1")
	}
	return 2, pick(events, "kprobes/list", "tracing/trace", "tracing/kprobe_profile", "tracing/error_log", group+name+"/hist", group+name+"/trigger", group+name+"/format", "tracing/snapshot"), ""
}

// do does one.
func (t *tree) do(how int, file, text string) error {
	switch how {
	case 0:
		return t.set(file, text)
	case 1:
		return t.add(file, text)
	}
	_, err := fs.ReadFile(t.Snapshot(), file)
	return err
}

// Four users do at once what comes into their minds, while threads run through the probes. Whatever is refused has an errno.
func TestStormOfCommands(t *testing.T) {
	const users, commands = 4, 1000
	tr := open(t, "prey", kprobes.Options{Log: func(m string) { t.Log(m) }})
	tr.prog.Send("threads 4 400000 target")
	var wg sync.WaitGroup
	for user := range users {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(6, uint64(user)))
			for range commands {
				how, file, text := command(r)
				var errno syscall.Errno
				if err := tr.do(how, file, text); err != nil && !errors.As(err, &errno) {
					t.Errorf("%q to %s: error %v has no errno", text, file, err)
				}
			}
		})
	}
	wg.Wait()
	tr.must(tr.add("kprobes/enabled", "1"))
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
	tr.prog.Expect("sum")
	if got := tr.prog.Quit(); got != "right" {
		t.Errorf("the program says %q", got)
	}
}

// A close that comes between all sorts of things ends readers and refuses writers.
func TestCloseInTheMiddle(t *testing.T) {
	for seed := range uint64(5) {
		tr := open(t, "prey", kprobes.Options{Log: func(m string) { t.Log(m) }})
		tr.must(tr.add(events, "p:a target v=%di\nr:b target"))
		tr.must(tr.add("tracing/events/enable", "1"))
		lines, _ := follow(t, tr)
		tr.prog.Send("threads 2 20000 target")
		done := make(chan int)
		go func() {
			n := 0
			for range lines {
				n++
			}
			done <- n
		}()
		refused := make(chan struct{})
		go func() {
			defer close(refused)
			r := rand.New(rand.NewPCG(seed, 1))
			for !errors.Is(tr.add(events, fmt.Sprintf("p:n%d foo", seed)), errNoProcess) {
				how, file, text := command(r)
				if file == "tracing/tracing_on" || file == "kprobes/enabled" {
					continue
				}
				_ = tr.do(how, file, text)
			}
		}()
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
		<-done
		<-refused
		tr.prog.Expect("sum")
	}
}
