package numbers

import (
	"encoding/json"
	"regexp"
	"strings"
)

// likeness compares what we show with what gdb says, as far as each knows it. It is true where we have shown only some of the value.
type likeness bool

func (cut likeness) same(ours, gdbs any) bool {
	if ours == "…" { // it is too deep to be shown
		return true
	}
	switch g := gdbs.(type) {
	case map[string]any:
		if _, unknown := g["?"]; unknown {
			return true
		}
		o, ok := ours.(map[string]any)
		return ok && cut.members(o, g)
	case []any:
		o, ok := ours.([]any)
		return ok && cut.elements(o, g)
	case json.Number:
		o, ok := ours.(json.Number)
		return ok && rational(o).Cmp(rational(g)) == 0
	case string:
		o, ok := ours.(string)
		return ok && cut.text(o, g)
	}
	return ours == gdbs
}

func (cut likeness) members(ours, gdbs map[string]any) bool {
	for name, o := range ours {
		g, named := gdbs[name]
		if !named || o != nil && !cut.same(o, g) {
			return false
		}
	}
	return bool(cut) || len(ours) == len(gdbs)
}

// elements: behind the first ones of a list we say that there are more. gdb's list is cut where it is longer than ours.
func (cut likeness) elements(ours, gdbs []any) bool {
	if n := len(ours) - 1; cut && n >= 0 && ours[n] == "…" && len(gdbs) > n {
		ours, gdbs = ours[:n], gdbs[:n]
	}
	if cut && len(gdbs) > len(ours) {
		gdbs = gdbs[:len(ours)] // what may be shown in all is used up
	}
	for i, o := range ours {
		if i == len(gdbs) || o != nil && !cut.same(o, gdbs[i]) {
			return false
		}
	}
	return len(ours) == len(gdbs)
}

// noText stands for bytes that are no characters.
var noText = regexp.MustCompile("\uFFFD+")

func (cut likeness) text(ours, gdbs string) bool {
	ours, gdbs = noText.ReplaceAllString(ours, "\uFFFD"), noText.ReplaceAllString(gdbs, "\uFFFD")
	if short, more := strings.CutSuffix(ours, "…"); more && bool(cut) {
		return strings.HasPrefix(gdbs, strings.TrimSuffix(short, "\uFFFD"))
	}
	return ours == gdbs
}
