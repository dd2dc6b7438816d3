package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/escape"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/ptrace"
	"github.com/gokprobe/gokprobe/symbols"
)

func listCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:      "list",
		Usage:     "list what can be probed, and what can't",
		UsageText: "gokprobe list (-p PID | -x FILE) [flags] [PATTERN]",
		Description: `Lists the symbols of a process, or of an executable or library FILE, sorted by address. A
line has the address, the size, where the name was found, the mechanism or "no", the
module and the name; in brackets why it can't be probed, or not by a jump.

The mechanism says what a hit costs. "boosted": one stop. "stepped": two stops. "emulated":
one stop, and gokprobe does the instruction's work itself. "optimized": a jump, and no stop
if the process can do by itself all that the flags of attach ask for; else a breakpoint.

PATTERN is a name or glob ('mem*', 'libc.so.6:*'), or any other SPEC of attach:
'foo+*' lists the instructions of foo, file.c:42 the code of a line. Of a function that has
no code of its own, since all its calls are inlined, these are listed. The process is not
stopped.

Examples:
  gokprobe list -p 4711 'main.*'
  gokprobe list -p redis-server -lines '*Command'
  gokprobe list -x /usr/bin/python3 'PyList_*'
  gokprobe list -p 4711 'parse+*'`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "p", Usage: "list the symbols of process `PID` and its libraries"},
			&cli.StringFlag{Name: "x", Usage: "list the symbols of `FILE`, an executable or library"},
			&cli.BoolFlag{Name: "lines", Usage: "add source lines, which reads the debug information"},
			&cli.StringFlag{Name: "format", Value: "text", Usage: "print `FORMAT`, text or json (one object a line)"},
		},
		Action: func(c *cli.Context) error { return list(c, std) },
	}
}

func list(c *cli.Context, std stdio) error {
	asJSON, err := parseFormat(c)
	switch {
	case err != nil:
		return err
	case c.NArg() > 1 && strings.HasPrefix(c.Args().Get(1), "-"):
		return usagef("flags such as %s come before PATTERN", c.Args().Get(1))
	case c.NArg() > 1:
		return usagef("one PATTERN at a time, %s is another; quote patterns from the shell", escape.Quote(c.Args().Get(1)))
	case c.IsSet("p") == c.IsSet("x"):
		return usagef("name either a process with -p PID or a file with -x FILE")
	}
	l := &lister{lines: c.Bool("lines"), json: asJSON, out: bufio.NewWriterSize(std.out, 64<<10)}
	in := watchPipe()
	defer in.stop()
	if c.IsSet("p") {
		err = l.openProcess(std, c.String("p"))
	} else {
		err = l.openFile(c.String("x"))
	}
	if err != nil {
		return err
	}
	defer l.table.Close()
	l.jumps, l.code = kprobes.NewPreview(l.table, l.mem), kprobes.NewCode(l.table, l.mem)
	if err = l.list(c.Args().First()); err == nil {
		err = l.out.Flush()
	}
	for _, m := range l.table.Modules() {
		for _, refused := range m.Refused() {
			std.warn("%v", refused)
		}
	}
	if brokenPipe(err) {
		return nil
	}
	return err
}

var errNoCode = errors.New("no code in the file or process there")

// lister prints the rows of the list command.
type lister struct {
	table *symbols.Table
	mem   arch.Memory
	jumps *kprobes.Preview
	code  *kprobes.Code
	lines bool
	json  bool
	out   *bufio.Writer
}

func (l *lister) openProcess(std stdio, arg string) error {
	of, err := findTarget(arg)
	if err != nil {
		return err
	}
	pid := of.pid
	if err := notLooked(pid); err != nil {
		return attachError(err)
	}
	if st, err := procfs.ReadStatus(pid, 0); err == nil && st.TracerPid != 0 {
		std.warn("process %d is traced by process %d: where that has breakpoints or jumps, they are listed as if they were the program's", pid, st.TracerPid)
	}
	live := procfs.Living(pid)
	mem := meantMemory{ptrace.PeekMemory{PID: live}, of}
	if l.table, err = symbols.Open(live, mem); err != nil {
		return attachError(fmt.Errorf("cannot read the symbols of process %d: %w", pid, err))
	}
	l.mem = mem
	if err := of.still(); err != nil {
		_ = l.table.Close()
		return err
	}
	return nil
}

