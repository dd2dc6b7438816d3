package debugfs_test

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

const uevents = "tracing/uprobe_events"

// fileOffset is where a file has a symbol.
func fileOffset(t *testing.T, file, symbol string) uint64 {
	t.Helper()
	f, err := elf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	all, _ := f.Symbols()
	dynamic, _ := f.DynamicSymbols()
	for _, s := range append(all, dynamic...) {
		if s.Name != symbol {
			continue
		}
		for _, p := range f.Progs {
			if p.Type == elf.PT_LOAD && p.Vaddr <= s.Value && s.Value < p.Vaddr+p.Memsz {
				return s.Value - p.Vaddr + p.Off
			}
		}
	}
	t.Fatalf("%s has no %s", file, symbol)
	return 0
}

func TestUprobes(t *testing.T) {
	inAllModes(t, "prey", func(t *testing.T, tr *tree) {
		prog := testprog.Build(t, "prey")
		at, text := fileOffset(t, prog, "length"), fileOffset(t, prog, "text")
		tr.must(tr.add(uevents, fmt.Sprintf("p:greet %s:%#x text=+0(%%di):string same=@+%d:u32\nr:back %[1]s:%[2]d ret=$retval", prog, at, text)))
		tr.is(uevents, fmt.Sprintf("p:uprobes/greet %s:%#016x text=+0(%%di):string same=@+%d:u32\nr:uprobes/back %[1]s:%#016[2]x ret=$retval\n", prog, at, text))
		if n := len(tr.session.Probes()); n != 0 {
			t.Errorf("%d probes are registered before an event is on", n)
		}
		tr.must(tr.add("tracing/events/uprobes/enable", "1"))
		tr.call("string", 3)
		tr.refused(tr.Truncate(uevents), syscall.EBUSY)
		tr.wantLines(`greet: \(0x[0-9a-f]+\) text="test" same=1953719668`, `back: \(0x[0-9a-f]+ <- 0x[0-9a-f]+\) ret=0x4`)
		tr.must(tr.add("tracing/events/uprobes/enable", "0"))
		tr.call("string", 3)
		tr.is("tracing/uprobe_profile", fmt.Sprintf("  %s %-44s %15d\n  %[1]s %-44[4]s %15[3]d\n", prog, "greet", 1, "back"))
		tr.must(tr.add("tracing/events/uprobes/greet/enable", "1"))
		tr.call("string", 3)
		tr.must(tr.add("tracing/events/uprobes/greet/enable", "0"))
		if got := tr.cat("tracing/uprobe_profile"); !strings.Contains(got, fmt.Sprintf("%-44s %15d\n", "greet", 2)) {
			t.Errorf("the counts begin again: %q", got)
		}
		tr.must(tr.Truncate(uevents))
	})
}

// TestAUprobeWhereTheFirstThreadHasEnded: its files in /proc show neither what is mapped nor the root directory.
func TestAUprobeWhereTheFirstThreadHasEnded(t *testing.T) {
	tr := open(t, "leader", kprobes.Options{})
	prog := testprog.Build(t, "leader")
	tr.must(tr.add(uevents, fmt.Sprintf("p:called %s:%d v=%%di:s64", prog, fileOffset(t, prog, "foo"))))
	tr.must(tr.add("tracing/events/uprobes/enable", "1"))
	if got := tr.prog.Do("call 3", "ret"); got != "ret 52" {
		t.Errorf("the program says %q", got)
	}
	tr.wantLines(`called: \(0x[0-9a-f]+\) v=3`)
}

func TestUprobesThatCanNotBe(t *testing.T) {
	tr := open(t, "prey", kprobes.Options{})
	prog := testprog.Build(t, "prey")
	for _, c := range []struct {
		line  string
		errno error
		text  string
	}{
		{"p /nosuch/file:0x10", syscall.ENOENT, "Failed to find the given file"},
		{"p " + filepath.Dir(prog) + ":0x10", syscall.EINVAL, "Not a regular file"},
		{"p " + prog + ":0x10(0x1", syscall.EINVAL, "Reference counter brace is not closed"},
	} {
		tr.refused(tr.add(uevents, c.line), c.errno)
		if log := tr.cat("tracing/error_log"); !strings.Contains(log, "trace_uprobe: error: "+c.text+"\n  Command: "+c.line+"\n") {
			t.Errorf("error_log is %q", log)
		}
	}
	tr.is(uevents, "")
	// What only the enabling finds out: no code, behind the end, not mapped, inside of an instruction.
	size := uint64(1 << 30)
	if info, err := os.Stat(prog); err == nil {
		size = uint64(info.Size())
	}
	for i, place := range []string{prog + ":0x10", fmt.Sprintf("%s:%d", prog, size), "/proc/self/cmdline:0", fmt.Sprintf("%s:%d", prog, fileOffset(t, prog, "length")+1)} {
		name := fmt.Sprintf("e%d", i)
		tr.must(tr.add(uevents, "p:"+name+" "+place))
		if err := tr.add("tracing/events/uprobes/"+name+"/enable", "1"); err == nil {
			t.Errorf("%s can be probed", place)
		}
		tr.is("tracing/events/uprobes/"+name+"/enable", "0\n")
	}
	if n := len(tr.session.Probes()); n != 0 {
		t.Errorf("%d probes are left", n)
	}
}

