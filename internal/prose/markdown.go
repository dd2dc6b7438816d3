package main

import (
	"bytes"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	east "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/text"
)

// ofMarkdown returns the paragraphs, headings, items and cells of a Markdown file.
// Code blocks are left out, and a code span is one word.
func ofMarkdown(src []byte) []passage {
	doc := goldmark.New(goldmark.WithExtensions(extension.Table)).Parser().Parse(text.NewReader(src))
	var all []passage
	_ = ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n.Kind() {
		case ast.KindParagraph, ast.KindTextBlock, ast.KindHeading, east.KindTableCell:
			if p := inline(n, src); p.text != "" {
				all = append(all, p)
			}
			return ast.WalkSkipChildren, nil
		case ast.KindFencedCodeBlock, ast.KindCodeBlock, ast.KindHTMLBlock:
			return ast.WalkSkipChildren, nil
		}
		return ast.WalkContinue, nil
	})
	return all
}

// inline returns the text of a block, without marks of emphasis and links.
func inline(block ast.Node, src []byte) passage {
	var p passage
	at := func(offset int) {
		line := 1 + bytes.Count(src[:offset], []byte("\n"))
		if len(p.marks) == 0 || p.marks[len(p.marks)-1].line != line {
			p.marks = append(p.marks, mark{len(p.text), line})
		}
	}
	_ = ast.Walk(block, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.CodeSpan:
			if t, ok := n.FirstChild().(*ast.Text); ok {
				at(t.Segment.Start)
			}
			p.text += strings.Join(strings.Fields(string(spanOf(n, src))), "_")
			return ast.WalkSkipChildren, nil
		case *ast.Text:
			at(n.Segment.Start)
			p.text += string(n.Value(src))
			if n.SoftLineBreak() || n.HardLineBreak() {
				p.text += " "
			}
		}
		return ast.WalkContinue, nil
	})
	return p
}

// spanOf returns what stands in a code span.
func spanOf(n *ast.CodeSpan, src []byte) []byte {
	var span []byte
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		if t, ok := c.(*ast.Text); ok {
			span = append(span, t.Value(src)...)
		}
	}
	return span
}
