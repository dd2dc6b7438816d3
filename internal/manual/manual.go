// Package manual turns the manual's Markdown into text for a terminal and into man
// pages. It holds the texts of the topics that belong to no single command.
//
// The Markdown is what go-md2man understands: headings, paragraphs, lists, definition lists, code.
package manual

import (
	"bytes"
	"cmp"
	"embed"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/cpuguy83/go-md2man/v2/md2man"
)

// Section is the part of the manual that topics belong to; commands belong to part 1.
const Section = 7

//go:embed topics/*.md
var topics embed.FS

// Topic is a text of the manual.
type Topic struct {
	Name  string // what gokprobe help calls it
	Title string // one line, in lower case
	Body  string // Markdown
}

// Topics are all topics, by name. A file's first line is its title, as a heading.
func Topics() []Topic {
	files, err := topics.ReadDir("topics")
	if err != nil {
		panic(err) // can't be: the folder is embedded
	}
	all := make([]Topic, 0, len(files))
	for _, f := range files {
		b, err := topics.ReadFile(path.Join("topics", f.Name()))
		if err != nil {
			panic(err)
		}
		title, body, _ := strings.Cut(string(b), "\n")
		all = append(all, Topic{strings.TrimSuffix(f.Name(), ".md"), strings.TrimPrefix(title, "# "), body})
	}
	slices.SortFunc(all, func(a, b Topic) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// Page is one page of the manual.
type Page struct {
	Name    string // gokprobe-attach
	Section int
	Date    string // 2026-11-25; may be empty
	Version string
	Body    string // Markdown
}

// File is the page's path below a folder of man pages.
func (p Page) File() string { return fmt.Sprintf("man%d/%s.%d", p.Section, p.Name, p.Section) }

// Man is the page for man(1).
func (p Page) Man() []byte {
	title := fmt.Sprintf("%% %q \"%d\" %q %q \"gokprobe manual\"\n\n", strings.ToUpper(p.Name), p.Section, p.Date, "gokprobe "+p.Version)
	var b bytes.Buffer
	for line := range bytes.Lines(md2man.Render([]byte(title + p.Body))) {
		if line[0] != '.' {
			line = hyphen.ReplaceAll(line, []byte(`$1\-`))
		}
		b.Write(line)
	}
	return b.Bytes()
}

// hyphen is one that roff may print as a hyphen, and not as the minus sign that flags begin with.
var hyphen = regexp.MustCompile(`(^|[^\\])-`)

// escaped are the characters that mean something in Markdown, wherever they stand.
const escaped = "\\`*_{}[]()#+-.!:|&<>~"

// Escape makes Markdown of plain text that says the same. Its newlines are blanks.
func Escape(text string) string {
	var b strings.Builder
	for _, r := range strings.Join(strings.Fields(text), " ") {
		if strings.ContainsRune(escaped, r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// Code makes Markdown of lines that are to stay as they are.
func Code(lines []string) string {
	return "    " + strings.Join(lines, "\n    ") + "\n"
}
