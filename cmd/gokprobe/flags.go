package main

import (
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/cmd/gokprobe/internal/event"
	"github.com/gokprobe/gokprobe/internal/escape"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/ptrace"
	"github.com/gokprobe/gokprobe/symbols"
	"github.com/gokprobe/gokprobe/trace"
)

// request is what the user asks of attach, run or demo.
type request struct {
	meant     *ptrace.Identity // the process that -p names; nil without -p
	who       whom             // by which it was named
	specs     []string
	logs      logPoints // in place of specs
	returns   bool      // every SPEC means the returns of its functions
	locals    bool      // -locals: local variables
	inlined   bool      // calls too that the compiler has inlined
	maxActive int       // how many calls of a function are followed at once
	args      bool
	globals   []string // -globals: variables outside of functions
	fetchArgs []string // -arg: fetch arguments
	filter    string
	bounds    symbols.Bounds
	regs      bool
	stack     int // frames; 0 for none
	// stackFirst names a probe that prints the stack of its first hit only.
	stackFirst string
	count      bool
	allRows    bool          // with count: probes that were not hit as well
	maxHits    uint64        // 0 for no limit
	duration   time.Duration // 0 for no limit
	json       bool
	output     string // file name; empty for stdout
	noBoost    bool
	noOptimize bool
	byReturns  kprobes.Returns
	follow     bool
	hold       bool   // the session does not need probes
	events     string // definitions for the session's files; empty for none
	mount      string // directory for the session's files; empty for none

	progress *progress // of attaching and arming
}

// probeFlags are the flags of attach and run.
func probeFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringSliceFlag{Name: "sym", Usage: "probe `SPEC`: foo, foo+0x12, lib.so:foo, file.c:42, 'mem*', 'foo+*' (every instruction); repeatable"},
		&cli.StringSliceFlag{Name: "addr", Usage: "probe the address `ADDR`, 0x… or module:0x…; repeatable"},
		&cli.BoolFlag{Name: "ret", Usage: "probe returns: print the function's result and how long the call took; SPEC%return does so for one SPEC"},
		&cli.BoolFlag{Name: "inlined", Usage: "probe calls of functions too that the compiler has inlined, where SPEC is a name; of functions without code of their own these are probed in any case"},
		&cli.IntFlag{Name: "maxactive", Value: trace.ManyActive, Usage: "with returns: follow up to `N` calls of each function at once"},
		&cli.BoolFlag{Name: "args", Usage: "print all parameters of the function, typed by its debug information"},
		&cli.BoolFlag{Name: "locals", Usage: "print the local variables of the blocks around each place, such as a line, by debug information"},
		&cli.StringSliceFlag{Name: "globals", Usage: "print variables outside of functions, by `NAME` or a pattern: conf, 'main.*'; repeatable"},
		&cli.StringSliceFlag{Name: "arg", Usage: "print `NAME=EXPR`, a fetch argument of the kernel's: n=$arg1:s32, path=+0($arg2):string, r=$retval; repeatable"},
		&cli.StringFlag{Name: "filter", Usage: "keep hits that meet `EXPR` over -arg's names, comm and common_pid: 'n > 5 && path ~ \"/etc/*\"'; with -args also over parameters, with -locals over local variables, with returns over ret and duration_ns"},
		&cli.StringFlag{Name: "if", Usage: "is another name of -filter `EXPR`, as in inject and log points"},
		depthFlag, itemsFlag, bytesFlag,
		&cli.BoolFlag{Name: "regs", Usage: "print the general registers, as %rdi=…"},
		&cli.IntFlag{Name: "stack", Usage: "print `N` frames of the stack"},
		&cli.BoolFlag{Name: "count", Usage: "print no hits, only how often each probe was hit: at the end, on stdout, the twenty that were hit most"},
		&cli.BoolFlag{Name: "all-rows", Usage: "with -count: print a row for every probe, also for probes that were not hit"},
		&cli.Uint64Flag{Name: "max-hits", Usage: "detach after `N` hits, over all probes"},
		&cli.DurationFlag{Name: "duration", Usage: "detach after time `D`: 10s, 2m"},
		&cli.StringFlag{Name: "format", Value: "text", Usage: "print `FORMAT`, text or json (one object a line)"},
		&cli.StringFlag{Name: "o", Usage: "print to `FILE` instead of stdout"},
		&cli.BoolFlag{Name: "no-boost", Usage: "single-step each copied instruction instead of jumping back after it"},
		&cli.BoolFlag{Name: "no-optimize", Usage: "keep breakpoints, also where a jump could replace one"},
		&cli.StringFlag{Name: "returns", Value: "sites", Usage: "follow calls to their returns by `WAY`: sites (a breakpoint where they return to; no stack is changed), rewrite (the return address is replaced, as the kernel does; it follows returns into generated code), or auto (rewrite for calls that sites miss, see gokprobe help safety)"},
		&cli.BoolFlag{Name: "follow", Usage: "also probe forked children, and executables that the process starts by exec; names that only these have are waited for. It ends when all of them have"},
		&cli.BoolFlag{Name: "hold", Usage: "hold the process without probes, for gokprobe debugfs, until Ctrl-C or its end"},
		&cli.StringFlag{Name: "kprobe-event", Usage: "define `EVENTS` in the session's files and turn them on, like the kernel's boot parameter: 'p:name,foo,$arg1;r,foo,$retval'; implies -hold"},
		&cli.StringFlag{Name: "mount", Usage: "mount the session's files, those of gokprobe debugfs, on `DIR`; of several processes in a folder for each"},
	}
}

