package debugfs_test

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/kprobes"
)

const tracePipe = "tracing/trace_pipe"

// follow reads a trace_pipe line by line until its end.
func follow(t *testing.T, tr *tree) (<-chan string, fs.File) {
	t.Helper()
	f, err := tr.Open(tracePipe)
	if err != nil {
		t.Fatal(err)
	}
	lines := make(chan string)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(f); s.Scan(); {
			lines <- s.Text()
		}
	}()
	return lines, f
}

func TestTracePipeWaitsAndConsumes(t *testing.T) {
	inAllModes(t, "prey", func(t *testing.T, tr *tree) {
		tr.must(tr.add(events, "p:t target v=%di:s64"))
		tr.must(tr.add(group+"t/enable", "1"))
		first, f := follow(t, tr)
		for i := range 3 { // the reader is there, and waits
			tr.call("target", i)
			if line, want := <-first, fmt.Sprintf(" v=%d", i); !strings.HasSuffix(line, want) {
				t.Errorf("%q is read, want %q", line, want)
			}
		}
		tr.wantLines()
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if line, more := <-first; more {
			t.Errorf("%q is read after the file was closed", line)
		}
		if _, err := f.Read(make([]byte, 10)); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("error %v of a closed file", err)
		}
		for i := range 4 {
			tr.call("target", i)
		}
		tr.wantLines(`t: .* v=0`, `t: .* v=1`, `t: .* v=2`, `t: .* v=3`) // it does not consume
		data, err := fs.ReadFile(tr.Snapshot(), tracePipe)
		if err != nil || strings.Count(string(data), "\n") != 4 {
			t.Errorf("%q is read (%v), want 4 lines", data, err)
		}
		tr.wantLines()
	})
}

// Each line goes to one of several readers, and all of them see the session's end.
func TestSeveralReaders(t *testing.T) {
	tr := open(t, "prey", kprobes.Options{})
	tr.must(tr.add(events, "p:t target v=%di:s64"))
	tr.must(tr.add(group+"t/enable", "1"))
	const readers, calls = 3, 1000
	var all []<-chan string
	for range readers {
		lines, _ := follow(t, tr)
		all = append(all, lines)
	}
	got := make(chan int)
	for _, lines := range all {
		go func() {
			n := 0
			for range lines {
				n++
			}
			got <- n
		}()
	}
	tr.prog.Do(fmt.Sprintf("threads 1 %d target", calls), "sum")
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	n := 0
	for range readers {
		n += <-got
	}
	if n != calls {
		t.Errorf("%d lines are read, want %d", n, calls)
	}
}

// What a buffer has no room for is told, once to who consumes.
func TestOverwrittenEventsAreCounted(t *testing.T) {
	tr := open(t, "prey", kprobes.Options{})
	tr.must(tr.add("tracing/buffer_size_kb", "64"))
	tr.is("tracing/buffer_size_kb", "64\n")
	tr.must(tr.add(events, "p:t target v=%di:s64"))
	tr.must(tr.add(group+"t/enable", "1"))
	tr.session.WaitForOptimizer(t.Context())
	const calls = 5000
	tr.prog.Do(fmt.Sprintf("threads 1 %d target", calls), "sum")
	text := tr.cat("tracing/trace")
	var in, written, lost int
	for line := range strings.Lines(text) {
		_, _ = fmt.Sscanf(line, "# entries-in-buffer/entries-written: %d/%d", &in, &written)
		_, _ = fmt.Sscanf(line, "CPU:0 [LOST %d EVENTS]", &lost)
	}
	if written != calls || in+lost != calls || in != len(tr.lines())-1 || in < 50 {
		t.Errorf("%d entries of %d are there, %d are lost", in, written, lost)
	}
	data, err := fs.ReadFile(tr.Snapshot(), tracePipe)
	if err != nil || !strings.HasPrefix(string(data), fmt.Sprintf("CPU:0 [LOST %d EVENTS]\n", lost)) || strings.Count(string(data), "\n") != in+1 {
		t.Errorf("trace_pipe has %d lines (%v), the first of them %.50q", strings.Count(string(data), "\n"), err, data)
	}
	tr.call("target", -1)
	data, _ = fs.ReadFile(tr.Snapshot(), tracePipe)
	if strings.Contains(string(data), "LOST") || strings.Count(string(data), "\n") != 1 {
		t.Errorf("trace_pipe is %q", data)
	}
}

// The program's end is the end of a trace_pipe; what it has recorded can be read.
func TestTheProgramEnds(t *testing.T) {
	inAllModes(t, "prey", func(t *testing.T, tr *tree) {
		tr.must(tr.add(events, "p:t target v=%di:s64"))
		tr.must(tr.add(group+"t/enable", "1"))
		tr.call("target", 5)
		lines, _ := follow(t, tr)
		if got := tr.prog.Quit(); got != "right" {
			t.Errorf("the program says %q", got)
		}
		<-tr.session.Done()
		if line := <-lines; !strings.HasSuffix(line, " v=5") {
			t.Errorf("%q is read", line)
		}
		if line, more := <-lines; more {
			t.Errorf("%q is read", line)
		}
		tr.refused(tr.add(events, "p:u target"), errNoProcess)
		if got := tr.cat("kprobes/list"); !strings.Contains(got, "[GONE]") {
			t.Errorf("kprobes/list is %q", got)
		}
	})
}

