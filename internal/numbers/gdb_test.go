package numbers

import (
	"bufio"
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/expr/fetch"
	"github.com/gokprobe/gokprobe/expr/values"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/internal/testsize"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/symbols"
)

//go:embed testdata/values.py
var gdbValues []byte

// gdbReadsResults are the suffixes of the languages whose results gdb reads: it takes the convention of C for those of Go and Rust, too.
var gdbReadsResults = []string{".c", ".cc"}

// gdbLooksAtEntries are the compilers whose optimized code gdb looks at where we do. Their debug information is true there, but for places in
// the frame. Behind it, code of the first statement may run before the frame is filled.
var gdbLooksAtEntries = []string{"gcc", "g++", "go"}

// exception is a value of which gdb and we may differ, and why gdb is wrong.
type exception struct {
	compilers []string
	values    *regexp.Regexp // ask.Key
	why       string
}

// exceptions are of optimized code.
var exceptions = []exception{
	{[]string{"go"}, regexp.MustCompile(`\(main\.s\d`),
		"Go's compiler tells where the members of a structure are, but not the padding, and gdb puts them one behind the other"},
	{[]string{"rustc"}, regexp.MustCompile(`\(Option<|\(E\d|\(S\d`),
		"gdb chooses the member of an enumeration by bytes that are optimized out, as if they were zero"},
}

// Gdb, asked for parameters and results of the same calls in the same process, gives the values that we give, or one of the two says that it
// is not known. We read parameters at a function's first instruction, by the calling convention. Gdb reads them by debug information, which
// is not true there without optimization, nor in what LLVM has optimized: it names places in the frame that are not filled yet. There
// gdb looks where the first statement begins, at the address that FILE:LINE gives us. The programs change no parameter.
func TestGdbGivesTheSameValues(t *testing.T) {
	seed := testprog.Seed(t, 5577006791947779410)
	functions := testsize.Rounds(5, 25, 250) // of 22 programs
	var all agreement
	for i, m := range makers {
		for j, flags := range m.levels {
			source, funcs := m.program(rand.New(rand.NewPCG(seed, uint64(100*i+j))), functions)
			p := &pair{T: t, agreement: &all, maker: m, optimized: j > 0, what: fmt.Sprintf("GOKPROBE_SEED=%d %s %v", seed, m.name, flags)}
			p.run(m.compile(t, flags, source), source, funcs)
		}
	}
	t.Logf("of %d signatures, %d values are the same; gdb does not know %d, we do not know %d, neither knows %d; %d exceptions",
		all.signatures, all.same, all.ours, all.gdbs, all.neither, all.excepted)
	if least := testsize.Rounds(90, 500, 5000); all.signatures < least || all.same < 2*least {
		t.Errorf("%d values of %d signatures were compared", all.same, all.signatures)
	}
}

// agreement counts signatures, and values: those that both give, one, or none.
type agreement struct{ signatures, same, ours, gdbs, neither, excepted int }

// ask is a value that both are asked for.
type ask struct {
	Key    string   `json:"key"`
	Root   string   `json:"root"`   // the parameter, or $retval
	Steps  []string `json:"steps"`  // members' names from there
	Number bool     `json:"number"` // as -arg has it, not -args
}

// call is a function that is called once.
type call struct {
	Name    string    `json:"name"`
	At      arch.Addr `json:"at"`    // where gdb looks
	First   bool      `json:"first"` // and this is the first instruction
	Returns bool      `json:"returns"`
	Asks    []ask     `json:"asks"`
	ours    map[string]said
	gdbs    map[string]said
}

// said is what one of the two says of a value.
type said struct {
	Value any
	Why   string // it is not known
}

// pair is a process that we look at, and then gdb.
type pair struct {
	*testing.T
	*agreement
	maker
	optimized bool
	what      string
}

func (p *pair) run(bin, source string, funcs []function) {
	prog := testprog.Start(p.T, bin)
	s, err := kprobes.Attach(p.Context(), prog.PID(), kprobes.Options{})
	if err != nil {
		p.Fatal(err)
	}
	var calls []*call
	for i := range funcs {
		if c := p.probe(s, &funcs[i]); c != nil {
			if c.First = p.optimized && slices.Contains(gdbLooksAtEntries, p.name); !c.First {
				c.At = p.statement(s, c.At, source, i)
			}
			calls = append(calls, c)
		}
	}
	s.WaitForOptimizer(p.Context())
	prog.Do("go", "done")
	if err := s.Close(); err != nil {
		p.Error(err)
	}
	p.askGdb(prog, calls)
	for _, c := range calls {
		p.compare(c)
	}
	prog.CheckClean()
	prog.Quit()
}

