package manual

import (
	"strings"
	"unicode/utf8"

	"github.com/cpuguy83/go-md2man/v2/md2man"
	"github.com/russross/blackfriday/v2"
)

// Columns is how long a line of Text is at most, unless it is code or one long word.
const Columns = 80

const (
	indent    = 4  // of what stands below a heading
	defIndent = 18 // of a definition, behind its term
)

// Text turns Markdown into text for a terminal: headings, and the text below each.
func Text(markdown string) string {
	parser := blackfriday.New(blackfriday.WithExtensions(md2man.NewRoffRenderer().GetExtensions()))
	w := &writer{}
	w.blocks(parser.Parse([]byte(markdown)), indent)
	return w.String()
}

// writer writes blocks of text.
type writer struct {
	strings.Builder
	tight bool // no empty line is wanted in front of the next block
}

// gap separates a block from the one before it.
func (w *writer) gap() {
	if w.Len() > 0 && !w.tight {
		w.WriteByte('\n')
	}
	w.tight = false
}

// blocks writes the blocks in n, at column at.
func (w *writer) blocks(n *blackfriday.Node, at int) {
	for c := n.FirstChild; c != nil; c = c.Next {
		switch c.Type {
		case blackfriday.Heading:
			w.gap()
			at = indent
			if c.Level > 1 { // below another heading
				w.WriteString(strings.Repeat(" ", at))
				at += indent
			}
			w.WriteString(inline(c) + "\n")
			w.tight = true
		case blackfriday.Paragraph:
			w.gap()
			w.fill("", inline(c), at, at)
		case blackfriday.CodeBlock:
			w.gap()
			w.code(string(c.Literal), at)
		case blackfriday.List:
			w.gap()
			w.list(c, at)
		default:
			panic("the manual's text has a " + c.Type.String() + ", which is not printed")
		}
	}
}

// code writes lines as they are.
func (w *writer) code(text string, at int) {
	for line := range strings.Lines(text) {
		if line = strings.TrimRight(line, "\n"); line != "" {
			line = strings.Repeat(" ", at) + line
		}
		w.WriteString(line + "\n")
	}
}

// list writes a list, or terms with their definitions.
func (w *writer) list(n *blackfriday.Node, at int) {
	term := ""
	for c := n.FirstChild; c != nil; c = c.Next {
		switch {
		case c.ListFlags&blackfriday.ListTypeTerm != 0:
			term = inline(c)
		case c.ListFlags&blackfriday.ListTypeDefinition != 0:
			w.fill(term, inline(c), at, at+defIndent)
		default:
			w.fill("-", inline(c), at, at+2)
		}
	}
}

// fill writes a text in lines, at column to, behind a term at column at.
func (w *writer) fill(term, text string, at, to int) {
	line := ""
	if term != "" {
		line = strings.Repeat(" ", at) + term
		if utf8.RuneCountInString(line)+1 > to {
			w.WriteString(line + "\n")
			line = ""
		}
	}
	line += strings.Repeat(" ", to-utf8.RuneCountInString(line))
	empty := true
	for word := range strings.FieldsSeq(text) {
		if !empty && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > Columns {
			w.WriteString(line + "\n")
			line, empty = strings.Repeat(" ", to), true
		}
		if !empty {
			line += " "
		}
		line += word
		empty = false
	}
	w.WriteString(line + "\n")
}

// inline is the text in n, without marks.
func inline(n *blackfriday.Node) string {
	var b strings.Builder
	n.Walk(func(c *blackfriday.Node, entering bool) blackfriday.WalkStatus {
		switch {
		case !entering:
		case c.Type == blackfriday.Text, c.Type == blackfriday.Code:
			b.Write(c.Literal)
		case c.Type == blackfriday.Softbreak, c.Type == blackfriday.Hardbreak:
			b.WriteByte(' ')
		case c.Type == blackfriday.Paragraph && c != n && b.Len() > 0:
			b.WriteByte(' ')
		}
		return blackfriday.GoToNext
	})
	return b.String()
}