// The program may run on one processor, then on another.
func TestTheProcessorOfAHit(t *testing.T) {
	inAllModes(t, "prey", func(t *testing.T, tr *tree) {
		var all unix.CPUSet
		if err := unix.SchedGetaffinity(0, &all); err != nil {
			t.Fatal(err)
		}
		tr.must(tr.add(events, "p:t target v=%di:s64\nr:back target"))
		tr.must(tr.add("tracing/events/enable", "1"))
		var want []string
		for cpu := range 1024 {
			if !all.IsSet(cpu) || len(want) > 4 {
				continue
			}
			var one unix.CPUSet
			one.Set(cpu)
			if err := unix.SchedSetaffinity(tr.prog.PID(), &one); err != nil {
				t.Fatal(err)
			}
			tr.must(tr.add(group+"t/filter", fmt.Sprintf("cpu == %d && v == 1 || common_cpu != %[1]d", cpu)))
			tr.call("target", 1)
			tr.call("target", 2)
			head := fmt.Sprintf(" [%03d] ..... ", cpu)
			want = append(want, head+"t: v=1", head+"back:", head+"back:")
		}
		var got []string
		for line := range strings.Lines(tr.cat("tracing/trace")) {
			if at, rest, ok := strings.Cut(line, " ..... "); ok {
				_, rest, _ = strings.Cut(rest, ": ")
				f := strings.Fields(rest)
				last := ""
				if f[0] == "t:" {
					last = " " + f[len(f)-1]
				}
				got = append(got, at[len(at)-6:]+" ..... "+f[0]+last)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("hits are\n%q, want\n%q", got, want)
		}
	})
}

func TestTracingIsTurnedOff(t *testing.T) {
	inAllModes(t, "prey", func(t *testing.T, tr *tree) {
		tr.must(tr.add(events, "p:t target v=%di:s64"))
		tr.must(tr.add(group+"t/enable", "1"))
		tr.must(tr.add("tracing/tracing_on", "0"))
		tr.is("tracing/tracing_on", "0\n")
		tr.call("target", 1)
		tr.wantLines()
		tr.must(tr.add("tracing/tracing_on", "1"))
		tr.call("target", 2)
		tr.must(tr.add("tracing/set_event_pid", "1"))
		tr.call("target", 3)
		tr.must(tr.add("tracing/set_event_pid", fmt.Sprint(tr.prog.PID())))
		tr.is("tracing/set_event_pid", fmt.Sprintf("1\n%d\n", tr.prog.PID()))
		tr.call("target", 4)
		tr.must(tr.set("tracing/set_event_pid", ""))
		tr.must(tr.add("tracing/snapshot", "1"))
		tr.wantLines()
		if got := tr.cat("tracing/snapshot"); strings.Count(got, " t: (target") != 2 || !strings.Contains(got, " v=2\n") || !strings.Contains(got, " v=4\n") {
			t.Errorf("the snapshot is %q", got)
		}
		tr.must(tr.add("tracing/snapshot", "0"))
		if got := tr.cat("tracing/snapshot"); !strings.Contains(got, "Snapshot is freed") {
			t.Errorf("the snapshot is %q", got)
		}
	})
}

// TestStringsBeginNoLines: what a target's strings hold stays within the line of their event.
func TestStringsBeginNoLines(t *testing.T) {
	tr := open(t, "prey", kprobes.Options{})
	tr.must(tr.add(events, "p:greet length at=%di:u64 text=+0(%di):string c=+1(%di):char both=+0(%di):char[4]"))
	tr.must(tr.add(group+"greet/enable", "1"))
	tr.must(tr.add(group+"greet/trigger", "hist:keys=text"))
	tr.call("string", 3)
	var at int64
	if _, values, ok := strings.Cut(tr.cat("tracing/trace"), " at="); ok {
		_, _ = fmt.Sscan(values, &at)
	}
	tr.must(tr.Truncate("tracing/trace"))
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", tr.prog.PID()), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = mem.Close() }()
	for _, c := range []struct{ text, shown, char string }{{"a\nb\t", `a\nb\t`, `\n`}, {"\r\v\\n", `\r\v\n`, `\v`}, {"\x1b\xffx\n", `\x1b\xffx\n`, `\xff`}} {
		if _, err := mem.WriteAt([]byte(c.text), at); err != nil {
			t.Fatal(err)
		}
		tr.call("string", 3)
		values := fmt.Sprintf(` text="%s" c='%s' both=`, c.shown, c.char)
		if all := tr.lines(); len(all) != 1 || !strings.Contains(all[0], values) {
			t.Errorf("the trace is %q, want one line with %s", all, values)
		}
		piped, err := fs.ReadFile(tr.Snapshot(), tracePipe)
		if line, more, _ := strings.Cut(string(piped), "\n"); err != nil || more != "" || !strings.Contains(line, values) || !strings.HasSuffix(line, "'}") {
			t.Errorf("%q is read (%v), want one line with %s", piped, err, values)
		}
		if hist := tr.cat(group + "greet/hist"); !strings.Contains(hist, "{ text: "+c.shown+" ") {
			t.Errorf("the histogram is\n%s", hist)
		}
	}
	if _, err := mem.WriteAt([]byte("test"), at); err != nil {
		t.Fatal(err)
	}
}
