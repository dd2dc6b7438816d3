package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"github.com/gokprobe/gokprobe/internal/manual"
)

// silentApp is the command without standard files.
func silentApp() *cli.App { return newApp(stdio{err: io.Discard}) }

// everyCommand calls f with each command and the arguments of gokprobe that name it.
func everyCommand(commands []*cli.Command, path []string, f func(c *cli.Command, path []string)) {
	for _, c := range commands {
		p := append(slices.Clone(path), c.Name)
		f(c, p)
		everyCommand(c.Subcommands, p, f)
	}
}

func visibleNames(c *cli.Command) []string {
	var names []string
	for _, f := range c.Flags {
		if v, is := f.(cli.VisibleFlag); is && v.IsVisible() && f.Names()[0] != "help" {
			names = append(names, f.Names()...)
		}
	}
	return names
}

func TestHelpTellsEveryCommandAndFlagInLinesThatFit(t *testing.T) {
	app := silentApp()
	whole, err := helpText(app, nil)
	if err != nil {
		t.Fatal(err)
	}
	fits(t, "help", whole)
	for _, topic := range manual.Topics() {
		if !strings.Contains(whole, "\n    "+topic.Name+" ") {
			t.Errorf("help does not list the topic %s", topic.Name)
		}
		text, err := helpText(app, []string{topic.Name})
		if err != nil || !strings.Contains(text, topic.Title) {
			t.Errorf("help %s: %v, %s", topic.Name, err, text)
		}
		fits(t, "help "+topic.Name, text)
	}
	everyCommand(app.Commands, nil, func(c *cli.Command, path []string) {
		call := strings.Join(path, " ")
		text, err := helpText(app, path)
		if err != nil || !strings.Contains(text, "    gokprobe "+call+" - "+c.Usage[:10]) {
			t.Errorf("help %s: %v, %s", call, err, text)
		}
		if len(path) == 1 && !strings.Contains(whole, "\n    "+c.Name+" ") {
			t.Errorf("help does not list the command %s", c.Name)
		}
		if !strings.HasPrefix(c.UsageText, "gokprobe "+path[0]) {
			t.Errorf("%s is called by %q", call, c.UsageText)
		}
		for _, name := range visibleNames(c) {
			if !strings.Contains(text, "\n    -"+name+" ") && !strings.Contains(text, "\n    -"+name+"\n") {
				t.Errorf("help %s does not tell of -%s", call, name)
			}
		}
		fits(t, "help "+call, text)
	})
}

// fits fails for lines that are longer than a terminal is wide.
func fits(t *testing.T, of, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		if line = strings.TrimRight(line, "\n"); utf8.RuneCountInString(line) > manual.Columns || strings.HasSuffix(line, " ") {
			t.Errorf("%s: %q", of, line)
		}
	}
}

func TestHelpAndDashHSayTheSame(t *testing.T) {
	for _, path := range []string{"", "attach", "debugfs", "debugfs write"} {
		help := gokprobe(t, append([]string{"help"}, strings.Fields(path)...)...)
		dash := gokprobe(t, append(strings.Fields(path), "-h")...)
		if help.stdout != dash.stdout || help.stdout == "" {
			t.Errorf("%q: %s\n%s", path, help.stdout, dash.stdout)
		}
	}
}

func TestEveryCommandAndTopicHasAManPageWithAllFlags(t *testing.T) {
	dir := t.TempDir()
	r := gokprobe(t, "man", dir)
	if r.status != 0 || r.stderr != "" {
		t.Fatalf("%+v", r)
	}
	page := func(name string) string {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
		}
		return string(b)
	}
	if whole := page("man1/gokprobe.1"); !strings.Contains(whole, "\n.SH NAME\ngokprobe \\- ") {
		t.Error(whole)
	}
	everyCommand(silentApp().Commands, nil, func(c *cli.Command, path []string) {
		text := page("man1/gokprobe-" + path[0] + ".1")
		if !strings.Contains(text, "gokprobe\\-"+path[0]+" \\- ") {
			t.Errorf("%s has no name in its page: %s", path[0], text)
		}
		for _, name := range visibleNames(c) {
			if !strings.Contains(text, ".TP\n"+strings.ReplaceAll("-"+name, "-", "\\-")) {
				t.Errorf("the page of %s does not tell of -%s", path[0], name)
			}
		}
	})
	for _, topic := range manual.Topics() {
		if text := page("man7/gokprobe-" + topic.Name + ".7"); !strings.Contains(text, ".SH DESCRIPTION") {
			t.Errorf("%s: %s", topic.Name, text)
		}
	}
	formatsWithoutWarnings(t, dir)
}

// formatsWithoutWarnings has man(1), if it is there, look at the pages.
func formatsWithoutWarnings(t *testing.T, dir string) {
	t.Helper()
	pages, err := filepath.Glob(filepath.Join(dir, "man[17]", "*"))
	if _, none := exec.LookPath("man"); none != nil || err != nil {
		return
	}
	cmd := exec.Command("man", append([]string{"--warnings", "-Tutf8", "-l"}, pages...)...)
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "MANWIDTH=80")
	var warned strings.Builder
	cmd.Stderr = &warned
	if out, err := cmd.Output(); err != nil || warned.Len() > 0 || len(out) == 0 {
		t.Errorf("%v, %d bytes, %s", err, len(out), warned.String())
	}
}

func TestDescriptionsBecomeMarkdown(t *testing.T) {
	d := describe(`Does *this*
and that.

List:
  -a V     first
           and more
  -b       second
More.
  code  -x

  code

Exit status: 0 done,
1 not.

Examples:
  x \
      -y`)
	want := description{
		body:     "Does \\*this\\* and that\\.\n\nList\\:\n\n\\-a V\n: first and more\n\n\\-b\n: second\n\n\n\nMore\\.\n\n    code  -x\n    \n    code\n\n\n",
		status:   "0 done, 1 not\\.\n",
		examples: "    x \\\n        -y\n\n\n",
	}
	if d != want {
		t.Errorf("%q", d)
	}
}