// A semaphore counts while the event is on: here it is the text that the function is called with.
func TestSemaphores(t *testing.T) {
	tr := open(t, "prey", kprobes.Options{})
	prog := testprog.Build(t, "prey")
	at, text := fileOffset(t, prog, "length"), fileOffset(t, prog, "text")
	line := fmt.Sprintf("p:uprobes/a %s:%#016x(%#x) text=+0(%%di):string", prog, at, text)
	tr.must(tr.add(uevents, line))
	tr.is(uevents, line+"\n")
	tr.refused(tr.add(uevents, fmt.Sprintf("p:b %s:%#x(%#x)", prog, at, text+2)), syscall.EINVAL)
	on := func(v string) { tr.must(tr.add("tracing/events/uprobes/a/enable", v)) }
	on("1")
	tr.must(tr.add("tracing/events/uprobes/a/filter", "0")) // registers it anew
	tr.must(tr.add("tracing/events/uprobes/a/filter", `text != "x"`))
	tr.call("string", 1)
	on("0")
	on("1")
	tr.call("string", 1)
	on("0")
	tr.must(tr.set(uevents, fmt.Sprintf("p:c %s:%#x text=+0(%%di):string", prog, at)))
	tr.must(tr.add("tracing/events/uprobes/c/enable", "1"))
	tr.call("string", 1)
	tr.wantLines(`a: .* text="uest"`, `a: .* text="uest"`, `c: .* text="test"`)
}

// What @SYM means is found out when the event is turned on: its library may be elsewhere by then.
func TestSymbolsOfALibraryThatMoves(t *testing.T) {
	lib := testprog.Build(t, "libplug.so", "-shared", "-fPIC")
	tr := openProg(t, testprog.Start(t, testprog.Build(t, "modules", "-rdynamic")), kprobes.Options{Log: func(m string) { t.Log(m) }})
	tr.prog.Do("open 0 "+lib, "did")
	tr.must(tr.add(events, "p:k libplug.so:build")) // so that the session learns of what is loaded
	tr.must(tr.add(events, "p:f foo where=\\1 code=@plugged:x32"))
	tr.prog.Do("close 0", "did")
	tr.prog.Do("occupy 0", "did")
	tr.prog.Do("open 1 "+lib, "did")
	tr.must(tr.add(group+"f/enable", "1"))
	lines, pipe := follow(t, tr)
	tr.prog.Do("start", "did")
	line := <-lines
	if err := pipe.Close(); err != nil {
		t.Error(err)
	}
	tr.prog.Do("stop", "did")
	if strings.HasSuffix(line, "code=0xcccccccc") || strings.HasSuffix(line, "code=0x0") || !strings.Contains(line, " code=0x") {
		t.Errorf("%q is read", line)
	}
	for range lines { // what was read already
	}
	tr.prog.Do("vacate", "did")
}

// A library that comes, goes, and comes back.
func TestEventsOfALibrary(t *testing.T) {
	dir := t.TempDir()
	lib := filepath.Join(dir, "libplug.so")
	data, err := os.ReadFile(testprog.Build(t, "libplug.so", "-shared", "-fPIC"))
	if err == nil {
		err = os.WriteFile(lib, data, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range modes {
		t.Run(name, func(t *testing.T) {
			o.Log = func(m string) { t.Log(m) }
			tr := openProg(t, testprog.Start(t, testprog.Build(t, "modules", "-rdynamic")), o)
			tr.must(tr.add(events, "p:k libplug.so:plugged v=%di:s64"))
			tr.must(tr.add(uevents, fmt.Sprintf("p:u %s:%#x v=%%di:s64", lib, fileOffset(t, lib, "plugged"))))
			tr.must(tr.add("tracing/events/enable", "1"))
			for range 2 {
				tr.prog.Do("open 0 "+lib, "did")
				tr.session.WaitForOptimizer(t.Context())
				tr.prog.Do("call 0 plugged 1", "did 1")
				tr.prog.Do("close 0", "did")
			}
			if list := tr.cat("kprobes/list"); strings.Count(list, "[GONE]") != 2 {
				t.Errorf("kprobes/list is %q", list)
			}
			// The latest is called first.
			tr.wantLines(`u: \(0x[0-9a-f]+\) v=0`, `k: \(.*\) v=0`, `u: \(0x[0-9a-f]+\) v=0`, `k: \(.*\) v=0`)
			if got := tr.cat("tracing/kprobe_profile"); got != fmt.Sprintf("  %-44s %15d %15d\n", "k", 2, 0) {
				t.Errorf("the profile is %q", got)
			}
			tr.must(tr.add("tracing/events/enable", "0"))
			tr.must(tr.Truncate("tracing/dynamic_events"))
		})
	}
}
