package main

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/gokprobe/gokprobe/inject"
	"github.com/gokprobe/gokprobe/inject/fault"
	"github.com/gokprobe/gokprobe/internal/escape"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/symbols"
)

// injectRequest holds the parsed flags of inject.
type injectRequest struct {
	request
	rule            inject.Rule // its Attr.Require and Attr.Reject are not set: see ruleIn
	threads         []int
	addresses       []string // names of given flags whose values are addresses in one process
	require, reject string   // functions of the stack filters, as SPECs
	seed            uint64
	random          bool // the seed was chosen at random, and the choice of calls depends on it
	dryRun          bool
}

// injectFlags are the flags of inject.
func injectFlags() []cli.Flag {
	flags := append(whomFlags("inject into"),
		&cli.StringSliceFlag{Name: "sym", Usage: "make calls of the functions `SPEC` fail: foo, lib.so:foo, 'mem*'; repeatable"},
		&cli.StringSliceFlag{Name: "addr", Usage: "the same, at address `ADDR`, 0x… or module:0x…; repeatable"},
		&cli.StringSliceFlag{Name: "syscall", Usage: "make system calls `NAME` fail: openat, 257, '*at', /^open, %file as in strace; repeatable"},
		&cli.StringFlag{Name: "syscall-by", Value: "auto", Usage: "see system calls by `WAY`: sites, ptrace, or auto: sites if all are known"},
		&cli.StringFlag{Name: "retval", Usage: "return `V` without running the body"},
		&cli.StringFlag{Name: "errno", Usage: "set errno to `NAME`, ENOENT or 2, and fail"},
		&cli.StringFlag{Name: "error", Usage: "return the error `ERR` from a Go function: ENOENT, io.EOF, \"text\", &fs.PathError{Op: \"open\", Path: name, Err: ENOENT}"},
		&cli.StringSliceFlag{Name: "result", Usage: "with -error: return V as another result, `NAME=V` or N=V; the rest are zero; repeatable"},
		&cli.BoolFlag{Name: "after", Usage: "let the body run first"},
		&cli.StringSliceFlag{Name: "set", Usage: "change a register or an argument, `REG=V`: %di=5, $arg2=0; repeatable"},
		&cli.StringSliceFlag{Name: "corrupt", Usage: "change a byte of memory, `ADDR`, ADDR@N or ADDR@N^BITS; repeatable"},
		&cli.StringSliceFlag{Name: "poke", Usage: "write memory, `ADDR=BYTES`; repeatable"},
		&cli.StringFlag{Name: "delay", Usage: "make the thread go on `D` later: 50ms, 10ms..20ms"},
		&cli.StringFlag{Name: "signal", Usage: "send the thread signal `SIG`"},
		&cli.StringFlag{Name: "if", Usage: "only calls that meet `EXPR`, over -arg's names, parameters, comm and common_pid: 'n > 5 && path ~ \"*.conf\"'"},
		&cli.StringSliceFlag{Name: "arg", Usage: "print `NAME=EXPR`, a fetch argument of the kernel's, of injected calls; repeatable"},
		&cli.StringFlag{Name: "size", Usage: "how much of -space a call uses up, `EXPR`: $arg3; default 1"},
		&cli.StringFlag{Name: "attr", Usage: "the kernel's boot option, `interval,probability,space,times`"},
		&cli.StringFlag{Name: "require", Usage: "only calls with a caller in function `SPEC`"},
		&cli.StringFlag{Name: "reject", Usage: "no calls with a caller in function `SPEC`"},
		&cli.IntSliceFlag{Name: "thread", Usage: "only calls of thread `TID`; repeatable"},
		&cli.BoolFlag{Name: "dry-run", Usage: "print each change that would be made, and make none"},
		&cli.IntFlag{Name: "maxactive", Usage: "with -after: follow up to `N` calls at once"},
		&cli.DurationFlag{Name: "duration", Usage: "detach after time `D`: 10s, 2m"},
		&cli.StringFlag{Name: "format", Value: "text", Usage: "print `FORMAT`, text or json (one object a line)"},
		&cli.StringFlag{Name: "o", Usage: "print to `FILE` instead of stdout"},
		&cli.BoolFlag{Name: "no-boost", Usage: "single-step each copied instruction instead of jumping back after it"},
		&cli.BoolFlag{Name: "no-optimize", Usage: "keep breakpoints, so that the tracer decides about every call"},
		&cli.BoolFlag{Name: "follow", Usage: "also inject into forked children, and executables that the process starts by exec, until all of them have ended"},
		&cli.BoolFlag{Name: "hold", Usage: "do not detach when no further call can be injected"},
		&cli.StringFlag{Name: "mount", Usage: "mount the session's files, those of gokprobe debugfs, on `DIR`; of several processes in a folder for each"},
	)
	for _, n := range fault.Names() {
		flags = append(flags, &cli.StringFlag{Name: n.Name, Usage: n.Usage})
	}
	return flags
}

