package layers

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Unused lists, one sentence each, the imports that a row allows and none of its rooms
// uses. packages are those of all architectures together.
func Unused(table []Row, packages []Package) []string {
	var bad []string
	for _, r := range table {
		var imports []string
		for _, p := range packages {
			room := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, Module), "/")
			if i := slices.IndexFunc(table, func(o Row) bool { ok, _ := path.Match(o.Room, room); return ok }); i >= 0 && table[i].Room == r.Room {
				imports = append(imports, p.Imports...)
			}
		}
		for _, allowed := range r.Rooms {
			if !slices.ContainsFunc(imports, func(imp string) bool {
				room, ours := strings.CutPrefix(imp, Module+"/")
				ok, _ := path.Match(allowed, room)
				return ours && ok
			}) {
				bad = append(bad, fmt.Sprintf("%s may import %s, and does not", r.Room, allowed))
			}
		}
		for _, m := range r.Outside {
			if !slices.ContainsFunc(imports, func(imp string) bool { return within(imp, m) }) {
				bad = append(bad, fmt.Sprintf("%s may import %s, and does not", r.Room, m))
			}
		}
	}
	return bad
}