// statement is the first place in function i that a line of its body leads to: of its first statement, which no other function has, or where
// that has become code of the library, one of the next.
func (p *pair) statement(s *kprobes.Session, entry arch.Addr, source string, i int) arch.Addr {
	f, _ := s.Symbols().Function(entry)
	at := regexp.MustCompile(fmt.Sprintf(`(?i)\n\tsink( \+= |\.fetch_add\()%d\b`, i+1)).FindStringIndex(source)[0]
	first := strings.Count(source[:at], "\n") + 2
	for n := range strings.Count(source[at:at+strings.Index(source[at:], "\n}\n")], "\n") + 1 {
		found, _ := s.Symbols().Resolve(p.Context(), fmt.Sprintf("random%s:%d", p.suffix, first+n))
		found = slices.DeleteFunc(found, func(l symbols.Location) bool { return l.Addr < f.Start || l.Addr >= f.End })
		if len(found) > 0 {
			return slices.MinFunc(found, func(a, b symbols.Location) int { return cmp.Compare(a.Addr, b.Addr) }).Addr
		}
	}
	p.Fatalf("%s: no line of function %d has code at %#x", p.what, i, entry)
	return 0
}

// probe has our values of f's one call kept. It is nil if there is no such function: a copy took its place.
func (p *pair) probe(s *kprobes.Session, f *function) *call {
	table := s.Symbols()
	found, err := table.Resolve(p.Context(), f.name)
	if err != nil || len(found) != 1 {
		return nil
	}
	at := found[0].Addr
	params, err := table.Params(at)
	if err != nil {
		return nil
	}
	results, _ := table.Results(at)
	c := &call{Name: f.name, At: at, Asks: []ask{}, ours: map[string]said{}, gdbs: map[string]said{}}
	c.Returns = len(results) == 1 && f.result != nil && slices.Contains(gdbReadsResults, p.suffix)
	var looks []func(*kprobes.Regs)
	for _, known := range f.params {
		if i := slices.IndexFunc(params, func(q symbols.Param) bool { return q.Name == known.name }); i >= 0 {
			looks = append(looks, p.asks(c, table, at, known.name, known.value, params[i]))
		}
	}
	if err := s.RegisterKprobe(&kprobes.Kprobe{Addr: at, PreHandler: func(_ *kprobes.Kprobe, regs *kprobes.Regs) int {
		for _, look := range looks {
			look(regs)
		}
		return 0
	}}); err != nil {
		p.Fatalf("%s: %s: %v", p.what, f.name, err)
	}
	if !c.Returns {
		return c
	}
	look := p.asks(c, table, at, "$retval", f.result.value, results[0])
	if err := s.RegisterKretprobe(&kprobes.Kretprobe{KP: kprobes.Kprobe{Addr: at}, Handler: func(_ *kprobes.KretprobeInstance, regs *kprobes.Regs) int {
		look(regs)
		return 0
	}}); err != nil {
		p.Fatalf("%s: %s's return: %v", p.what, f.name, err)
	}
	return c
}

// asks adds to c the values in a parameter or result q, and returns what has ours kept: as -args or the result shows q, and each
// leaf of it as -arg does.
func (p *pair) asks(c *call, table *symbols.Table, at arch.Addr, root string, v value, q symbols.Param) func(*kprobes.Regs) {
	key := root + " (" + q.Type + ")"
	c.Asks = append(c.Asks, ask{Key: key, Root: root, Steps: []string{}})
	looks := []func(*kprobes.Regs){func(regs *kprobes.Regs) {
		shown := q.Value(regs, regs)
		c.ours[key] = said{Value: shown.JSON}
		if shown.Err != nil {
			c.ours[key] = said{Why: shown.Err.Error()}
		}
	}}
	for _, path := range slices.Sorted(maps.Keys(v.leaves)) {
		key, arg := "-arg "+root+path, "a="+root+path
		if _, ok := v.leaves[path].(string); ok {
			arg += ":string"
		}
		if strings.HasPrefix(path, ".") { // of the structure itself, not of one that it points to
			key += " in (" + q.Type + ")"
		}
		steps := strings.FieldsFunc(path, func(r rune) bool { return strings.ContainsRune("->.", r) })
		c.Asks = append(c.Asks, ask{Key: key, Root: root, Steps: append([]string{}, steps...), Number: true})
		w, err := values.Wish{Args: []string{arg}, Return: root == "$retval"}.At(table, values.Place{Addr: at})
		if err != nil {
			c.ours[key] = said{Why: err.Error()}
			continue
		}
		looks = append(looks, func(regs *kprobes.Regs) {
			payload, err := w.Layout.Run(regs, regs, nil)
			if err != nil {
				p.Error(err)
			}
			c.ours[key] = said{Value: shown(w.Args[0].Type, w.Layout.Decode(payload, fetch.Host{})[0])}
		})
	}
	return func(regs *kprobes.Regs) {
		for _, look := range looks {
			look(regs)
		}
	}
}

