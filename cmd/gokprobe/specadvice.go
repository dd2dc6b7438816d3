package main

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/gokprobe/gokprobe/symbols"
	"github.com/gokprobe/gokprobe/trace"
)

// specMistakes are notations of other tools, and common mistakes, with advice how to write a
// SPEC instead. The first match counts.
var specMistakes = []struct {
	as  *regexp.Regexp
	say string // $1 and $2 stand for the submatches
}{
	{regexp.MustCompile(`^(?:uprobe|kprobe|fentry|p|u|k):(.+)$`), "write $1"},
	{regexp.MustCompile(`^(?:uretprobe|kretprobe|fexit|r|ur|kr):(.+)$`), "returns are written $1%return"},
	{regexp.MustCompile(`^(.+)[:%](?:entry|enter)$`), "a probe stands at the entry: write $1"},
	{regexp.MustCompile(`^(.+)[:%](?:exit|ret|returns|return|end)$`), "returns are written $1%return"},
	{regexp.MustCompile(`^(.+)@(?:plt|got)$`), "write $1, the function itself"},
	{regexp.MustCompile(`^([^()]+)\([^()]*\)$`), "write $1, which stands for all functions of that name"},
	{regexp.MustCompile(`^(.+%return)\s*\+`), "a return has no offset: write $1"},
	{regexp.MustCompile(`^([^\s+]+)(?:\s+\+\s*|\s*\+\s+)([^\s+]+)$`), "write $1+$2, without spaces"},
	{regexp.MustCompile(`^(\w+)\s*-\s*(?:0x)?[0-9a-fA-F]+$`), "an offset is counted from the function's first byte on: $1+N"},
	{regexp.MustCompile(`^\^|\.\*|\$$`), "a pattern is as in a shell: * stands for any text"},
	{regexp.MustCompile(`^[^\s,()]+,\s*[^\s,()]+`), "give -sym once for each"},
}

// specAdvice returns advice how to write a SPEC that names nothing, or "" if it has none.
func specAdvice(spec string) string {
	for _, m := range specMistakes {
		if at := m.as.FindStringSubmatchIndex(spec); at != nil {
			return string(m.as.ExpandString(nil, m.say, spec, at))
		}
	}
	return ""
}

// advised adds advice to the error of a SPEC that names nothing.
func advised(err error, at *trace.PlaceError) error {
	if !errors.Is(err, symbols.ErrUnknownSymbol) && !errors.Is(err, symbols.ErrUnknownModule) && !errors.Is(err, symbols.ErrBadSpec) {
		return err
	}
	if say := specAdvice(at.Spec); say != "" {
		return fmt.Errorf("%w; %s", err, say)
	}
	return err
}
