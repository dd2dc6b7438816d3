package main

import (
	"fmt"
	"strings"

	"github.com/gokprobe/gokprobe/internal/escape"
	"github.com/gokprobe/gokprobe/trace"
)

// fewModules is how many files a line about a pattern names.
const fewModules = 5

// tellPatterns says what patterns stood for in the programs that were followed.
func tellPatterns(std stdio, patterns []trace.PatternStats) {
	for _, p := range patterns {
		if len(p.Found) == 0 {
			std.warn("%s was found in no program", escape.Short(p.Spec))
			continue
		}
		var in []string
		for _, m := range p.Found[:min(len(p.Found), fewModules)] {
			in = append(in, fmt.Sprintf("%s in %s", escape.Count(m.Places, "place"), m.Module))
		}
		if n := len(p.Found) - fewModules; n > 0 {
			in = append(in, escape.Count(n, "other file"))
		}
		std.warn("%s was found at %s", escape.Short(p.Spec), strings.Join(in, ", "))
	}
}
