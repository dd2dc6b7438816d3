package main

import (
	"strings"
	"testing"
)

// TestASmallModuleHasItsFigures, which were counted by hand.
func TestASmallModuleHasItsFigures(t *testing.T) {
	rooms, err := count("testdata/small")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	printRooms(&out, rooms)
	printStructs(&out, rooms, []string{"low.Pile", "low.Other", "low.Gone", "gone.Pile", "none"})
	const want = `
| high | 1 | 131 | 131/131/131 | 2 | 61/61/61 | 1 | 0 | – | 0.00 | 0/1 |
| low | 1 | 60 | 60/60/60 | 4 | 1/26/26 | 0 | 0 | 75 % | 0.08 | 1/0 |
| all | 2 | 191 | 131/131/131 | 6 | 26/61/61 | 1 | 0 | 75 % | 0.03 |  |
| low.Pile | 7 | 2 | 1 | 2 | 2 | 2 |
| low.Other | 0 | 0 | 0 | 0 | 0 | 0 |
| low.Gone | – | – | – | – | – | – |
| gone.Pile | – | – | – | – | – | – |
| none | – | – | – | – | – | – |
`
	var rows []string
	for line := range strings.Lines(out.String()) {
		if !strings.HasPrefix(line, "|--") && !strings.HasPrefix(line, "| package") && !strings.HasPrefix(line, "| struct") {
			rows = append(rows, line)
		}
	}
	if got := "\n" + strings.Join(rows, ""); got != want {
		t.Errorf("printed%swant%s", got, want)
	}
	var ways []int
	for _, r := range rooms {
		for _, f := range r.funcs {
			ways = append(ways, f.cyclomatic)
		}
	}
	if most := spread(ways); most != "1/12/12" {
		t.Errorf("cyclomatic: %s, want 1/12/12", most)
	}
}