// How much of a value is printed.
var (
	depthFlag = &cli.IntFlag{Name: "depth", Value: symbols.DefaultBounds.Depth, Usage: "print members and elements down to level `N` of each value"}
	itemsFlag = &cli.IntFlag{Name: "items", Value: symbols.DefaultBounds.Items, Usage: "print up to `N` elements of each list and container"}
	bytesFlag = &cli.IntFlag{Name: "bytes", DefaultText: "64, of NAME:string 255", Usage: "print up to `N` bytes of each text"}
)

// parseBounds reads depthFlag, itemsFlag and bytesFlag.
func parseBounds(c *cli.Context) (b symbols.Bounds, err error) {
	most := symbols.MostBounds
	for _, x := range []struct {
		flag *cli.IntFlag
		to   *int
		most int
	}{{depthFlag, &b.Depth, most.Depth}, {itemsFlag, &b.Items, most.Items}, {bytesFlag, &b.Bytes, most.Bytes}} {
		if !c.IsSet(x.flag.Name) {
			continue
		}
		if *x.to = c.Int(x.flag.Name); *x.to < 1 || *x.to > x.most {
			return b, usagef("-%s must be from 1 to %d, the most that is read while a thread waits", x.flag.Name, x.most)
		}
	}
	return b, nil
}

// parseRequest reads probeFlags.
func parseRequest(c *cli.Context) (request, error) {
	r := request{
		specs: c.StringSlice("sym"), returns: c.Bool("ret"), inlined: c.Bool("inlined"), maxActive: c.Int("maxactive"),
		args: c.Bool("args"), locals: c.Bool("locals"), globals: c.StringSlice("globals"), fetchArgs: c.StringSlice("arg"), filter: c.String("filter"), regs: c.Bool("regs"), stack: c.Int("stack"),
		count: c.Bool("count"), allRows: c.Bool("all-rows"), maxHits: c.Uint64("max-hits"), duration: c.Duration("duration"),
		output: c.String("o"), noBoost: c.Bool("no-boost"), noOptimize: c.Bool("no-optimize"), follow: c.Bool("follow"), hold: c.Bool("hold") || c.IsSet("kprobe-event"),
		events: c.String("kprobe-event"), mount: c.String("mount"),
	}
	for _, a := range c.StringSlice("addr") {
		spec, ok := addrSpec(a)
		if !ok {
			return r, usagef("%s is no address, give 0x… as in /proc/PID/maps or module:0x… as in objdump", escape.Quote(a))
		}
		r.specs = append(r.specs, spec)
	}
	var err error
	if r.json, err = parseFormat(c); err != nil {
		return r, err
	}
	if r.byReturns, err = parseReturns(c); err != nil {
		return r, err
	}
	if r.bounds, err = parseBounds(c); err != nil {
		return r, err
	}
	isFiltered := c.IsSet("filter") || c.IsSet("if")
	if c.IsSet("if") {
		r.filter = c.String("if")
	}
	switch {
	case c.IsSet("filter") && c.IsSet("if"):
		return r, usagef("-if is another name of -filter, give one of them and join conditions with &&")
	case len(r.specs) == 0 && !r.hold:
		return r, usagef("no probes given, name at least one with -sym or -addr, or hold the process for gokprobe debugfs with -hold")
	case r.inlined && r.returns:
		return r, usagef("-inlined is for entries, an inlined call has no return; leave out -ret")
	case c.IsSet("maxactive") && r.maxActive <= 0:
		return r, usagef("-maxactive must be at least 1")
	case c.IsSet("maxactive") && !r.returns && !slices.ContainsFunc(r.specs, isReturn):
		return r, usagef("-maxactive is for probes at returns, add -ret or name the function as SPEC%%return")
	case r.stack < 0:
		return r, usagef("-stack is a number of frames and can't be negative")
	case c.IsSet("max-hits") && r.maxHits == 0:
		return r, usagef("-max-hits must be at least 1")
	case c.IsSet("duration") && r.duration <= 0:
		return r, usagef("-duration must be more than 0")
	case r.count && (r.args || r.locals || len(r.globals) > 0 || r.regs || r.stack > 0):
		return r, usagef("-count prints no hits, so it can't be combined with -args, -locals, -globals, -regs or -stack")
	case r.locals && (r.returns || slices.ContainsFunc(r.specs, isReturn)):
		return r, usagef("-locals is for lines and other places in a function, which has returned at its return; leave out -ret and SPEC%%return")
	case r.allRows && !r.count:
		return r, usagef("-all-rows is about the rows that -count prints, add -count")
	case len(r.specs) == 0 && (len(r.fetchArgs) > 0 || len(r.globals) > 0 || isFiltered):
		return r, usagef("-arg, -globals and -filter are for probes, name at least one with -sym or -addr")
	case isFiltered && strings.TrimSpace(r.filter) == "":
		return r, usagef("-filter needs a condition")
	case r.count && len(r.fetchArgs) > 0 && r.filter == "":
		return r, usagef("-count prints no hits, so -arg needs a -filter that looks at it")
	}
	return r, r.checkFetching()
}

