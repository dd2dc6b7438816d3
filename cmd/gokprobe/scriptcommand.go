package main

import "github.com/urfave/cli/v2"

const scriptDescription = `Executes the scenario: it names probes, what is done at their hits, what is to fail, and
what is expected. When the whole file has been executed without an error its probes are
armed, and one line on stderr says so. It ends with stop(), -duration, Ctrl-C or the end
of the process; the probes are then removed, functions given to at_end() and test() are
called, and a summary is printed on stderr. print() goes to stderr, report() to stdout.
To start a program under a scenario: gokprobe run -script SCENARIO.star -- COMMAND.

  def pre(ctx):
      if ctx.string(ctx.arg(0)).endswith(".conf"):
          ctx.fail(-1, errno = "ENOENT")

  kprobe("libc.so.6:open64", pre = pre)
  after("10s", stop)

In a scenario: kprobe(spec, pre=, post=, args=, filter=), kretprobe(spec, entry=, ret=, args=,
filter=), after(d, f), every(d, f), phase(name), stop(), counter(name), report(…),
expect(cond, message), fail(message), test(name, f), at_end(f), symbol(name), signed(n, bits),
args, state, target, targets(), random, json, math, time, struct. In a handler: ctx.arg(n), ctx.args.NAME,
ctx.regs.NAME, ctx.ret, ctx.read, ctx.write, ctx.string, ctx.int, ctx.set_int, ctx.set_arg,
ctx.fail, ctx.skip, ctx.set_errno, ctx.delay, ctx.signal, ctx.call, ctx.stack, ctx.pid,
ctx.tid, ctx.comm, ctx.time, ctx.data. All of them are told in script/README.md.

A function of the scenario that does not come to its end is cut off after -steps steps; it,
or whatever else goes wrong in it, is told with its line, its probe is disabled, and the
process goes on. Then, or if an expectation was not met, the scenario has failed.

Several processes are under one scenario: -p may be given again, -p NAME -all takes all
processes of that name, and -x FILE every process that runs or maps FILE, a program or a
library, also those that come later. Its globals, state, counters and checks are there once,
and handlers of all processes run one at a time. Whatever ctx tells and does, and target and
symbol() in a handler, is about the process of the hit: ctx.pid tells them apart, and targets()
lists them. A handler's probes, faults and switches are in its own process at once, in the others
a moment later. Faults count as with gokprobe inject: in each process by itself, times= and
rate= for all together. A process that ends leaves the others; stop() ends the scenario in all.
Outside of handlers there is no one process, so symbol(), target and PROBE.addrs are errors
there. A number as a place, and require_start= and its like, are errors everywhere.

Exit status: 0 done, 1 the scenario has failed, 2 wrong usage or a mistake in the file,
3 cannot attach, 4 cannot place a probe. After 2, 3 and 4 nothing was armed.

Examples:
  gokprobe script -p 4711 slow-malloc.star
  gokprobe script -p redis-server -seed 7 -duration 1m flaky-write.star -- 10%
  gokprobe script -p postgres -all -duration 1m slow-fsync.star
  gokprobe script -x /usr/lib/libssl.so.3 tls.star
  gokprobe run -script full-disk.star -report junit:result.xml -- ./server`

func scriptCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:        "script",
		Usage:       "run a scenario, a Starlark program, on running processes",
		UsageText:   "gokprobe script (-p PID [-p PID …] | -p NAME -all | -x FILE) [flags] SCENARIO.star [-- ARG …]",
		Description: scriptDescription,
		Flags: append(append(whomFlags("attach to"),
			&cli.DurationFlag{Name: "duration", Usage: "end after time `D`: 10s, 2m"},
			&cli.StringFlag{Name: "format", Value: "text", Usage: "print reports and the summary as `FORMAT`, text or json (one object a line)"},
			&cli.StringFlag{Name: "o", Usage: "print to `FILE` instead of stdout"},
			&cli.BoolFlag{Name: "no-boost", Usage: "single-step each copied instruction instead of jumping back after it"},
			&cli.BoolFlag{Name: "no-optimize", Usage: "keep the breakpoints of probes whose hits a jump could bring to code in the process"},
			&cli.BoolFlag{Name: "follow", Usage: "probe forked children and programs started by exec as well, until all of them have ended"},
		), scriptFlags()...),
		Action: func(c *cli.Context) error { return scriptOn(std, c) },
	}
}

// scriptOn is the script command, from its flags on.
func scriptOn(std stdio, c *cli.Context) error {
	rest := c.Args().Slice()
	if len(rest) == 0 {
		return usagef("no scenario given, name its file: gokprobe script -p PID SCENARIO.star")
	}
	req, err := parseScript(c, rest[0])
	if err != nil {
		return err
	}
	if rest = rest[1:]; len(rest) > 0 && rest[0] != "--" {
		return usagef("unexpected argument %q; flags come before the scenario, its own arguments behind --", rest[0])
	} else if len(rest) > 0 {
		req.args = rest[1:]
	}
	who := parseWhom(c)
	to, several, err := who.findTargets()
	switch {
	case err != nil:
		return err
	case several:
		return scriptSeveral(std, to, who, req)
	}
	req.meant, req.who = to[0].id, who
	return scriptAttached(std, to[0].pid, req)
}
