package main

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"
)

// nearFlag suggests a flag's name for a mistyped one.
func nearFlag(flags []cli.Flag, typed string) string {
	name := strings.TrimLeft(cli.SuggestFlag(flags, typed, false), "-")
	return didYouMean(typed, name, "-")
}

// nearCommand suggests a command's name for a mistyped one.
func nearCommand(commands []*cli.Command, typed string) string {
	names := make([]string, len(commands))
	for i, c := range commands {
		names[i] = c.Name
	}
	return nearName(names, typed)
}

// nearName suggests one of the names for a mistyped one.
func nearName(names []string, typed string) string {
	named := make([]cli.Flag, len(names)) // SuggestCommand would return a sentence
	for i, name := range names {
		named[i] = &cli.BoolFlag{Name: name}
	}
	return didYouMean(typed, strings.TrimLeft(cli.SuggestFlag(named, typed, true), "-"), "")
}

// didYouMean returns the suggestion of name, or "" if it begins with another letter than the
// typed word. The library always suggests something, and people seldom mistype the
// first letter.
func didYouMean(typed, name, prefix string) string {
	if name == "" || typed == "" || name[0] != typed[0] {
		return ""
	}
	return fmt.Sprintf(" (did you mean %s%s?)", prefix, name)
}