// meantMemory is the memory of one process. If that has ended and another process has its
// number, reads fail.
type meantMemory struct {
	ptrace.PeekMemory
	of target
}

// ReadMemory implements arch.Memory.
func (m meantMemory) ReadMemory(at arch.Addr, p []byte) error {
	err := m.PeekMemory.ReadMemory(at, p)
	if err == nil && m.of.still() != nil {
		clear(p)
		return &arch.FaultError{Addr: at}
	}
	return err
}

func (l *lister) openFile(path string) error {
	table, err := symbols.OpenFile(path)
	if err != nil {
		return usagef("cannot list %s: %w", path, fileError(err))
	}
	l.table, l.mem = table, table.FileMemory()
	return nil
}

// list prints the symbols that match pattern. If there are none, it prints the places that
// pattern means as a SPEC.
func (l *lister) list(pattern string) error {
	if found := l.table.Symbols(pattern); len(found) > 0 {
		for _, sym := range found {
			if err := l.print(l.symbolRow(sym)); err != nil {
				return err
			}
		}
		return nil
	}
	if pattern == "" {
		return &classed{errPlace, fmt.Errorf("there are no symbols; addresses can still be probed")}
	}
	ctx := context.Background()
	found, err := l.table.Resolve(ctx, pattern)
	if errors.Is(err, symbols.ErrUnknownSymbol) {
		calls, _, _ := l.table.InlinedCalls(ctx, pattern) // ctx has no end
		for _, call := range calls {
			found, err = append(found, call.Location), nil
		}
	}
	if err != nil {
		return &classed{errPlace, fmt.Errorf("nothing to list: %w", err)}
	}
	for _, loc := range found {
		if err := l.listLocation(loc); err != nil {
			return err
		}
	}
	return nil
}

// listLocation prints one place, or each instruction of a function.
func (l *lister) listLocation(loc symbols.Location) error {
	if loc.Every.Len() == 0 {
		return l.print(l.placeRow(loc))
	}
	var err error
	rest := l.code.EachInsn(loc.Every, func(insn arch.Insn, why error) {
		at := loc
		at.Offset, at.Addr = loc.Offset+uint64(insn.Addr-loc.Addr), insn.Addr
		r := l.placeRow(at)
		if why != nil {
			r.Probe, r.Mechanism, r.Reason = false, "", why.Error()
		}
		if err == nil {
			err = l.print(r)
		}
	})
	if err == nil && rest != nil {
		return fmt.Errorf("the rest of %s can't be decoded: %w", loc.Symbol.Name, rest)
	}
	return err
}

// row is one line of the listing, with its JSON names.
type row struct {
	Type    string `json:"type"` // "symbol" or "place"
	Addr    string `json:"addr"`
	Size    uint64 `json:"size"`
	Kind    string `json:"kind"` // "func", "ifunc", "data"
	Source  string `json:"source"`
	Module  string `json:"module"`
	Name    string `json:"name"`
	Linkage string `json:"linkage"`
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"`
	Insn    string `json:"instruction,omitempty"`
	Probe   bool   `json:"probeable"`
	// Mechanism is how a hit is handled, empty if the place can't be probed.
	Mechanism string `json:"mechanism"`
	Reason    string `json:"reason"` // why not, or why not optimized
}

func (l *lister) symbolRow(sym symbols.Symbol) row {
	r := row{
		Type: "symbol", Addr: sym.Addr.String(), Size: sym.Size, Kind: kindOf(sym), Source: string(sym.Source),
		Name: sym.Name, Linkage: sym.Linkage,
	}
	if sym.Module != nil {
		r.Module = sym.Module.Name
	}
	switch {
	case sym.IFunc:
		l.judgeIndirect(&r)
	case !sym.Func:
		r.Reason = "data"
	default:
		l.judge(&r, sym.Addr, true)
		l.addLine(&r, sym.Addr)
	}
	return r
}

