package numbers

import (
	_ "embed"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/expr/values"
	"github.com/gokprobe/gokprobe/internal/godelve"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/internal/testsize"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/symbols"
)

//go:embed testdata/keys.go.txt
var keysGo string

// told is an expression, and what the program itself says that it is.
type told struct{ expr, want string }

func listed(p *testprog.Prog) (all []told) {
	p.Send("list")
	for line := p.Line(); line != "done"; line = p.Line() {
		expr, want, _ := strings.Cut(strings.TrimPrefix(line, "v "), "\t")
		all = append(all, told{expr, want})
	}
	return all
}

// TestEntriesOfMapsAndWhatInterfacesHold: the program and Delve say the same as we.
func TestEntriesOfMapsAndWhatInterfacesHold(t *testing.T) {
	x := maker{name: "go", levels: [][]string{{}}, suffix: ".go"}
	bin := x.compile(t, nil, keysGo)
	p := testprog.Start(t, bin)
	all := listed(p)
	s, err := kprobes.Attach(t.Context(), p.PID(), kprobes.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := &keyCheck{T: t, pid: p.PID(), all: all}
	if err := s.RegisterKprobe(&kprobes.Kprobe{SymbolName: "main.handle", PreHandler: c.hit}); err != nil {
		t.Fatal(err)
	}
	p.Do("go", "done")
	if c.n < 500 || c.byDelve < 350 || c.byDelve+c.alike < 490 {
		t.Errorf("%d expressions, %d by Delve", c.n, c.byDelve)
	}
	t.Logf("%d expressions, %v each; %d have a value by Delve and %d neither, loaded in %v, %v each, an entry of 1000 texts in %v, by us in %v; torn: %d reads, %d bytes at most", c.n, c.ours/time.Duration(c.n), c.byDelve, c.alike, c.loaded, c.delve/time.Duration(c.n), c.entry, c.own, c.most, c.size)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	p.CheckClean()
	p.Quit()
}

type keyCheck struct {
	*testing.T
	pid                             int
	all                             []told
	n, byDelve, alike, most, size   int
	ours, delve, loaded, entry, own time.Duration
}

func (c *keyCheck) hit(k *kprobes.Kprobe, r *kprobes.Regs) int {
	e, err := godelve.Load(c.Context(), fmt.Sprintf("/proc/%d/exe", c.pid), c.pid, 0)
	if err != nil {
		c.Error(err)
		return 0
	}
	c.loaded = e.Took
	for _, x := range c.all {
		param, ok := c.param(r.Symbols(), k.Addr, x)
		if !ok {
			continue
		}
		c.n++
		begun := time.Now()
		got := param.Value(r, r).Text
		mine := time.Since(begun)
		c.ours += mine
		if got != x.want {
			c.Errorf("%s is %s, and the program says %s: %v", x.expr, got, x.want, param.Value(r, r).Err)
		}
		begun = time.Now()
		by, _, err := e.Eval(r, x.expr)
		took := time.Since(begun)
		if c.delve += took; x.expr == `main.all.S.Big["500"]` {
			c.entry, c.own = took, mine
		}
		if err != nil {
			if got == "?" {
				c.alike++ // it has none either
			}
			continue
		}
		c.byDelve++
		if by != got && got != "?" {
			c.Errorf("%s is %s, and Delve says %s", x.expr, got, by)
		}
		for seed := range uint64(testsize.Rounds(0, 2, 100)) {
			m := &torn{Memory: r, rnd: rand.New(rand.NewPCG(seed, 5))}
			param.Value(r, m)
			c.most, c.size = max(c.most, m.reads), max(c.size, m.size)
		}
	}
	for seed := range uint64(testsize.Rounds(10, 200, 5000)) {
		m := &torn{Memory: r, rnd: rand.New(rand.NewPCG(seed, 7))}
		_, _, _ = e.Eval(tornThread{r, m}, c.all[m.rnd.IntN(len(c.all))].expr)
		c.most, c.size = max(c.most, m.reads), max(c.size, m.size)
	}
	if c.most > 1200 || c.size > 4<<20 {
		c.Errorf("an entry takes %d reads or %d bytes", c.most, c.size)
	}
	return 0
}

// param is what an expression means where the function is entered.
func (c *keyCheck) param(table *symbols.Table, at arch.Addr, x told) (symbols.Param, bool) {
	v, err := values.Wish{Args: []string{x.expr}, Whole: true, AsInSource: true, Inside: true}.At(table, values.Place{Addr: at})
	switch {
	case err == nil && len(v.Wholes) == 1:
		return v.Wholes[0], true
	case x.want != "?": // the text alone may tell that there is no such value
		c.Errorf("%s: %v", x.expr, err)
	}
	return symbols.Param{}, false
}

// TestConditionsOnEntries: threads stop for what only they can read, with and without names of their own.
func TestConditionsOnEntries(t *testing.T) {
	x := maker{name: "go", levels: [][]string{{}}, suffix: ".go"}
	bin := x.compile(t, nil, keysGo)
	p := testprog.Start(t, bin)
	var all [][2]string
	rnd := rand.New(rand.NewPCG(3, 3))
	for _, x := range listed(p) {
		if rnd.IntN(12) == 0 && !strings.HasPrefix(x.expr, "len(") {
			all = append(all, [2]string{x.expr, x.want})
		}
	}
	p.Quit()
	hold, fail := conditionsOf(all)
	hold = append(hold, `err.(*main.MyErr).Code == 404 && len(a.S.Big) == 1000 && (n == 1 || m["l"] == 2)`, `(a.Err.(*MyErr).Code >= 404)`, `a.F64.Small[0.1] == 1`, `m["k"] & 6`, `a.Box["err"].Why == "why"`, `a.Err.Code == 404 && a.S.Texts["1"] == "text 1"`, `a.I.Big[500] == 3500`, `a.T.Texts["] \"=}:1"] == "text 1"`, `a.B.Small[true] == 1`)
	fail = append(fail, `a.Err.Code == "404"`, `a.S.Texts["x"] == ""`, `a.S.Texts["x"] != ""`)
	walk(t, bin, "main.handle", all, hold, fail, false)
	walk(t, bin, "main.handle", byDelve, nil, nil, false)
}

// byDelve are expressions that only Delve evaluates, and what they are.
var byDelve = [][2]string{
	{"go:a.Pair.First * 2 + len(a.S.Big)", "1010"}, {"n", "1"}, {`go:a.I.Big[-999]`, "6993"}, {"go:a.Rows[\"r\"][len(a.Rows[\"r\"])-1]", `map[int8]string{-3: "row"}`}, {`go:labels["who"]`, `"tester"`},
	{"go:labels", `map[string]string{"what": "maps", "who": "tester"}`}, {"a.Pair.First", "5"}, {`go:labels["nobody"]`, "?"}, {"go:ancestors", "?"}, {"go:runtime.curg.goid == 1", "true"},
	{"go:a.S.Big[\"x\"]", "?"}, {"go:a.Err.(*main.MyErr).Code + 1", "405"}, {"go:*a.P", `map[string]int{"k": 6}`}, {"go:nothing", "?"}, {"go:a.Pair", `main.Pair[int,string]{First: 5, Second: "x"}`},
	{"go:cap(a.Ch) - len(a.Ch)", "1"}, {"go:a.Any", "int(42)"}, {"go:a.NilErr", "nil"},
}

// tornThread is a thread whose memory is another one at each read.
type tornThread struct {
	*kprobes.Regs
	*torn
}

func (t tornThread) ReadMemory(at arch.Addr, p []byte) error { return t.torn.ReadMemory(at, p) }

func (t tornThread) WriteMemory(at arch.Addr, p []byte) error { return t.torn.WriteMemory(at, p) }