// wants returns what the request asks of each hit, as options of package trace.
func (r request) wants() []trace.Want {
	wants := []trace.Want{trace.Fetch(r.fetchArgs...), trace.If(r.filter), trace.Globals(r.globals...), trace.Within(r.bounds), trace.Stack(r.stack), trace.Limit(r.maxHits), trace.FirstStack(r.stackFirst, firstStack)}
	for _, w := range []struct {
		asked bool
		want  trace.Want
	}{
		{r.args, trace.Args()}, {r.locals, trace.Locals()},
		{r.returns, trace.Returns()},
		{r.inlined, trace.Inlined()},
		{r.maxActive > 0, trace.MaxActive(r.maxActive)},
		{r.regs, trace.Regs()},
		{r.count, trace.Count()},
	} {
		if w.asked {
			wants = append(wants, w.want)
		}
	}
	return wants
}

// firstStack is how many frames request.stackFirst prints.
const firstStack = 16

func isReturn(spec string) bool { return strings.HasSuffix(spec, trace.ReturnSuffix) }

// parseFormat reads -format.
func parseFormat(c *cli.Context) (json bool, err error) {
	switch f := c.String("format"); f {
	case "text":
		return false, nil
	case "json":
		return true, nil
	default:
		return false, usagef("unknown format %q, choose text or json", f)
	}
}

// parseReturns reads -returns.
func parseReturns(c *cli.Context) (kprobes.Returns, error) {
	switch way := c.String("returns"); way {
	case "", "sites":
		return kprobes.ReturnSites, nil
	case "rewrite":
		return kprobes.ReturnRewrite, nil
	case "auto":
		return kprobes.ReturnAuto, nil
	default:
		return 0, usagef("unknown way %q to follow calls, choose sites, rewrite or auto", way)
	}
}

// addrSpec turns an -addr value into a SPEC.
func addrSpec(a string) (string, bool) {
	module, digits := "", a
	if i := strings.LastIndexByte(a, ':'); i >= 0 {
		module, digits = a[:i+1], a[i+1:]
	}
	v, err := strconv.ParseUint(digits, 0, 64)
	if err != nil || v == 0 {
		return "", false
	}
	return module + "0x" + strconv.FormatUint(v, 16), true
}

// newPrinter makes the printer that the request asks for.
func (r request) newPrinter(color bool) func(io.Writer) event.Printer {
	return func(w io.Writer) event.Printer {
		if r.json {
			return event.NewJSON(w).Saying(r.logs.message())
		}
		return event.NewText(w, event.TextOptions{Color: color, Message: r.logs.message()})
	}
}

// openOutput opens the file of -o, or returns stdout. color reports whether the text may be
// coloured.
func (r request) openOutput(std stdio) (out *os.File, color bool, err error) {
	if r.output == "" {
		return std.out.file, isColorful(std.out.file), nil
	}
	f, err := os.Create(r.output)
	if err != nil {
		return nil, false, usagef("cannot write to %s: %w", r.output, fileError(err))
	}
	return f, false, nil
}

// columns is how many characters a line of the terminal f has; 0 if f is no terminal.
func columns(f *os.File) int {
	conn, err := f.SyscallConn()
	if err != nil {
		return 0
	}
	n := 0
	_ = conn.Control(func(fd uintptr) {
		if size, err := unix.IoctlGetWinsize(int(fd), unix.TIOCGWINSZ); err == nil {
			n = int(size.Col)
		}
	})
	return n
}

// isColorful reports whether f is a terminal and the user has not turned colours off
// (NO_COLOR: no-color.org).
func isColorful(f *os.File) bool {
	if os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	fi, err := f.Stat()
	return err == nil && fi.Mode()&os.ModeCharDevice != 0
}
