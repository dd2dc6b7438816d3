package main

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/gokprobe/gokprobe/cmd/gokprobe/internal/event"
	"github.com/gokprobe/gokprobe/expr/logpoint"
	"github.com/gokprobe/gokprobe/internal/escape"
	"github.com/gokprobe/gokprobe/internal/logline"
	"github.com/gokprobe/gokprobe/trace"
)

const logDescription = `Prints lines that were not written into the program: a log point is a place, a text in
quotes with expressions in braces, and perhaps a condition:

  SPEC "text {expression} text" [if CONDITION]

SPEC is that of attach: file.c:42, a function, function%return, a pattern. Expressions are
those of -arg ("gokprobe help expressions"): variables with members and elements as the
source writes them, len(x), *p, registers, fetch arguments. They are printed as the source's
language does, texts without quotes. Everywhere there are {comm}, {pid}, {tid} and {symbol},
at returns {ret}, {ret.member} and {duration}; a variable of such a name is {(pid)}. What
is not known is a question mark, and memory that can't be read is (fault). {{ and }} print a
brace. CONDITION is a -filter. At returns, parameters are what they were at the entry, and
are printed as -arg prints them: numbers, addresses, NAME:string.

The process is not stopped for a line where the target can record what it says, which the
summary tells as for attach ("optimized"), unless there is a -max-hits. Each log point has a
budget: -rate lines a second, beyond which they are counted and not printed, and -max-hits
lines in all.

Log points may stand in a file, one a line; empty lines and those that begin with # say
nothing. If one is wrong no line is printed, whatever the others have seen.

COMMAND is started under the log points, as gokprobe run does. Its own output is where that
of gokprobe is, unless -o names a file.

Exit status: that of attach, with COMMAND that of run.

Examples:
  gokprobe log -p 4711 'order.go:42 "order {o.ID} of {len(o.Items)}" \
      if o.Total > 100'
  gokprobe log -p nginx 'ngx_http_process_request "{r->uri} from {pid}"'
  gokprobe log -p 4711 'parse%return "{ret} after {duration}" \
      if duration > 1ms'
  gokprobe log -o log.txt 'main.c:17 "{argc} {argv[1]:string}"' -- ./prog -v
  gokprobe log -p 4711 -file points.txt -rate 10 -duration 10m \
      -format json -o log.jsonl`

// defaultRate is how many lines a second a log point prints.
const defaultRate = 100

// logFlags are those of probeFlags that log points have too.
var logFlags = []string{"inlined", "duration", "format", "o", "follow", "maxactive", "no-optimize", "returns", "depth", "items", "bytes"}

func logCommand(std stdio) *cli.Command {
	flags := append(whomFlags("attach to"),
		&cli.StringFlag{Name: "file", Usage: "read log points from `FILE`, one a line"},
		&cli.IntFlag{Name: "rate", Value: defaultRate, Usage: "print up to `N` lines a second of each log point; 0 for all"},
		&cli.Uint64Flag{Name: "max-hits", Usage: "end a log point after `N` lines"})
	for _, f := range probeFlags() {
		if slices.Contains(logFlags, f.Names()[0]) {
			flags = append(flags, f)
		}
	}
	return &cli.Command{
		Name:  "log",
		Usage: "print lines from a running process, at places and with values of your choice",
		UsageText: "gokprobe log (-p PID [-p PID …] | -p NAME -all | -x FILE) [flags] 'SPEC \"text {expression}\" [if CONDITION]' …\n" +
			"gokprobe log [flags] 'SPEC \"text {expression}\" [if CONDITION]' … -- COMMAND [ARG …]",
		Description: logDescription,
		Flags:       flags,
		Action: func(c *cli.Context) error {
			texts, command := cutCommand(c.Args().Slice(), c.IsSet("file") && !hasWhom(c))
			req, err := parseLogRequest(c, texts)
			switch {
			case err != nil:
				return err
			case command == nil && !hasWhom(c):
				return usagef("no process given, name it with -p PID, or a command to start behind the log points: -- COMMAND")
			case command == nil:
				return attachAll(std, parseWhom(c), req)
			case len(command) == 0:
				return usagef("no command given behind --")
			case hasWhom(c):
				return usagef("-p and -x name running processes, and a COMMAND is one to start; leave one of them out")
			}
			return run(std, command, req, newWork)
		},
	}
}

// hasWhom tells that running processes are named.
func hasWhom(c *cli.Context) bool { return c.IsSet("p") || c.IsSet("x") }

// cutCommand cuts the log points from the command behind --, which is nil without one. If the log points stand in a file alone, the flag package has taken the -- away.
func cutCommand(args []string, isCommand bool) (texts, command []string) {
	if isCommand && len(args) > 0 && !strings.Contains(args[0], `"`) {
		return nil, args
	}
	if i := slices.Index(args, "--"); i >= 0 {
		return args[:i:i], args[i+1:]
	}
	return args, nil
}

