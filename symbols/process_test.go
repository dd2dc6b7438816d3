package symbols

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

func TestRefreshFollowsDlopenDlcloseAndExec(t *testing.T) {
	lib := build(t, "plugin.c", "-shared", "-fPIC")
	tg := start(t, build(t, "loader.c", "-ldl"))
	tab := tg.open(t)
	if _, err := tab.Resolve(t.Context(), "plugin_entry"); !errors.Is(err, ErrUnknownSymbol) {
		t.Fatalf("before dlopen: %v", err)
	}
	libc := one(t, tab, "libc:malloc")

	tg.tell(t, "open "+lib, "done")
	if err := tab.Refresh(); err != nil {
		t.Fatal(err)
	}
	loc := one(t, tab, "plugin_entry")
	if loc.Addr != tg.said["plugin_entry"] || loc.Symbol.Module.Path != lib || loc.Symbol.Module.Kind != KindLibrary {
		t.Errorf("plugin_entry is %+v, the program says %v", loc, tg.said["plugin_entry"])
	}
	if again := one(t, tab, "libc:malloc"); again.Symbol.Module.img != libc.Symbol.Module.img {
		t.Error("an unchanged library was opened again")
	}

	tg.tell(t, "close", "done")
	if err := tab.Refresh(); err != nil {
		t.Fatal(err)
	}
	if _, ok := tab.Lookup(loc.Addr); ok {
		t.Error("the unloaded library's code is still known")
	}

	prog := build(t, "names.c")
	tg.tell(t, "exec "+prog, "ready")
	if err := tab.Refresh(); err != nil {
		t.Fatal(err)
	}
	if got := one(t, tab, "visible"); got.Addr != tg.said["visible"] || got.Symbol.Module.Kind != KindExecutable {
		t.Errorf("after exec visible is %+v, the program says %v", got, tg.said["visible"])
	}
}

func TestCodeMovedToAnonymousMemoryKeepsItsNames(t *testing.T) {
	lib := build(t, "plugin.c", "-shared", "-fPIC")
	tg := start(t, build(t, "loader.c", "-ldl"))
	tg.tell(t, "open "+lib, "done")
	tg.tell(t, "remap", "done")
	tab := tg.open(t)
	if loc := one(t, tab, "plugin_entry"); loc.Addr != tg.said["plugin_entry"] {
		t.Errorf("plugin_entry is %v, the program says %v", loc.Addr, tg.said["plugin_entry"])
	}
	if loc, ok := tab.Lookup(tg.said["plugin_entry"] + 1); !ok || loc.String() != "plugin_entry+0x1" {
		t.Errorf("Lookup = %v, %v", loc, ok)
	}
}

func TestASecondMappingOfCodeLeavesNamesUnique(t *testing.T) {
	lib := build(t, "plugin.c", "-shared", "-fPIC")
	tg := start(t, build(t, "loader.c", "-ldl"))
	tg.tell(t, "open "+lib, "done")
	tg.tell(t, "copy "+lib, "done")
	tab := tg.open(t)
	loc := one(t, tab, "plugin_entry")
	if loc.Addr != tg.said["plugin_entry"] {
		t.Errorf("plugin_entry is %v, the program says %v", loc.Addr, tg.said["plugin_entry"])
	}
	copied := tg.said["copy"] + (loc.Addr & 4095)
	if back, ok := tab.Lookup(copied); !ok || back.Symbol.Name != "plugin_entry" || back.Symbol.Module.Kind != KindCopy {
		t.Errorf("Lookup(%v) = %+v, %v", copied, back, ok)
	}
}

