package main

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/gokprobe/gokprobe/symbols"
	"github.com/gokprobe/gokprobe/trace"
)

// specMistakes are ways in which other tools, or people, write what a SPEC says otherwise. The first that fits counts.
var specMistakes = []struct {
	as  *regexp.Regexp
	say string // $1 and $2 are what the expression has found
}{
	{regexp.MustCompile(`^(?:uprobe|kprobe|fentry|p|u|k):(.+)$`), "write $1"},
	{regexp.MustCompile(`^(?:uretprobe|kretprobe|fexit|r|ur|kr):(.+)$`), "returns are written $1%return"},
	{regexp.MustCompile(`^(.+)[:%](?:entry|enter)$`), "a probe stands at the entry: write $1"},
	{regexp.MustCompile(`^(.+)[:%](?:exit|ret|returns|return|end)$`), "returns are written $1%return"},
	{regexp.MustCompile(`^(.+)@(?:plt|got)$`), "write $1, the function itself"},
	{regexp.MustCompile(`^([^()]+)\([^()]*\)$`), "write $1, which stands for all functions of that name"},
	{regexp.MustCompile(`^([^\s+]+)\s*\+\s*([^\s+]+)$`), "write $1+$2, without spaces"},
	{regexp.MustCompile(`^(\w+)\s*-\s*(?:0x)?[0-9a-fA-F]+$`), "an offset is counted from the function's first byte on: $1+N"},
	{regexp.MustCompile(`^\^|\.\*|\$$`), "a pattern is as of file names: * stands for any text"},
	{regexp.MustCompile(`^[^\s,()]+,\s*[^\s,()]+`), "give -sym once for each"},
}

// specAdvice is what to write in place of a SPEC that names nothing; empty if nothing is known.
func specAdvice(spec string) string {
	for _, m := range specMistakes {
		if at := m.as.FindStringSubmatchIndex(spec); at != nil {
			return string(m.as.ExpandString(nil, m.say, spec, at))
		}
	}
	return ""
}

// advised adds to an error of a SPEC that names nothing what to write instead.
func advised(err error, at *trace.PlaceError) error {
	if !errors.Is(err, symbols.ErrUnknownSymbol) && !errors.Is(err, symbols.ErrUnknownModule) && !errors.Is(err, symbols.ErrBadSpec) {
		return err
	}
	if say := specAdvice(at.Spec); say != "" {
		return fmt.Errorf("%w; %s", err, say)
	}
	return err
}
