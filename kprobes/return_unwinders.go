package kprobes

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/symbols"
)

// Where return addresses may be replaced (return_rewrite.go), and who of the target must find true ones there.
//
// C++, Rust, pthread_cancel, pthread_exit and backtrace(3) begin to read a stack in a few functions. Each of them has a site, in whichever module it
// is. The thread's calls have their own addresses again before its first instruction. The library that has them is often loaded only when
// it is needed, and then its sites stand before any code of it runs.
//
// An unwinder that has no name can't be met so: then nothing is rewritten. Nor is it where a runtime reads the stacks of other threads, or in its own ways:
// Go's, Java's, .NET's, JavaScript's. What walks a chain of frame pointers to print it (a profiler, a sanitizer's report) names relays.

// refusal says why the process's return addresses stay, empty if they need not. It is found out once, and again when modules come.
func (rl *relays) refusal() string {
	if !rl.asked {
		rl.asked = true
		rl.why = rl.findRefusal()
	}
	return rl.why
}

func (rl *relays) findRefusal() string {
	d := rl.d
	defer d.look.anew()()
	on, err := d.look.surveyed().ShadowStack()
	switch {
	case host.Relays == nil:
		return "this architecture has no relays"
	case err != nil:
		return err.Error()
	case on:
		return "it has a shadow stack"
	case d.memory.private:
		return "it can't map memory"
	case d.linker.symbols().HasPrefix("runtime.sigtramp"):
		return "its runtime is Go's"
	case d.linker.unwatched || d.linker.blind != nil || d.linker.Brk != 0 && d.linker.linkerSite == nil:
		return "the libraries that it loads are not noticed"
	}
	for _, m := range d.linker.symbols().Modules() {
		if readsStacks(m) {
			return m.Name + " reads stacks in its own way"
		}
		if m.HidesUnwinder() && !slices.ContainsFunc(m.Text, func(r arch.Range) bool { return d.region.Contains(r.Start) }) {
			return m.Name + " may have an unwinder without a name"
		}
	}
	return rl.watchUnwinders(d.linker.symbols().Modules())
}

// readsStacks tells of runtimes that move, scan or patch stacks.
func readsStacks(m *symbols.Module) bool {
	for _, name := range []string{
		"libjvm.", "libj9vm", "libart.", "libcoreclr.", "libclrjit.", "libmonosgen", "libmono-", "libv8", "libnode.", "libmozjs",
		"libjavascriptcoregtk",
	} {
		if strings.HasPrefix(m.Name, name) {
			return true
		}
	}
	if m.Kind != symbols.KindExecutable {
		return false
	}
	programs := []string{"node", "nodejs", "deno", "bun", "d8", "chrome", "chromium", "electron", "firefox", "java", "dotnet", "mono", "beam.smp"}
	return slices.Contains(programs, m.Name)
}

// watchUnwinders makes sites of the unwinders in modules. It says what is in the way.
func (rl *relays) watchUnwinders(modules []*symbols.Module) string {
	for _, m := range modules {
		for _, at := range m.ReadersOfReturns() {
			if err := rl.watchUnwinder(at); err != nil {
				return fmt.Sprintf("its unwinder at %s can't be watched: %v", at, err)
			}
		}
	}
	return ""
}

func (rl *relays) watchUnwinder(entry arch.Addr) error {
	d := rl.d
	if _, err := d.look.codeMapping(entry); err != nil {
		return err
	}
	pad, err := d.look.landingPad(entry)
	if err != nil {
		return err
	}
	at := entry + pad
	st := d.siteAt(at)
	if st != nil && st.calls.unwinds {
		return nil
	}
	if st == nil {
		if st, err = d.makeSite(at); err != nil {
			return err
		}
		d.sites[at] = st
	}
	st.calls.unwinds = true
	if err := d.refresh(st); err != nil {
		st.calls.unwinds = false
		return errors.Join(err, d.settle([]*site{st}))
	}
	return nil
}

// modulesChanged comes before code of new modules runs.
func (rl *relays) modulesChanged() {
	if !rl.asked {
		return
	}
	if rl.asked = false; rl.refusal() == "" {
		return
	}
	rl.d.followed.noRelays()
	if rl.out > 0 {
		rl.d.followed.straighten(rl.d.followed.all(), func(*KretprobeInstance) bool { return false })
	}
}

// looksBack tells whether a function may use its own return address for more than to return: it keeps it for later (setjmp), returns twice
// (vfork), asks by it who has called (dlsym's RTLD_NEXT, a profiler's hooks), or is a part of an unwinder.
func (rl *relays) looksBack(st *site) bool {
	if st.calls.looksBack == nil {
		looks := rl.d.looksBack(st.addr)
		st.calls.looksBack = &looks
	}
	return *st.calls.looksBack
}

func (d *domain) looksBack(at arch.Addr) bool {
	loc, ok := d.linker.symbols().Lookup(at)
	if !ok || loc.Symbol.Module == nil {
		return false
	}
	name, library := strings.TrimLeft(loc.Symbol.Linkage, "_"), loc.Symbol.Module
	if strings.HasPrefix(library.Name, "libgcc_s") || strings.HasPrefix(library.Name, "libunwind") || library.Kind == symbols.KindInterpreter {
		return true
	}
	for _, part := range []string{
		"setjmp", "getcontext", "swapcontext", "vfork", "clone", "dlopen", "dlmopen", "dlsym", "dlvsym", "mcount", "fentry", "cyg_profile", "Unwind_", "unwind",
	} {
		if strings.Contains(name, part) {
			return true
		}
	}
	return strings.HasPrefix(name, "uw_") || strings.HasPrefix(name, "unw_") || strings.HasPrefix(name, "jump_fcontext") || strings.HasPrefix(name, "backtrace")
}
