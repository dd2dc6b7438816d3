package dynevent

import (
	"bytes"
	"fmt"
	"iter"
	"strings"
	"syscall"
	"unicode/utf8"
)

// MaxLine is how many bytes a line may have (the kernel's WRITE_BUFSIZE, less the line's end and a zero).
const MaxLine = 4094

// Lines yields the commands in a text that was written to a file at once: its lines
// without comments, which go from a # that begins a word, and without empty lines. With
// a line that is too long, or that is no text, comes an error that matches EINVAL, and
// nothing after it.
func Lines(data []byte) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for line := range bytes.Lines(data) {
			command, err := command(bytes.TrimSuffix(line, []byte("\n")))
			if err != nil {
				yield("", err)
				return
			}
			if command != "" && !yield(command, nil) {
				return
			}
		}
	}
}

func command(line []byte) (string, error) {
	if len(line) > MaxLine {
		return "", fmt.Errorf("a line of %d bytes, at most %d are allowed: %w", len(line), MaxLine, syscall.EINVAL)
	}
	if !isText(line) {
		return "", fmt.Errorf("a line that is no text: %w", syscall.EINVAL)
	}
	words := strings.FieldsFunc(string(line), isBlank)
	for i, w := range words {
		if w[0] == '#' {
			words = words[:i]
			break
		}
	}
	return strings.Join(words, " "), nil
}

// isText tells whether line is UTF-8 without control characters but blanks.
func isText(line []byte) bool {
	for _, c := range line {
		if c < ' ' && !isBlank(rune(c)) || c == 0x7f {
			return false
		}
	}
	return utf8.Valid(line)
}

// isBlank is isspace of ASCII.
func isBlank(r rune) bool { return r == ' ' || '\t' <= r && r <= '\r' }

// Boot yields the commands of the kernel's boot parameter kprobe_event=: they are
// separated by semicolons, their words by commas. Its caller also enables the events.
func Boot(parameter string) iter.Seq2[string, error] {
	lines := strings.NewReplacer(";", "\n", ",", " ").Replace(parameter)
	return Lines([]byte(lines))
}
