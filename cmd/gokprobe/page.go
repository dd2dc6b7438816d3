package main

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/gokprobe/gokprobe/internal/manual"
)

// Help texts and man pages are made from the same Markdown. For a command, this file makes
// the Markdown from its cli.Command. The Description in that is plain text:
//
//   - Paragraphs are filled.
//   - Lines that begin with two blanks stay as they are. If the first has the form
//     "  -flag  meaning", they are a list.
//   - "Exit status: …" and "Examples:" begin parts that get a heading of their own.

// commandPage is the Markdown of a command.
func commandPage(c *cli.Command, title string) string {
	d := describe(c.Description)
	var b strings.Builder
	section(&b, "NAME", title+" - "+manual.Escape(c.Usage)+"\n")
	section(&b, "SYNOPSIS", manual.Escape(c.UsageText)+"\n")
	section(&b, "DESCRIPTION", d.body)
	section(&b, "COMMANDS", subcommands(c))
	section(&b, "OPTIONS", options(c.Flags))
	section(&b, "EXIT STATUS", d.status)
	section(&b, "EXAMPLES", d.examples)
	return b.String()
}

// appPage is the Markdown of gokprobe as a whole.
func appPage(app *cli.App) string {
	d := describe(app.Description)
	var b, topics strings.Builder
	section(&b, "NAME", app.Name+" - "+manual.Escape(app.Usage)+"\n")
	section(&b, "SYNOPSIS", manual.Escape(app.UsageText)+"\n")
	section(&b, "DESCRIPTION", d.body)
	section(&b, "COMMANDS", commandList(app.Commands))
	for _, t := range manual.Topics() {
		define(&topics, t.Name, t.Title)
	}
	section(&b, "TOPICS OF gokprobe help", topics.String())
	section(&b, "OPTIONS", option(cli.HelpFlag)+option(cli.VersionFlag))
	return b.String()
}

// topicPage is the Markdown of a topic.
func topicPage(t manual.Topic) string {
	return "# NAME\n\ngokprobe-" + t.Name + " - " + t.Title + "\n\n# DESCRIPTION\n" + t.Body
}

// section writes a heading and the text below it, or nothing if there is no text.
func section(b *strings.Builder, heading, markdown string) {
	if markdown != "" {
		fmt.Fprintf(b, "# %s\n\n%s\n", heading, markdown)
	}
}

// define writes an item of a definition list: a term and its meaning, both plain text.
func define(b *strings.Builder, term, meaning string) {
	fmt.Fprintf(b, "%s\n: %s\n\n", manual.Escape(term), manual.Escape(meaning))
}

func commandList(commands []*cli.Command) string {
	var b strings.Builder
	for _, c := range commands {
		if !c.Hidden {
			define(&b, c.Name, c.Usage)
		}
	}
	return b.String()
}

// subcommands is the list of a command's own commands, each with its description and options.
func subcommands(c *cli.Command) string {
	var b strings.Builder
	b.WriteString(commandList(c.Subcommands))
	for _, sub := range c.Subcommands {
		_, args, _ := strings.Cut(sub.UsageText, " "+sub.Name)
		fmt.Fprintf(&b, "### %s\n\n%s\n%s\n", manual.Escape(sub.Name+args), describe(sub.Description).body, options(sub.Flags))
	}
	return b.String()
}

// options is the list of a command's flags, without -help, which all have.
func options(flags []cli.Flag) string {
	var b strings.Builder
	for _, f := range flags {
		if visible, is := f.(cli.VisibleFlag); f.Names()[0] != "help" && (!is || visible.IsVisible()) {
			b.WriteString(option(f))
		}
	}
	return b.String()
}

func option(f cli.Flag) string {
	doc, documented := f.(cli.DocGenerationFlag)
	if !documented {
		return ""
	}
	value, usage := placeholder(doc.GetUsage())
	term := "-" + strings.Join(f.Names(), ", -")
	if doc.TakesValue() {
		term += " " + cmp.Or(value, "V")
	}
	if def := standard(doc); def != "" {
		usage += " (default: " + def + ")"
	}
	var b strings.Builder
	define(&b, term, usage)
	return b.String()
}

// placeholder returns the name that a flag's usage gives its value, between backticks, and
// the usage without the backticks.
func placeholder(usage string) (value, plain string) {
	before, rest, _ := strings.Cut(usage, "`")
	value, after, marked := strings.Cut(rest, "`")
	if !marked {
		return "", usage
	}
	return value, before + value + after
}

// standard returns the default of a flag, or "" if it is a zero value, which needs no word.
func standard(f cli.DocGenerationFlag) string {
	switch v := f.GetValue(); {
	case !f.TakesValue(), v == "0", v == "0s", v == "[]":
		return ""
	default:
		return v
	}
}

// description is a command's Description, its parts as Markdown.
type description struct{ body, status, examples string }

// describe turns a command's Description into Markdown.
func describe(text string) description {
	var d description
	to := &d.body
	for _, block := range blocks(text) {
		const status = "Exit status: "
		switch plain := strings.Join(block, " "); {
		case plain == "Examples:":
			to = &d.examples
			continue
		case strings.HasPrefix(plain, status):
			d.status = manual.Escape(strings.TrimPrefix(plain, status)) + "\n"
			continue
		case !isVerbatim(block[0]):
			*to += manual.Escape(plain)
		default:
			*to += listOrCode(block)
		}
		*to += "\n\n"
	}
	return d
}

func isVerbatim(line string) bool { return strings.HasPrefix(line, "  ") }

// blocks splits a text into blocks of lines: paragraphs, and runs of verbatim lines. Empty
// lines end a paragraph, but not a verbatim run.
func blocks(text string) [][]string {
	var all [][]string
	open := false // the last block may go on
	for line := range strings.SplitSeq(text, "\n") {
		n := len(all)
		switch {
		case line == "":
			open = false
		case n > 0 && isVerbatim(line) && isVerbatim(all[n-1][0]):
			if !open {
				all[n-1] = append(all[n-1], "")
			}
			all[n-1] = append(all[n-1], line)
			open = true
		case open && !isVerbatim(line) && !isVerbatim(all[n-1][0]):
			all[n-1] = append(all[n-1], line)
		default:
			all = append(all, []string{line})
			open = true
		}
	}
	return all
}

// term matches the first line of a list item: "  -flag V  meaning".
var term = regexp.MustCompile(`^  (-\S+(?: \S+)*) {2,}(\S.*)$`)

// listOrCode is the Markdown of verbatim lines: a definition list if the first is an item,
// else code.
func listOrCode(lines []string) string {
	var b strings.Builder
	name, meaning := "", ""
	for _, line := range lines {
		m := term.FindStringSubmatch(line)
		switch {
		case m != nil && name != "":
			define(&b, name, meaning)
			fallthrough
		case m != nil:
			name, meaning = m[1], m[2]
		case name == "":
			for i := range lines {
				lines[i] = strings.TrimPrefix(lines[i], "  ")
			}
			return manual.Code(lines)
		default:
			meaning += " " + line
		}
	}
	define(&b, name, meaning)
	return b.String()
}
