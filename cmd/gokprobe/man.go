package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/gokprobe/gokprobe/internal/manual"
)

func manCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:      "man",
		Usage:     "write the man pages",
		UsageText: "gokprobe man DIR",
		Description: `Writes gokprobe(1), a page for each command, and a page for each topic. They go into man1
and man7 below the directory DIR. Packages contain these pages; the command is for
gokprobe as installed by go install.

Examples:
  gokprobe man ~/.local/share/man
  man gokprobe-attach`,
		Action: func(c *cli.Context) error {
			if c.NArg() != 1 {
				return usagef("name one directory: gokprobe man DIR")
			}
			pages := manPages(c.App)
			for _, p := range pages {
				if err := writePage(c.Args().First(), p); err != nil {
					return err
				}
			}
			_, err := fmt.Fprintf(std.out, "%d pages written to %s\n", len(pages), c.Args().First())
			return err
		},
	}
}

func writePage(dir string, p manual.Page) error {
	name := filepath.Join(dir, p.File())
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return fmt.Errorf("cannot write man pages: %w", err)
	}
	if err := os.WriteFile(name, p.Man(), 0o644); err != nil {
		return fmt.Errorf("cannot write man pages: %w", err)
	}
	return nil
}

// manPages are all pages of the manual.
func manPages(app *cli.App) []manual.Page {
	see := "# SEE ALSO\n\ngokprobe(1)"
	for _, t := range manual.Topics() {
		see += fmt.Sprintf(", gokprobe-%s(%d)", t.Name, manual.Section)
	}
	page := func(name string, section int, body string) manual.Page {
		return manual.Page{Name: name, Section: section, Date: buildDate(), Version: buildVersion(version), Body: body + "\n" + see + "\n"}
	}
	pages := []manual.Page{page("gokprobe", 1, appPage(app))}
	for _, c := range app.Commands {
		name := "gokprobe-" + c.Name
		pages = append(pages, page(name, 1, commandPage(c, name)))
	}
	for _, t := range manual.Topics() {
		pages = append(pages, page("gokprobe-"+t.Name, manual.Section, topicPage(t)))
	}
	return pages
}

// buildDate returns the date for the pages: that of SOURCE_DATE_EPOCH (reproducible-builds.org),
// else that of the revision from which gokprobe was built, else "".
func buildDate() string {
	if s, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64); err == nil {
		return time.Unix(s, 0).UTC().Format(time.DateOnly)
	}
	revision := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.time" {
				revision = s.Value
			}
		}
	}
	t, err := time.Parse(time.RFC3339, cmp.Or(revision, "none"))
	if err != nil {
		return ""
	}
	return t.UTC().Format(time.DateOnly)
}
