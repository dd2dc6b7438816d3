package numbers

import (
	_ "embed"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/internal/testsize"
)

//go:embed testdata/work.py
var workOfPython []byte

// TestGdbGivesTheSameVariablesOfPrograms: at random instructions of programs that are in use, too.
func TestGdbGivesTheSameVariablesOfPrograms(t *testing.T) {
	seed := testprog.Seed(t, 20261129)
	dir := t.TempDir()
	script := filepath.Join(dir, "work.py")
	if err := os.WriteFile(script, workOfPython, 0o600); err != nil {
		t.Fatal(err)
	}
	var all locals
	for i, x := range []struct{ bin, arguments, module, often string }{
		{"/usr/bin/python3", "-S " + script, "python3.11", "PyObject_Malloc PyDict_SetItem PyTuple_New _Py_CheckFunctionResult"},
	} {
		l := &looking{T: t, locals: &all, what: fmt.Sprintf("GOKPROBE_SEED=%d %s", seed, x.bin), arguments: x.arguments}
		l.choose = func() visit {
			return l.somewhere(rand.New(rand.NewPCG(seed, uint64(i))), x.module, strings.Fields(x.often), testsize.Rounds(400, 800, 10000))
		}
		l.run(x.bin)
	}
	t.Log(&all)
}

// somewhere is a visit of so many places of a module: behind calls of functions that are called often, and of some that may be.
func (l *looking) somewhere(r *rand.Rand, module string, often []string, stops int) visit {
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
