package testprog

import (
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/procfs"
)

// BesideUprobes tells whether scripts/beside-uprobes has uprobes of the kernel's come and go in all programs. What is right then but would be a failure
// elsewhere is told here, in one place: of the text of programs, of warnings, and of the reasons why probes have no jumps.
func BesideUprobes() bool { return os.Getenv("GOKPROBE_BESIDE_UPROBES") != "" }

// breakpoint is what a uprobe puts over the first byte of an instruction.
func breakpoint() byte { return host.Arch.Breakpoint()[0] }

// outwait replaces in code, which was read from the beginning of m, breakpoints that file does not have by what stands there when they have gone,
// and waits for that, but no longer than until. A uprobe goes sooner or later, and the kernel then puts back the file's byte. What a tracer leaves does not go, and stays in code
// when it has been waited for; nor is anything else that differs replaced.
func outwait(mem io.ReaderAt, m procfs.Mapping, code, file []byte, until time.Time) error {
	if !BesideUprobes() || m.Anonymous() {
		return nil
	}
	trap := breakpoint()
	for i := range min(len(code), len(file)) {
		for at := code[i : i+1]; at[0] == trap && file[i] != trap; {
			if _, err := mem.ReadAt(at, int64(m.Range.Start)+int64(i)); err != nil {
				return err
			}
			if at[0] == trap {
				if time.Now().After(until) {
					break
				}
				<-time.After(time.Millisecond)
			}
		}
	}
	return nil
}

// uprobesGo is when all uprobes that stand now are expected to have gone. It only ends checks that find something.
func uprobesGo() time.Time { return time.Now().Add(besidePatience) }

var besidePatience = time.Minute

// ofUprobes tells of a mapping that the kernel makes for the uprobes of a process, at the first hit: there it executes copies of instructions, and what calls
// of uprobes lead to. It can't be read.
func ofUprobes(m procfs.Mapping) bool {
	return BesideUprobes() && m.Anonymous() && (m.Path == "[uprobes]" || m.Path == "[uprobes-trampoline]")
}

// What a session says of others in the program's code, each once.
var ofOthers = []string{
	"others write into the code of ",
	"somebody else has a breakpoint at ",
	"somebody else writes into the code at ",
}

// ButUprobes hands a session's warnings on to log, but for those that tell, beside uprobes, that there are some.
func ButUprobes(log func(string)) func(string) {
	return func(m string) {
		tells := func(of string) bool { return strings.HasPrefix(m, of) }
		if !BesideUprobes() || !slices.ContainsFunc(ofOthers, tells) {
			log(m)
		}
	}
}

// NoWarnings is the log of a session that has nothing to warn of: all else fails the test.
func NoWarnings(t testing.TB) func(string) {
	return ButUprobes(func(m string) { t.Errorf("session warns: %s", m) })
}

// NoJumpHere tells whether a probe has no jump for a reason of this machine's: beside uprobes one was seen in the
// jump's place or in the same file; or the probe's handlers can't be called, by a processor whose programs can't read
// their thread pointers.
func NoJumpHere(reason string) bool {
	return BesideUprobes() && strings.Contains(reason, "uprobe or another debugger's breakpoint was seen in the ") ||
		!CallsTracer() && strings.Contains(reason, "can't be called on this processor")
}