// askGdb has gdb attach to the process, and look at the same calls.
func (p *pair) askGdb(prog *testprog.Prog, calls []*call) {
	dir := p.TempDir()
	script, job, answers := filepath.Join(dir, "values.py"), filepath.Join(dir, "job"), filepath.Join(dir, "answers")
	text, err := json.Marshal(map[string]any{"functions": calls, "answers": answers})
	if err != nil {
		p.Fatal(err)
	}
	for name, b := range map[string][]byte{script: gdbValues, job: text} {
		if err := os.WriteFile(name, b, 0o600); err != nil {
			p.Fatal(err)
		}
	}
	gdb := exec.Command("gdb", "-nx", "-batch", "-iex", "set auto-load off", "-iex", "set debuginfod enabled off", "-p", fmt.Sprint(prog.PID()), "-x", script)
	gdb.Env = append(os.Environ(), "GDB_JOB="+job)
	var errs strings.Builder
	gdb.Stderr = &errs
	out, err := gdb.StdoutPipe()
	if err != nil {
		p.Fatal(err)
	}
	if err := gdb.Start(); err != nil {
		p.Fatal(err)
	}
	told := false
	for lines := bufio.NewScanner(out); lines.Scan(); {
		switch lines.Text() {
		case "armed":
			prog.Do("go", "done")
			if err := prog.Signal(syscall.SIGUSR1); err != nil { // gdb keeps it: it says that this is all
				p.Error(err)
			}
		case "told":
			told = true
		}
	}
	if err := gdb.Wait(); err != nil || !told {
		p.Fatalf("%s: gdb has not told everything: %v\n%s", p.what, err, &errs)
	}
	p.read(answers, calls)
}

// read reads what gdb has said.
func (p *pair) read(answers string, calls []*call) {
	f, err := os.Open(answers)
	if err != nil {
		p.Fatal(err)
	}
	defer f.Close()
	d := json.NewDecoder(f)
	d.UseNumber()
	for d.More() {
		var a struct {
			Function string
			Values   map[string]said
		}
		if err := d.Decode(&a); err != nil {
			p.Fatal(err)
		}
		i := slices.IndexFunc(calls, func(c *call) bool { return c.Name == a.Function })
		maps.Copy(calls[i].gdbs, a.Values)
	}
}

// compare compares value by value.
func (p *pair) compare(c *call) {
	if len(c.gdbs) > 0 || len(c.Asks) == 0 {
		p.signatures++
	}
	for _, a := range c.Asks {
		ours, weSay := c.ours[a.Key]
		gdbs, gdbSays := c.gdbs[a.Key]
		weKnow, gdbKnows := weSay && ours.Why == "", gdbSays && gdbs.Why == ""
		switch {
		case weKnow && gdbKnows:
			switch {
			case same(decoded(p.T, ours.Value), gdbs.Value):
				p.same++
			case p.excepts(a.Key):
				p.excepted++
			default:
				p.Errorf("%s: %s: %s is %s, and to gdb %s", p.what, c.Name, a.Key, asJSON(ours.Value), asJSON(gdbs.Value))
			}
		case weKnow:
			p.ours++
		case gdbKnows:
			p.gdbs++
		default:
			p.neither++
		}
	}
}

func (p *pair) excepts(key string) bool {
	return p.optimized && slices.ContainsFunc(exceptions, func(e exception) bool { return slices.Contains(e.compilers, p.name) && e.values.MatchString(key) })
}

// decoded is a value as it is when it comes from JSON.
func decoded(t *testing.T, v any) (out any) {
	d := json.NewDecoder(strings.NewReader(asJSON(v)))
	d.UseNumber()
	if err := d.Decode(&out); err != nil {
		t.Error(err)
	}
	return out
}

// same compares what we show with what gdb says, as far as each knows it.
func same(ours, gdbs any) bool { return likeness{}.same(ours, gdbs) }

func rational(n json.Number) *big.Rat {
	r, _ := new(big.Rat).SetString(n.String())
	return r
}
