package main

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/gokprobe/gokprobe/internal/host"
)

func newApp(std stdio) *cli.App {
	cli.VersionFlag = &cli.BoolFlag{Name: "version", Usage: "print the version", DisableDefaultText: true}
	cli.HelpFlag = &cli.BoolFlag{Name: "help", Aliases: []string{"h"}, Usage: "show help", DisableDefaultText: true}
	cli.HelpPrinter = printHelp
	app := &cli.App{
		Name:      "gokprobe",
		Usage:     "kprobes for live user processes",
		UsageText: "gokprobe COMMAND [flags]",
		Description: `Probes functions of running processes: no rebuild, no restart, no preparation.
"gokprobe help COMMAND" shows a command's flags and examples, "gokprobe help TOPIC" explains
things that several commands share. Flags take one dash or two.

Start with:
  gokprobe demo
  gokprobe list -p PID 'main*'
  gokprobe attach -p PID -sym FUNCTION`,
		Version:   fullVersion(),
		Flags:     []cli.Flag{cli.HelpFlag}, // the library adds it only along with a help command of its own
		Reader:    std.in,
		Writer:    std.out,
		ErrWriter: std.err,
		Commands: []*cli.Command{
			attachCommand(std), runCommand(std), logCommand(std), dapCommand(std), injectCommand(std), scriptCommand(std), listCommand(std), checkCommand(std), demoCommand(std), recoverCommand(std), benchCommand(std), debugfsCommand(std), completionCommand(std), manCommand(std), helpCommand(std),
		},
		EnableBashCompletion:      true,
		DisableSliceFlagSeparator: true,                         // f(int, char) is one SPEC
		HideHelpCommand:           true,                         // ours knows topics
		ExitErrHandler:            func(*cli.Context, error) {}, // Main prints
		OnUsageError:              flagError,
		Action:                    noCommand,
		Before:                    func(*cli.Context) error { return host.Supported() },
	}
	for _, c := range app.Commands {
		plain(c)
	}
	return app
}

// twice returns an error if a flag that takes one value is given twice. The flag package
// would silently use the last value.
func twice(app *cli.App, args []string) error {
	if len(args) < 2 || slices.Contains(args, "--generate-bash-completion") {
		return nil
	}
	c := app.Command(args[1])
	seen := map[string]bool{}
	for rest := args[2:]; c != nil && len(rest) > 0; {
		arg := rest[0]
		if rest = rest[1:]; len(arg) < 2 || arg[0] != '-' || arg == "--" {
			return nil
		}
		name, _, valued := strings.Cut(strings.TrimPrefix(arg[1:], "-"), "=")
		i := slices.IndexFunc(c.Flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), name) })
		if i < 0 {
			return nil // the parser will tell
		}
		if _, is := c.Flags[i].(*cli.BoolFlag); is {
			continue
		}
		if !valued && len(rest) > 0 {
			rest = rest[1:]
		}
		_, texts := c.Flags[i].(*cli.StringSliceFlag)
		_, numbers := c.Flags[i].(*cli.IntSliceFlag)
		if seen[name] && !texts && !numbers {
			return usagef("-%s is given twice, and takes one value: leave one out", name)
		}
		seen[name] = true
	}
	return nil
}

// plain sets up a command and its subcommands: flag errors become one sentence, and the
// library adds no help command.
func plain(c *cli.Command) {
	c.OnUsageError = flagError
	c.HideHelpCommand = true
	for _, sub := range c.Subcommands {
		plain(sub)
	}
}

// noCommand runs when the first argument names no command.
func noCommand(c *cli.Context) error {
	if !c.Args().Present() {
		c.App.Writer = c.App.ErrWriter
		_ = cli.ShowAppHelp(c)
		return usagef("no command given")
	}
	name := c.Args().First()
	return usagef("unknown command %q%s; gokprobe -h lists the commands", name, nearCommand(c.App.Commands, name))
}

// flagError turns the flag package's errors into our sentences.
func flagError(c *cli.Context, err error, _ bool) error {
	help := "gokprobe -h"
	if c.Command != nil && c.Command.Name != "" && c.Command.Name != "gokprobe" {
		help = c.Command.HelpName + " -h"
	}
	text := err.Error()
	if name, ok := strings.CutPrefix(text, "flag provided but not defined: "); ok {
		name = strings.TrimLeft(name, "-")
		return usagef("unknown flag -%s%s; %s lists the flags", name, nearFlag(c.Command.Flags, name), help)
	}
	if name, ok := strings.CutPrefix(text, "flag needs an argument: "); ok {
		return usagef("flag %s needs a value; see %s", name, help)
	}
	if sentence := unitOf(text); sentence != "" && isTime(c, text) {
		return usagef("%s", sentence)
	}
	return usagef("%s; see %s", text, help)
}
