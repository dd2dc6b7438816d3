package main

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/clipperhouse/uax29/v2/sentences"
)

// maxWords is how many words a sentence may have before it is a suspect.
const maxWords = 25

// Kinds of suspects that are no pattern of words.
const (
	kindLong      = "long"      // more than maxWords words
	kindPredicate = "predicate" // a bool whose name does not read as a question
)

// rule is a pattern of words that marks its sentence.
type rule struct {
	kind    string
	pattern *regexp.Regexp
}

// rules mark what is hard to read, or what has a better word here:
//
//   - causative: "has the thread run": who does what is turned around
//   - relative: a clause that stands for a thing, "what is known", "those that",
//     "of which"
//   - inversion: "so is", "nor does"
//   - program: the traced process is called the target; a program runs inside it
var rules = []rule{
	{"causative", regexp.MustCompile(`(?i)\b(has|have|had|having) (the|a|an|its|their|each|all|every|any|other|others|another|some|one|two|it|them|him|that|this|those|these|both|no|nobody|nothing|\w+'s|[a-z]|[a-z][a-np-z]|[a-z]{3})( [\w'*.]+){0,5}? (` + bareVerbs + `)\b`)},
	{"relative", regexp.MustCompile(`(?i)\b(what (is|are|was|were|has|have|had|can|could|may|might|must|will|would|does|do|did|it|they|we|[a-z]+s)|those (that|who|which)|that which|of which|whoever|whatever)\b`)},
	{"inversion", regexp.MustCompile(`(?i)\b(so|nor|neither|as) (is|are|was|were|does|do|did|has|have|had|can|could|may|might|must|will|would)\b`)},
	{"program", regexp.MustCompile(`(?i)\b(the|a|that|this|traced|probed|its|our|another|whose) (traced |probed )?program('s)?\b`)},
}

// bareVerbs follow their subject in a causative.
const bareVerbs = `be|become|begin|belong|call|come|count|do|end|enter|execute|exit|fail|find|follow|get|give|go|have|hold|keep|know|lead|leave|let|lie|live|look|make|meet|miss|move|name|point|print|put|read|report|return|run|say|see|send|show|stand|start|stay|step|stop|take|tell|trap|try|use|wait|wake|work|write`

// kinds returns all kinds of suspects, in the order of columns.
func kinds() []string {
	var all []string
	for _, r := range rules {
		all = append(all, r.kind)
	}
	return append(all, kindLong, kindPredicate)
}

// passage is text that is read in one piece, such as a paragraph. It has no line
// ends: a space stands for each.
type passage struct {
	text  string
	marks []mark // in the order of offsets, the first at 0
}

// mark tells the line of a file at which text from an offset of a passage on stands.
type mark struct{ offset, line int }

// add appends one line of a file to p.
func (p *passage) add(text string, line int) {
	if p.text != "" {
		p.text += " "
	}
	p.marks = append(p.marks, mark{len(p.text), line})
	p.text += text
}

// line returns the line in its file of the character at offset.
func (p *passage) line(offset int) int {
	at := 0
	for _, m := range p.marks {
		if m.offset <= offset {
			at = m.line
		}
	}
	return at
}

// suspects returns the suspects among p's sentences. A sentence is listed once for
// each rule that it meets.
func (p *passage) suspects() []suspect {
	var found []suspect
	offset := 0
	each := sentences.FromString(p.text)
	for each.Next() {
		s := each.Value()
		line := p.line(offset + len(s) - len(strings.TrimLeft(s, " ")))
		offset += len(s)
		s = strings.TrimSpace(s)
		for _, r := range rules {
			if r.pattern.MatchString(s) {
				found = append(found, suspect{line: line, kind: r.kind, text: s})
			}
		}
		if longestPart(s) > maxWords {
			found = append(found, suspect{line: line, kind: kindLong, text: s})
		}
	}
	return found
}

// longestPart returns how many words the longest part of s has. Semicolons and
// colons in front of a space end a part: what follows them reads as a sentence.
func longestPart(s string) int {
	longest, n := 0, 0
	for w := range strings.FieldsSeq(s) {
		if strings.ContainsFunc(w, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) {
			n++
		}
		longest = max(longest, n)
		if strings.HasSuffix(w, ";") || strings.HasSuffix(w, ":") {
			n = 0
		}
	}
	return longest
}

// questions are the words that a predicate's name begins with, beside verbs in the
// third person, such as contains.
var questions = regexp.MustCompile(`^(is|are|was|were|has|have|had|can|could|may|must|should|will|would|did|needs?)([A-Z0-9]|$)`)

// isQuestion reports whether name reads as a question that true answers.
func isQuestion(name string) bool {
	first, size := utf8.DecodeRuneInString(name)
	name = string(unicode.ToLower(first)) + name[size:]
	if questions.MatchString(name) {
		return true
	}
	word := name
	if i := strings.IndexFunc(name, unicode.IsUpper); i > 0 {
		word = name[:i]
	}
	return strings.HasSuffix(word, "s") && !strings.HasSuffix(word, "ss")
}
