package numbers

import (
	"bufio"
	"bytes"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/expr/arg"
	"github.com/gokprobe/gokprobe/expr/values"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/symbols"
)

//go:embed testdata/locals.py
var gdbLocals []byte

// locals counts the places where gdb has stopped, and values there.
type locals struct{ stops, same, ours, gdbs, neither, reached, excepted int }

func (l *locals) String() string {
	return fmt.Sprintf("%d stops: %d values are the same, and %d that are reached from them; gdb does not know %d, we do not know %d, neither knows %d; %d exceptions",
		l.stops, l.same, l.reached, l.ours, l.gdbs, l.neither, l.excepted)
}

func (l *locals) add(o locals) {
	l.stops, l.same, l.reached, l.excepted = l.stops+o.stops, l.same+o.same, l.reached+o.reached, l.excepted+o.excepted
	l.ours, l.gdbs, l.neither = l.ours+o.ours, l.gdbs+o.gdbs, l.neither+o.neither
}

// visit is what gdb is to do in a program.
type visit struct {
	Places []arch.Addr `json:"places"` // where it stops first
	Hits   int         `json:"hits"`   // of a place, before it is let go
	Skip   int         `json:"skip"`   // hits between two of them, on average
	// Walks says how often gdb goes on from a place by a random number of instructions, of Steps on average. At 0 it looks at the place itself.
	Walks int    `json:"walks"`
	Steps int    `json:"steps"`
	Stops int    `json:"stops"` // at most
	Seed  uint64 `json:"seed"`
}

// difference is what gdb and we may say otherwise of a value, and why.
type difference struct {
	what *regexp.Regexp // matches "NAME TYPE = OURS | GDBS" of the value
	why  string
}

// looking is a program that gdb runs, and we look at.
type looking struct {
	*testing.T
	*locals
	what        string
	arguments   string // of the program, as a shell reads them
	isGo        bool   // where gdb takes named results for parameters
	differences []difference
	choose      func() visit // once the program runs
	// With answer, gdb runs this script in the place of locals.py, and answer is what it is told behind each line of JSON.
	script []byte
	answer func(text []byte) (told any)
	table  *symbols.Table
	mem    arch.Memory
}

// stop is what gdb tells where it has stopped.
type stop struct {
	At        arch.Addr
	Function  string
	Registers struct {
		General map[string]uint64
		Vectors []string
	}
	Values map[string]opinion
	Paths  map[string]opinion
}

// opinion is what gdb says of a value.
type opinion struct {
	said
	Type  string
	Param bool
}

func (l *looking) run(bin string) {
	dir := l.TempDir()
	script := l.script
	if l.answer == nil {
		script = gdbLocals
	}
	for name, b := range map[string][]byte{"values.py": gdbValues, "locals.py": script} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			l.Fatal(err)
		}
	}
	gdb := exec.CommandContext(l.Context(), "gdb", "-nx", "-batch", "-iex", "set auto-load off", "-iex", "set debuginfod enabled off", "-iex", "set style enabled off",
		"-x", filepath.Join(dir, "values.py"), "-x", filepath.Join(dir, "locals.py"), bin)
	gdb.Env = append(os.Environ(), "GDB_ARGUMENTS="+l.arguments)
	var errs bytes.Buffer
	gdb.Stderr = &errs
	in, err1 := gdb.StdinPipe()
	out, err2 := gdb.StdoutPipe()
	if err1 != nil || err2 != nil {
		l.Fatal(err1, err2)
	}
	if err := gdb.Start(); err != nil {
		l.Fatal(err)
	}
	told := false
	for lines := bufio.NewReader(out); ; {
		text, err := lines.ReadBytes('\n')
		if err != nil {
			break
		}
		var pid int
		answer := "go on"
		switch n, _ := fmt.Sscanf(string(text), "pid %d", &pid); {
		case n == 1:
			l.open(pid)
			defer l.table.Close()
			if l.choose == nil {
				answer = asJSON(l.answer(nil))
			} else {
				answer = asJSON(l.choose())
			}
		case string(text) == "told\n":
			told = true
		case text[0] == '{' && l.answer != nil:
			answer = asJSON(l.answer(text))
		case text[0] == '{':
			l.look(text)
		default:
			continue
		}
		_, _ = io.WriteString(in, answer+"\n")
	}
	if err := gdb.Wait(); err != nil || !told {
		l.Fatalf("%s: gdb has not told everything: %v\n%s", l.what, err, &errs)
	}
}

func (l *looking) open(pid int) {
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { _ = mem.Close() })
	l.mem = fileMemory{mem}
	if l.table, err = symbols.Open(pid, l.mem); err != nil {
		l.Fatal(err)
	}
}

