package symbols

import (
	"os"
	"path/filepath"
	"testing"
)

// TestFunctionsThatOnlyDebugFrameHas: an object that was built without tables for unwinders, among others, as Go's code in programs that a C linker has made.
func TestFunctionsThatOnlyDebugFrameHas(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, source := range map[string]string{"k.c": "int k(int n)\n{\n\tint r = n * 3;\n\treturn r;\n}\n", "main.c": "int k(int);\nint main(void) { return k(2) - 6; }\n"} {
		if err := os.WriteFile(at(name), []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run(t, "gcc", "-g", "-O0", "-fno-asynchronous-unwind-tables", "-c", "-o", at("k.o"), at("k.c"))
	run(t, "gcc", "-g", "-O0", "-o", at("prog"), at("main.c"), at("k.o"))
	tab := file(t, at("prog"))
	k, start := one(t, tab, "k").Addr, one(t, tab, "main").Addr
	m := tab.module(k)
	if m.img.loadedFrame(m.link(k)) != nil || tab.Unwindable(k+1) || !tab.Unwindable(start+1) {
		t.Error("the program itself can unwind through it, or not through another one")
	}
	f := m.img.frame(m.link(k))
	if f == nil || f.Begin() != m.link(k) || m.img.row(m.link(k)+4) == nil {
		t.Fatalf("its entry is %v", f)
	}
	found, err := tab.Resolve(t.Context(), "k.c:4")
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	seen, err := tab.Variables(found[0].Addr)
	if err != nil || len(seen.Locals) != 1 || seen.Locals[0].place.isUnknown {
		t.Errorf("its variables are %+v, %v", seen, err)
	}
}