func (l *lister) placeRow(loc symbols.Location) row {
	r := row{
		Type: "place", Addr: loc.Addr.String(), Kind: kindOf(loc.Symbol), Source: string(loc.Symbol.Source),
		Name: loc.String(), Linkage: loc.Symbol.Linkage, File: loc.File, Line: loc.Line, Module: loc.Symbol.ModuleName(),
	}
	if insn, ok := l.judge(&r, loc.Addr, loc.Offset == 0 && loc.Symbol.Name != ""); ok {
		r.Insn, r.Size = host.Arch.Disassemble(insn), uint64(insn.Len())
	}
	if r.File == "" {
		l.addLine(&r, loc.Addr)
	}
	return r
}

func kindOf(sym symbols.Symbol) string {
	switch {
	case sym.IFunc:
		return "ifunc"
	case sym.Func:
		return "func"
	}
	return "data"
}

func (l *lister) addLine(r *row, at arch.Addr) {
	if !l.lines {
		return
	}
	if file, line, ok := l.table.Line(at); ok {
		r.File, r.Line = file, line
	}
}

// judgeIndirect fills in r for an indirect function: a probe of its name goes to the
// implementations that its resolver has chosen, which the Reason lists.
func (l *lister) judgeIndirect(r *row) {
	found, err := l.table.Resolve(context.Background(), r.Module+":"+r.Linkage)
	if err != nil {
		r.Reason = oneLine(err.Error())
		return
	}
	l.judge(r, found[0].Addr, found[0].Offset == 0)
	names := make([]string, len(found))
	for i, loc := range found {
		names[i] = fmt.Sprintf("%s at %s", strings.TrimSuffix(loc.String(), "+0x0"), loc.Addr)
	}
	r.Reason = "stands for " + strings.Join(names, ", ")
}

// judge fills in how a probe at at would work, or why there can be none. It decides as
// registration would, but from the instruction alone. entry says that a function begins at at.
func (l *lister) judge(r *row, at arch.Addr, entry bool) (arch.Insn, bool) {
	insn, err := l.decode(at, entry)
	if err != nil {
		r.Reason = oneLine(err.Error())
		return insn, false
	}
	if strings.Contains(r.Module, "vdso") {
		r.Reason = kprobes.ErrBlacklisted.Error()
		return insn, true
	}
	plan, err := host.Arch.Plan(insn)
	switch {
	case err != nil:
		r.Reason = oneLine(err.Error())
		return insn, true
	case plan.Method == arch.Emulated:
		r.Mechanism = "emulated"
	case plan.Method == arch.SystemCall:
		r.Mechanism, r.Reason = "stepped", "a system call is stopped at its entry, to hide where it was made"
	case plan.MustStep != "":
		r.Mechanism, r.Reason = "stepped", plan.MustStep
	default:
		r.Mechanism = "boosted"
	}
	r.Probe = true
	if why := l.jumps.Optimizable(insn.Addr); why == nil {
		r.Mechanism, r.Reason = "optimized", ""
	} else if r.Reason == "" {
		r.Reason = oneLine(why.Error())
	}
	return insn, true
}

// decode decodes the instruction at at. At the entry of a function it skips a landing pad
// (endbr64), as a probe does.
func (l *lister) decode(at arch.Addr, entry bool) (arch.Insn, error) {
	code := make([]byte, 2*host.Arch.MaxInsnLen())
	for l.mem.ReadMemory(at, code) != nil {
		if code = code[:len(code)-1]; len(code) == 0 {
			return arch.Insn{}, errNoCode
		}
	}
	skip := 0
	if entry {
		skip = host.Arch.EntrySkip(code)
	}
	return host.Arch.Decode(code[skip:], at.Add(int64(skip)))
}

func (l *lister) print(r row) error {
	if l.json {
		b, err := json.Marshal(r)
		if err != nil {
			return err
		}
		_, err = l.out.Write(append(escape.JSON(b), '\n'))
		return err
	}
	how, name := r.Mechanism, escape.Line(r.Name)
	if !r.Probe {
		how = "no"
	}
	if r.Insn != "" {
		name += "  " + r.Insn
	}
	if r.File != "" {
		name += fmt.Sprintf("  %s:%d", escape.Line(r.File), r.Line)
	}
	if r.Reason != "" {
		name += "  (" + escape.Line(r.Reason) + ")"
	}
	_, err := fmt.Fprintf(l.out, "%-14s %6d  %-9s  %-9s  %s:%s\n", r.Addr, r.Size, r.Source, how, escape.Line(r.Module), name)
	return err
}