// look compares what gdb says with what we see.
func (l *looking) look(text []byte) {
	var s stop
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&s); err != nil {
		l.Fatalf("%v: %s", err, text)
	}
	regs := vectorRegs{Regs: host.Arch.NewRegs(), vectors: s.Registers.Vectors}
	for name, v := range s.Registers.General {
		regs.Set(name, v)
	}
	if f, _ := l.table.Function(s.At); f.Start == s.At {
		return // where gdb goes by what holds behind the prologue
	}
	l.stops++
	seen, err := l.table.Variables(s.At)
	if err != nil {
		if len(s.Values) > 0 { // else it is in assembly
			l.Errorf("%s: %s: %v", l.what, s.At, err)
		}
		return
	}
	l.reach(&s, seen, regs)
	ours := map[string]symbols.Value{}
	for i, p := range slices.Concat(seen.Params, seen.Locals) {
		if i < len(seen.Params) && slices.ContainsFunc(seen.Locals, func(q symbols.Param) bool { return q.Name == p.Name }) {
			continue // it is hidden
		}
		if gdbs, met := s.Values[p.Name]; met && gdbs.Why == "" && gdbs.Param != (i < len(seen.Params)) && !l.isGo {
			l.Errorf("%s: %s: to gdb %s is a parameter: %t", l.what, s.At, p.Name, gdbs.Param)
		}
		ours[p.Name] = p.Value(regs, l.mem)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Values)) {
		gdbs := s.Values[name]
		mine, named := ours[name]
		switch weKnow, gdbKnows := named && mine.Err == nil, gdbs.Why == ""; {
		case weKnow && l.judge(&s, name, mine, gdbs):
			l.same++
		case weKnow && !gdbKnows:
			l.ours++
		case weKnow:
		case gdbKnows:
			l.gdbs++
			l.lacks(&s, name, mine.Err)
		default:
			l.neither++
		}
	}
}

// judge tells that gdb says the same of a value. Else the test fails, or there is a reason.
func (l *looking) judge(s *stop, name string, mine symbols.Value, gdbs opinion) bool {
	if gdbs.Why == "" && (likeness{strings.Contains(mine.Text, "…"), l.isFunction}).same(decoded(l.T, mine.JSON), gdbs.Value) {
		return true
	}
	theirs := asJSON(gdbs.Value)
	if gdbs.Why != "" {
		theirs = "not known: " + gdbs.Why
	}
	text := fmt.Sprintf("%s %s = %s | %s", name, gdbs.Type, asJSON(mine.JSON), theirs)
	if slices.ContainsFunc(l.differences, func(d difference) bool { return d.what.MatchString(text) }) {
		l.excepted++
		return false
	}
	loc, _ := l.table.Lookup(s.At)
	file, line, _ := l.table.Line(s.At)
	l.Errorf("%s: at %s %s in %s (%s:%d): %s", l.what, s.At, loc, s.Function, file, line, text)
	return false
}

// isFunction tells that a function which we name is at the address that gdb has.
func (l *looking) isFunction(address, name string) bool {
	var at uint64
	if n, _ := fmt.Sscanf(address, "0x%x", &at); n != 1 {
		return false
	}
	loc, ok := l.table.Lookup(arch.Addr(at))
	return ok && loc.Offset == 0 && name == loc.Symbol.Name
}

// lacks notes why we do not know what gdb knows.
func (l *looking) lacks(s *stop, name string, err error) {
	if os.Getenv("GOKPROBE_LACKS") != "" {
		loc, _ := l.table.Lookup(s.At)
		l.Logf("%s: at %s %s in %s: %s %s is not known: %v; gdb: %s", l.what, s.At, loc, s.Function, name, s.Values[name].Type, err, asJSON(s.Values[name].Value))
	}
}

// reach compares what may be reached from variables.
func (l *looking) reach(s *stop, seen symbols.Variables, regs arch.Regs) {
	for _, text := range slices.Sorted(maps.Keys(s.Paths)) {
		gdbs := s.Paths[text]
		path, ok := arg.ParsePath(text)
		if !ok {
			l.Fatalf("%s is no path", text)
		}
		all := slices.Concat(seen.Locals, seen.Params) // a local variable hides a parameter
		i := slices.IndexFunc(all, func(p symbols.Param) bool { return p.Name == path.Name })
		if i < 0 {
			continue
		}
		end, err := all[i].At(text, values.Steps(path.Steps)...)
		var v symbols.Value
		if err == nil {
			v = end.Value(regs, l.mem)
			err = v.Err
		}
		switch {
		case err == nil:
			if l.judge(s, text, v, gdbs) {
				l.reached++
			}
		case gdbs.Why == "" && all[i].Value(regs, l.mem).Err == nil && !errors.Is(err, symbols.ErrNoAddress):
			if !strings.Contains(asJSON(gdbs.Value), "Cannot access memory") {
				l.judge(s, text, symbols.Value{JSON: "not known: " + err.Error()}, gdbs)
			}
		}
	}
}

// fileMemory is a process's memory.
type fileMemory struct{ io.ReaderAt }

func (m fileMemory) ReadMemory(at arch.Addr, p []byte) error {
	_, err := m.ReadAt(p, int64(at))
	return err
}

func (m fileMemory) WriteMemory(arch.Addr, []byte) error { return os.ErrPermission }

// vectorRegs are registers as gdb has told them.
type vectorRegs struct {
	arch.Regs
	vectors []string // hexadecimal
}

// Vector implements symbols.FloatRegs.
func (r vectorRegs) Vector(n int) (v [16]byte, ok bool) {
	b, err := hex.DecodeString(r.vectors[n])
	if err != nil || len(b) != len(v) {
		return v, false
	}
	slices.Reverse(b)
	return [16]byte(b), true
}