// parseInject reads injectFlags.
func parseInject(c *cli.Context) (injectRequest, error) {
	r := injectRequest{
		require: c.String("require"), reject: c.String("reject"), dryRun: c.Bool("dry-run"),
		request: request{
			duration: c.Duration("duration"), output: c.String("o"), noBoost: c.Bool("no-boost"), noOptimize: c.Bool("no-optimize"),
			follow: c.Bool("follow"), hold: c.Bool("hold"), mount: c.String("mount"),
		},
		rule: inject.Rule{Specs: c.StringSlice("sym"), If: c.String("if"), Args: c.StringSlice("arg"), Size: c.String("size"), After: c.Bool("after"), DryRun: c.Bool("dry-run"), MaxActive: c.Int("maxactive")},
	}
	for _, a := range c.StringSlice("addr") {
		spec, ok := addrSpec(a)
		if !ok {
			return r, usagef("%s is no address, give 0x… as in /proc/PID/maps or module:0x… as in objdump", escape.Quote(a))
		}
		r.rule.Specs = append(r.rule.Specs, spec)
	}
	var err error
	if r.json, err = parseFormat(c); err != nil {
		return r, err
	}
	if err := r.parseSyscalls(c.StringSlice("syscall"), c.String("syscall-by")); err != nil {
		return r, err
	}
	if err := r.parseActions(c); err != nil {
		return r, err
	}
	if err := r.parseAttr(c); err != nil {
		return r, err
	}
	switch {
	case len(r.rule.Specs) == 0 && r.rule.Syscall == "":
		return r, usagef("name the calls that shall fail: functions with -sym or -addr, or system calls with -syscall")
	case c.IsSet("syscall-by") && r.rule.Syscall == "":
		return r, usagef("-syscall-by is about system calls, name some with -syscall")
	case len(r.rule.Specs) > 0 && r.rule.Syscall != "":
		return r, usagef("-sym and -syscall can't be combined; use two gokprobe inject, one after the other, or a script")
	case c.IsSet("duration") && r.duration <= 0:
		return r, usagef("-duration must be more than 0")
	case c.IsSet("maxactive") && !r.rule.After:
		return r, usagef("-maxactive is for calls that are followed to their end, add -after")
	case c.IsSet("maxactive") && r.rule.MaxActive <= 0:
		return r, usagef("-maxactive must be at least 1")
	case c.IsSet("if") && strings.TrimSpace(r.rule.If) == "":
		return r, usagef("-if needs a condition")
	case c.IsSet("size") && r.rule.Attr.Space <= 0:
		return r, usagef("-size says how much of -space a call uses up, so -space is needed")
	}
	if r.rule.Name = r.rule.Syscall; r.rule.Name == "" {
		r.rule.Name = strings.Join(r.rule.Specs, ", ")
	}
	return r, r.checkWish()
}

// parseSyscalls reads -syscall and -syscall-by.
func (r *injectRequest) parseSyscalls(texts []string, by string) error {
	r.rule.Syscall = strings.Join(texts, ",")
	for _, text := range texts {
		if _, err := inject.ParseSyscalls(text); err != nil {
			return usagef("-syscall: %w", err)
		}
	}
	var err error
	if r.rule.SyscallBy, err = inject.ParseSyscallWay(by); err != nil {
		return usagef("-syscall-by %w", err)
	}
	return nil
}

// checkWish finds mistakes in -arg, -if and -size before gokprobe attaches.
func (r injectRequest) checkWish() error {
	w := r.rule.Wish()
	if err := w.Check(); err != nil {
		return wishError(err, "-if")
	}
	return nil
}

// parseActions reads the flags that name actions, into rule.Do.
func (r *injectRequest) parseActions(c *cli.Context) error {
	add := func(kind string, texts ...string) error {
		for _, text := range texts {
			a, err := inject.ParseAction(kind, text)
			if err != nil {
				return usagef("-%w", err)
			}
			r.rule.Do = append(r.rule.Do, a)
		}
		return nil
	}
	for _, kind := range []string{"set", "poke", "corrupt"} {
		if err := add(kind, c.StringSlice(kind)...); err != nil {
			return err
		}
	}
	for _, kind := range []string{"signal", "delay"} {
		if !c.IsSet(kind) {
			continue
		}
		if err := add(kind, c.String(kind)); err != nil {
			return err
		}
	}
	for _, kind := range []string{"retval", "errno", "error"} {
		if !c.IsSet(kind) {
			continue
		}
		if err := add(kind, c.String(kind)); err != nil {
			return err
		}
	}
	if err := add("result", c.StringSlice("result")...); err != nil {
		return err
	}
	var err error
	if r.rule.Do, err = inject.Combine(r.rule.Do); err != nil {
		return usagef("%w", err)
	}
	if len(r.rule.Do) == 0 {
		return usagef("say how to change a call: -retval, -errno, -error, -result, -set, -corrupt, -poke, -delay or -signal")
	}
	return nil
}

