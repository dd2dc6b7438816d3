package main

import (
	"fmt"

	"github.com/xrash/smetrics"
)

// didYouMean is ", did you mean X?" for the name nearest to what was typed, or empty
// if none is near.
func didYouMean(typed string, names []string, prefix string) string {
	const boost, prefixLen, near = 0.7, 4, 0.75 // smetrics' usual weights; below near it is another word
	best, found := near, ""
	for _, name := range names {
		if d := smetrics.JaroWinkler(typed, name, boost, prefixLen); d > best {
			best, found = d, name
		}
	}
	if found == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %s%s?)", prefix, found)
}
