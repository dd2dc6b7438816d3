package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/gokprobe/gokprobe/internal/manual"
)

// printHelp prints the help for -h: of gokprobe as a whole, or of one command.
func printHelp(w io.Writer, _ string, of any) {
	switch c := of.(type) {
	case *cli.App:
		io.WriteString(w, manual.Text(appPage(c)))
	case *cli.Command:
		io.WriteString(w, manual.Text(commandPage(c, c.HelpName)))
	}
}

func helpCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:      "help",
		Usage:     "show the help of a command, or about a topic",
		UsageText: "gokprobe help [COMMAND|TOPIC]",
		Description: `Without an argument: lists the commands and topics. The same texts are man pages:
gokprobe-COMMAND(1) and gokprobe-TOPIC(7).

Examples:
  gokprobe help attach
  gokprobe help debugfs write
  gokprobe help expressions`,
		BashComplete: func(c *cli.Context) {
			for _, name := range helpNames(c.App) {
				fmt.Fprintln(std.out, name)
			}
		},
		Action: func(c *cli.Context) error {
			text, err := helpText(c.App, c.Args().Slice())
			if err != nil {
				return err
			}
			_, err = io.WriteString(std.out, text)
			return err
		},
	}
}

// helpText returns the help of the command or topic that args name; without args, that of
// gokprobe as a whole.
func helpText(app *cli.App, args []string) (string, error) {
	if len(args) == 0 {
		return manual.Text(appPage(app)), nil
	}
	for _, t := range manual.Topics() {
		if t.Name == args[0] && len(args) == 1 {
			return manual.Text(topicPage(t)), nil
		}
	}
	commands, path := app.Commands, "gokprobe"
	for i, name := range args {
		n := slices.IndexFunc(commands, func(c *cli.Command) bool { return c.Name == name })
		if n < 0 {
			near := nearName(helpNames(app), args[0])
			if i > 0 {
				near = nearCommand(commands, name)
			}
			return "", usagef("no command or topic is named %q%s; gokprobe help lists them", strings.Join(args[:i+1], " "), near)
		}
		path += " " + name
		if i == len(args)-1 {
			return manual.Text(commandPage(commands[n], path)), nil
		}
		commands = commands[n].Subcommands
	}
	panic("unreachable")
}

// helpNames returns the names of all commands and topics.
func helpNames(app *cli.App) []string {
	var names []string
	for _, c := range app.Commands {
		names = append(names, c.Name)
	}
	for _, t := range manual.Topics() {
		names = append(names, t.Name)
	}
	return names
}