func TestLocalFunctionsOfOneNameInTwoModulesAreAmbiguous(t *testing.T) {
	lib := build(t, "plugin.c", "-shared", "-fPIC", "-g")
	prog := build(t, "loader.c", "-ldl", "-g")
	tg := start(t, prog)
	tg.tell(t, "open "+lib, "done")
	tab := tg.open(t)
	_, err := tab.Resolve(t.Context(), "shared_name")
	var many *AmbiguousError
	if !errors.As(err, &many) || len(many.Candidates) != 2 || !errors.Is(err, unix.EADDRNOTAVAIL) {
		t.Fatalf("shared_name: %v", err)
	}
	for _, s := range []string{"loader.c:12", "plugin.c:3", "module:name", prog + ":shared_name", lib + ":shared_name"} {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%q does not say %q", err, s)
		}
	}
	for _, m := range []string{prog, lib} {
		if loc := one(t, tab, m+":shared_name"); loc.Symbol.Module.Path != m {
			t.Errorf("%s:shared_name is in %s", m, loc.Symbol.Module.Path)
		}
	}
}

func TestAnInterposedFunctionIsTheOneThatCallsReach(t *testing.T) {
	lib := build(t, "plugin.c", "-shared", "-fPIC")
	cmd := exec.Command(build(t, "names.c"))
	cmd.Env = append(os.Environ(), "LD_PRELOAD="+lib)
	tg := startCmd(t, cmd)
	tab := tg.open(t)
	loc := one(t, tab, "malloc")
	if loc.Symbol.Module.Path != lib || loc.Addr != tg.said["malloc"] {
		t.Errorf("malloc is %v in %s, the program says %v", loc.Addr, loc.Symbol.Module.Path, tg.said["malloc"])
	}
	if own := one(t, tab, "libc:malloc"); own.Addr == loc.Addr {
		t.Error("libc:malloc is not libc's own")
	}
}

func TestAnIndirectFunctionThatNobodyCallsIsAnError(t *testing.T) {
	tab := start(t, build(t, "names.c", "-O1", "-Wl,-z,now")).open(t)
	found := false
	for _, s := range tab.Symbols("libc.so.6:*") {
		if !s.IFunc {
			continue
		}
		_, err := tab.Resolve(t.Context(), "libc.so.6:"+s.Name)
		if errors.Is(err, ErrIFuncUnbound) {
			found = true
			if !strings.Contains(err.Error(), "has not bound "+s.Name) {
				t.Errorf("%s: %v", s.Name, err)
			}
		} else if err != nil {
			t.Errorf("%s: %v", s.Name, err)
		}
	}
	if !found {
		t.Skip("libc binds all of its indirect functions itself")
	}
}

// A target in another mount namespace or under chroot names files that do not
// exist for us.
func TestFilesAreOpenedInTheTargetsRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("chroot and mount need root")
	}
	testprog.Need(t, "unshare", "mount")
	prog := build(t, "names.c", "-static-pie", "-fPIE")
	dir := filepath.Dir(prog)
	chrooted := exec.Command("/prog")
	chrooted.Path, chrooted.Err, chrooted.Dir = "/prog", nil, "/"
	chrooted.SysProcAttr = &unix.SysProcAttr{Chroot: dir}
	mounted := exec.Command("unshare", "-m", "sh", "-c", "mount --bind "+dir+" /mnt && exec /mnt/prog")
	for _, cmd := range []*exec.Cmd{chrooted, mounted} {
		tg := startCmd(t, cmd)
		loc := one(t, tg.open(t), "prog:visible")
		if loc.Addr != tg.said["visible"] || loc.Symbol.Source != SourceSymtab {
			t.Errorf("%v: visible is %+v, the program says %v", cmd.Args, loc, tg.said["visible"])
		}
	}
}

func TestALibraryIsReadableFromMemoryAlone(t *testing.T) {
	tab := start(t, build(t, "names.c")).open(t)
	libc := one(t, tab, "libc:malloc").Symbol.Module
	img, err := tab.imageInMemory(libc.addr(0), 1<<30, libc.Path, false)
	if err != nil {
		t.Fatal(err)
	}
	if img.buildID != libc.BuildID {
		t.Errorf("build ID is %s, want %s", img.buildID, libc.BuildID)
	}
	have := map[string]uint64{}
	st := newSymtab()
	img.addDynamicSegment(st)
	for i := range st.entries {
		if !st.entries[i].isOld {
			have[st.linkage(&st.entries[i])] = st.entries[i].value
		}
	}
	n := 0
	for i := range libc.symbols().entries {
		e := &libc.symbols().entries[i]
		name := libc.symbols().linkage(e)
		if libc.symbols().blobs[e.blob].source != SourceDynsym || e.isOld {
			continue
		}
		if n++; have[name] != e.value && !strings.HasPrefix(name, "__") {
			t.Errorf("%s is at %#x in memory, at %#x in the file", name, have[name], e.value)
		}
	}
	if n < 1000 {
		t.Errorf("only %d symbols compared", n)
	}
	if f := img.frame(libc.link(one(t, tab, "libc:malloc").Addr)); f == nil {
		t.Error("no frame information for malloc")
	}
}