// parseAttr reads the flags that choose calls, into rule.Attr and rule.Task.
func (r *injectRequest) parseAttr(c *cli.Context) error {
	a := fault.Always()
	if c.IsSet("fail-nth") && !c.IsSet("probability") && !c.IsSet("attr") {
		a = fault.Default() // afterwards nothing fails
	}
	a.Verbose = 1
	names := []string{"attr"}
	for _, n := range fault.Names() {
		names = append(names, n.Name)
	}
	for _, name := range names {
		if !c.IsSet(name) {
			continue
		}
		if err := a.Set(name, c.String(name)); err != nil {
			return usagef("-%s: %w", name, err)
		}
		if strings.HasPrefix(name, "require-") || strings.HasPrefix(name, "reject-") {
			r.addresses = append(r.addresses, name)
		}
	}
	switch r.threads = c.IntSlice("thread"); {
	case len(r.threads) > 0:
		a.TaskFilter = true
		r.rule.Task = func(_, tid int) bool { return slices.Contains(r.threads, tid) }
	case a.TaskFilter && parseWhom(c).isGiven(): // a COMMAND needs no mark: failcmd.sh marks the command that it starts
		return usagef("-task-filter %s lets marked threads fail, and none is marked: name them with -thread TID", c.String("task-filter"))
	}
	if !c.IsSet("seed") {
		var b [4]byte
		_, _ = rand.Read(b[:]) // never fails
		a.Seed = uint64(binary.NativeEndian.Uint32(b[:]))
		r.random = a.Probability > 0 && a.Probability < 1 || r.delaysRandomly()
	}
	if err := a.Check(); err != nil {
		return usagef("%w", err)
	}
	r.rule.Attr, r.seed = a, a.Seed
	return nil
}

// checkSeveral returns an error if a flag makes sense for a single process only.
func (r *injectRequest) checkSeveral() error {
	switch {
	case len(r.threads) > 0:
		return usagef("-thread is for a thread of one process, name that with -p and leave out -all and -x; -if with common_pid chooses among the threads of several")
	case len(r.addresses) > 0:
		return usagef("-%s is an address in one process, name that with -p and leave out -all and -x; -require and -reject name functions, in each process", r.addresses[0])
	}
	return nil
}

// checkThreads returns an error if the process has no thread with an ID that -thread names.
func (r *injectRequest) checkThreads(pid int) error {
	tids, err := procfs.UserTasks(pid)
	if err != nil {
		return nil // attaching will return the better error
	}
	for _, tid := range r.threads {
		if slices.Contains(tids, tid) {
			continue
		}
		const some = 8
		var names []string
		for _, have := range tids[:min(len(tids), some)] {
			names = append(names, strconv.Itoa(have))
		}
		more := ""
		if len(tids) > some {
			more = fmt.Sprintf(" and %d more", len(tids)-some)
		}
		return usagef("-thread %d: process %d has no such thread, it has %s%s", tid, pid, strings.Join(names, ", "), more)
	}
	return nil
}

func (r *injectRequest) delaysRandomly() bool {
	for _, a := range r.rule.Do {
		if d, ok := a.(inject.Delay); ok && d.Jitter > 0 {
			return true
		}
	}
	return false
}

// ruleIn completes the rule for one process: it looks up the addresses of the functions that
// -require and -reject name.
func (r injectRequest) ruleIn(table *symbols.Table) (inject.Rule, error) {
	rule := r.rule
	for _, f := range []struct {
		flag, spec string
		to         *fault.Range
	}{{"require", r.require, &rule.Attr.Require}, {"reject", r.reject, &rule.Attr.Reject}} {
		if f.spec == "" {
			continue
		}
		var err error
		if *f.to, err = functionRange(table, f.spec); err != nil {
			return rule, placeError(fmt.Sprintf("-%s %s", f.flag, f.spec), err)
		}
	}
	return rule, nil
}

// functionRange returns the first and the end address of the one function that spec means.
func functionRange(table *symbols.Table, spec string) (fault.Range, error) {
	found, err := table.Resolve(context.Background(), spec)
	if err != nil {
		return fault.Range{}, err
	}
	if len(found) != 1 {
		return fault.Range{}, fmt.Errorf("%d functions are meant: %w", len(found), symbols.ErrAmbiguous)
	}
	f, known := table.Function(found[0].Addr)
	if !known {
		return fault.Range{}, symbols.ErrUnknownSize
	}
	return fault.Range{Start: uint64(f.Start), End: uint64(f.End)}, nil
}
