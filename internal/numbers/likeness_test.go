package numbers

import (
	"encoding/json"
	"regexp"
	"strings"
)

// likeness compares what we show with what gdb says, as far as each knows it.
type likeness struct {
	cut   bool                       // we have shown only some of the value
	named func(at, name string) bool // of a function: it has the name; may be nil
}

func (l likeness) same(ours, gdbs any) bool {
	if ours == "…" { // it is too deep to be shown
		return true
	}
	switch g := gdbs.(type) {
	case map[string]any:
		if _, unknown := g["?"].(string); unknown {
			return true
		}
		o, ok := ours.(map[string]any)
		return ok && l.members(o, g)
	case []any:
		o, ok := ours.([]any)
		return ok && l.elements(o, g)
	case json.Number:
		o, ok := ours.(json.Number)
		return ok && rational(o).Cmp(rational(g)) == 0
	case string:
		if ours == nil { // Go's nil
			return g == "0x0"
		}
		o, ok := ours.(string)
		return ok && (l.text(o, g) || l.named != nil && l.named(g, o))
	}
	return ours == gdbs
}

func (l likeness) members(ours, gdbs map[string]any) bool {
	for name, o := range ours {
		g, named := gdbs[name]
		if !named || o != nil && !l.same(o, g) {
			return false
		}
	}
	return l.cut || len(ours) == len(gdbs)
}

// elements: behind the first ones of a list we say that there are more. gdb's list is cut where it is longer than ours.
func (l likeness) elements(ours, gdbs []any) bool {
	if n := len(ours) - 1; l.cut && n >= 0 && ours[n] == "…" && len(gdbs) > n {
		ours, gdbs = ours[:n], gdbs[:n]
	}
	if l.cut && len(gdbs) > len(ours) {
		gdbs = gdbs[:len(ours)] // what may be shown in all is used up
	}
	for i, o := range ours {
		if i == len(gdbs) || o != nil && !l.same(o, gdbs[i]) {
			return false
		}
	}
	return len(ours) == len(gdbs)
}

// noText stands for bytes that are no characters.
var noText = regexp.MustCompile("\uFFFD+")

func (l likeness) text(ours, gdbs string) bool {
	ours, gdbs = noText.ReplaceAllString(ours, "\uFFFD"), noText.ReplaceAllString(gdbs, "\uFFFD")
	if short, more := strings.CutSuffix(ours, "…"); more && l.cut {
		return strings.HasPrefix(gdbs, strings.TrimSuffix(short, "\uFFFD"))
	}
	return ours == gdbs
}