func TestModulesAreListedInSearchOrder(t *testing.T) {
	tab := start(t, build(t, "names.c", "-Wl,--no-as-needed", "-lm")).open(t)
	var kinds []string
	for _, m := range tab.Modules() {
		if m.Err != nil {
			t.Errorf("%s: %v", m.Path, m.Err)
		}
		kinds = append(kinds, string(m.Kind))
	}
	if got := strings.Join(kinds, " "); got != "executable library library interpreter vdso" {
		t.Errorf("modules are %s", got)
	}
	if m := tab.Modules(); !strings.HasPrefix(m[1].Name, "libm") || !strings.HasPrefix(m[2].Name, "libc") {
		t.Errorf("libraries are %s, %s", m[1].Name, m[2].Name)
	}
}

func TestAVariableIsFoundByName(t *testing.T) {
	tab := start(t, build(t, "names.c")).open(t)
	sym, err := tab.Object("counter")
	if err != nil || sym.Func || sym.Size != 4 {
		t.Errorf("counter is %+v, %v", sym, err)
	}
	var b [4]byte
	if err := tab.mem.ReadMemory(sym.Addr, b[:]); err != nil || b[0] != 1 {
		t.Errorf("counter holds %v, %v", b, err)
	}
	if _, err := tab.Object("visible"); !errors.Is(err, ErrUnknownSymbol) {
		t.Errorf("visible: %v", err)
	}
}

// Debian's redis-server is a link to redis-check-rdb; programs rewrite argv[0].
func TestTheExecutableIsAlsoFoundByTheNameItRunsAs(t *testing.T) {
	prog := build(t, "names.c")
	link := filepath.Join(filepath.Dir(prog), "names-server")
	if err := os.Symlink(prog, link); err != nil {
		t.Fatal(err)
	}
	linked := exec.Command(link) // comm is the link's name, argv[0] another
	linked.Args[0] = "/opt/other/names-master: waiting for /end/of/input"
	login := exec.Command(prog)
	login.Args[0] = "-login"
	libc := exec.Command(prog) // a library's own name goes first
	libc.Args[0] = "libc.so.6"
	for _, c := range []struct {
		cmd   *exec.Cmd
		names []string
	}{{linked, []string{"prog", "names-server", "names-master"}}, {login, []string{"prog", "login"}}, {libc, []string{"prog"}}} {
		tg := startCmd(t, c.cmd)
		tab := tg.open(t)
		for _, name := range c.names {
			if loc := one(t, tab, name+":visible"); loc.Addr != tg.said["visible"] || loc.Symbol.Module.Kind != KindExecutable {
				t.Errorf("%s:visible is %+v, the program says %v", name, loc, tg.said["visible"])
			}
		}
		if loc := one(t, tab, "libc.so.6:malloc"); loc.Symbol.Module.Kind != KindLibrary {
			t.Errorf("libc.so.6:malloc is in %s", loc.Symbol.Module.Path)
		}
	}
}

func TestAnUnknownModuleIsAnsweredByTheMappedOnes(t *testing.T) {
	tab := start(t, build(t, "names.c")).open(t)
	for spec, says := range map[string]string{
		"nothing-like-it:foo": `unknown module: "nothing-like-it"; the process has prog, `,
		"progg:foo":           "did you mean prog",
	} {
		_, err := tab.Resolve(t.Context(), spec)
		if !errors.Is(err, ErrUnknownModule) || !strings.Contains(fmt.Sprint(err), says) {
			t.Errorf("%s: %v, want %q", spec, err, says)
		}
	}
}