// parseLogRequest reads the flags and the log points.
func parseLogRequest(c *cli.Context, texts []string) (r request, err error) {
	r = request{
		inlined: c.Bool("inlined"), maxActive: c.Int("maxactive"), maxHits: c.Uint64("max-hits"), duration: c.Duration("duration"),
		output: c.String("o"), noOptimize: c.Bool("no-optimize"), follow: c.Bool("follow"),
	}
	if r.json, err = parseFormat(c); err != nil {
		return r, err
	}
	if r.byReturns, err = parseReturns(c); err != nil {
		return r, err
	}
	if r.bounds, err = parseBounds(c); err != nil {
		return r, err
	}
	if name := c.String("file"); name != "" {
		more, err := readLogPoints(name)
		if err != nil {
			return r, err
		}
		texts = append(texts, more...)
	}
	switch {
	case len(texts) == 0:
		return r, usagef("no log points given: name a place and a text, as in 'file.c:42 \"n is {n}\"', or a -file of them")
	case c.Int("rate") < 0:
		return r, usagef("-rate is a number of lines and can't be negative")
	case c.IsSet("max-hits") && r.maxHits == 0:
		return r, usagef("-max-hits must be at least 1")
	case c.IsSet("maxactive") && r.maxActive <= 0:
		return r, usagef("-maxactive must be at least 1")
	case c.IsSet("duration") && r.duration <= 0:
		return r, usagef("-duration must be more than 0")
	}
	for i, text := range texts {
		if strings.HasPrefix(text, "-") { // the flag package stops at the first argument
			return r, usagef("%s is behind a log point: put flags in front of the log points", escape.Quote(text))
		}
		p, err := newLogPoint(text, i, c.Int("rate"))
		if err != nil {
			return r, err
		}
		r.logs = append(r.logs, p)
	}
	return r, r.checkLogs()
}

// readLogPoints reads a file of log points.
func readLogPoints(name string) (texts []string, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, usagef("cannot read %s: %w", name, fileError(err))
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if text := strings.TrimSpace(lines.Text()); text != "" && text[0] != '#' {
			texts = append(texts, text)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, usagef("cannot read %s: %w", name, fileError(err))
	}
	return texts, nil
}

// logPoint is a log point, and what has become of it.
type logPoint struct {
	*logline.Line
	label string
	pace  *trace.Pace
}

// logPoints are those of a request.
type logPoints []*logPoint

// newLogPoint reads number i of the log points.
func newLogPoint(text string, i, rate int) (*logPoint, error) {
	p, err := logpoint.Parse(text)
	if err != nil {
		return nil, pointAt("log point", err)
	}
	l := &logPoint{Line: logline.New(p), label: fmt.Sprint(i)}
	if rate > 0 {
		l.pace = trace.NewPace(rate)
	}
	return l, nil
}

// wants are what is wanted of a log point's hits.
func (l *logPoint) wants(r request) []trace.Want {
	wants := append(l.Wants(), trace.Label(l.label), trace.Within(r.bounds), trace.Limit(r.maxHits))
	if l.pace != nil {
		wants = append(wants, trace.At(l.pace))
	}
	if r.inlined {
		wants = append(wants, trace.Inlined())
	}
	if r.maxActive > 0 {
		wants = append(wants, trace.MaxActive(r.maxActive))
	}
	return wants
}

func (all logPoints) asks(r request) []ask {
	list := make([]ask, len(all))
	for i, l := range all {
		list[i] = ask{[]string{l.Spec}, l.wants(r), true}
	}
	return list
}

// checkLogs finds mistakes in log points before gokprobe attaches.
func (r request) checkLogs() error {
	for _, a := range r.asks() {
		if err := trace.Check(isReturn(a.specs[0]), a.wants...); err != nil {
			return a.placedError(err)
		}
	}
	return nil
}

// message is how the line of a hit is made; nil without log points.
func (all logPoints) message() func(*event.Hit) string {
	if len(all) == 0 {
		return nil
	}
	byLabel := map[string]*logPoint{}
	for _, l := range all {
		byLabel[l.label] = l
	}
	return func(h *event.Hit) string { return byLabel[h.Label].Says(h) }
}

// tellOver says how many lines were not printed since they were more than -rate.
func (all logPoints) tellOver(std stdio) {
	for _, l := range all {
		if n := l.over(); n > 0 {
			std.warn("%s: %s not printed, since they were more than -rate %d a second", escape.Line(l.Spec), escape.Count(int(n), "line"), l.pace.Most())
		}
	}
}

func (l *logPoint) over() uint64 {
	if l.pace == nil {
		return 0
	}
	return l.pace.Over()
}
