package numbers

import (
	_ "embed"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/internal/testsize"
)

//go:embed testdata/work.py
var workOfPython []byte

// inPrograms is where gdb and we differ.
var inPrograms = []difference{
	{regexp.MustCompile(`not known: (value has been )?optimized out$`),
		"gdb does not know what a function was called with where the call's entry in the debug information does not name the function; we read it in the instruction"},
	{regexp.MustCompile(`PyArena = "not known: its type is not understood|ctx_->\w+ .* = "not known: step 1: not a pointer to a structure`),
		"gdb looks for a structure that a file only declares in others, by its name; in another program two may be called so"},
	{regexp.MustCompile(`(PyInterpreterState|arena_map_bot_t|arena_coverage_t \[16384\]|struct type_cache|struct type_cache_entry \[4096\]) = "not known.*how the value is passed`),
		"we show nothing of values of more than 64 KiB"},
	{regexp.MustCompile(` char \[\] = "not known`), "gdb shows an array whose end is not told as a text"},
}

// TestGdbGivesTheSameVariablesOfPrograms: at random instructions of programs that are in use, too.
func TestGdbGivesTheSameVariablesOfPrograms(t *testing.T) {
	seed := testprog.Seed(t, 20261129)
	dir := t.TempDir()
	script := filepath.Join(dir, "work.py")
	if err := os.WriteFile(script, workOfPython, 0o600); err != nil {
		t.Fatal(err)
	}
	var all locals
	for i, x := range []struct{ bin, arguments, often string }{
		{"/usr/bin/python3", "-S " + script, "PyObject_Malloc PyDict_SetItem PyTuple_New _Py_CheckFunctionResult"},
	} {
		l := &looking{T: t, locals: &all, what: fmt.Sprintf("GOKPROBE_SEED=%d %s", seed, x.bin), arguments: x.arguments, differences: inPrograms}
		l.choose = func() visit {
			return l.somewhere(rand.New(rand.NewPCG(seed, uint64(i))), strings.Fields(x.often), testsize.Rounds(150, 250, 10000))
		}
		l.run(x.bin)
	}
	t.Log(&all)
	if least := testsize.Rounds(200, 400, 10000); all.same < least || all.reached < least {
		t.Errorf("%d values were compared, and %d that are reached from them", all.same, all.reached)
	}
}

// somewhere is a visit of so many places of the program: behind calls of functions that are called often, and of some that may be.
func (l *looking) somewhere(r *rand.Rand, often []string, stops int) visit {
	module := filepath.Base(l.table.Modules()[0].Path)
	found, err := l.table.Resolve(l.Context(), module+":*")
	if err != nil {
		l.Fatal(err)
	}
	r.Shuffle(len(found), func(i, j int) { found[i], found[j] = found[j], found[i] })
	found = found[:min(len(found), stops/50)]
	for _, name := range often {
		more, err := l.table.Resolve(l.Context(), module+":"+name)
		if err != nil {
			l.Fatal(err)
		}
		found = append(found, more...)
	}
	v := visit{Walks: 10, Steps: 50, Stops: stops, Hits: stops/10/len(often) + 1, Skip: 200, Seed: r.Uint64()}
	for _, f := range found {
		v.Places = append(v.Places, f.Addr)
	}
	return v
}
