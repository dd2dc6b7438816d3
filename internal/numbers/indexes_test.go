package numbers

import "testing"

// TestIndexesMayBeVariables of the target's, with their signs, in values and in conditions; where nothing is, the value is not known.
func TestIndexesMayBeVariables(t *testing.T) {
	cxx := [][2]string{
		{"o.numbers[n-40]", "3"}, {"o.numbers[n - 33]", "10"}, {"o.numbers[n]", "?"}, {"o.numbers[n-43]", "?"}, {"o.numbers[b.c]", "?"}, {"o.numbers[b.c+3]", "-2"}, {"o.numbers[b.a-b.b-1]", "-2"},
		{"o.numbers[o.numbers[1]+n-40]", "1"}, {"o.items[n-41].name", `"a name that is too long for the buffer"`}, {"o.items[n-41].kind", "-4"}, {"o.grid[n-41][n-40]", "6"}, {"o.grid[n-40][0]", "?"}, {"o.grid[n-41]", "{4, 5, 6}"},
		{"v[n-41:n-39]", `"ie"`}, {"v[n-41:5]", "?"}, {"v[3:n-41]", "?"}, {"o.note[:n-40]", `"no"`}, {"p[n-42].note", `"note"`}, {"o.own[len(o.items)-1].c", "BLUE"}, {"f.text[n-38]", "105 'i'"}, {"f.text[n-38:n-36]", `"ib"`},
		{"len(o.items[n-41].name)", "38"}, {"o.numbers[n-42:n-40]", "{1, -2}"}, {"o.own[n-41].bits", "5"}, {"o.own[n-41].more", "-3"}, {"v[0:2]", `"vi"`}, {"o.numbers[r-75]", "3"}, {"o.numbers[c]", "-2"},
	}
	rust := [][2]string{{"o.arr[n-41]", "-2"}, {"o.items[n - 41].name", `"second"`}, {"o.items[n].qty", "?"}, {"o.note[n-41:n-39]", `"ot"`}, {"o.arr[o.tup.0+4]", "-2"}}
	golang := [][2]string{{"o.Items[n-41].Name", `"second"`}, {"o.Items[n-40].Name", "?"}, {"o.Grid[n-41][n-40]", "6"}, {"o.Note[n-41:n-39]", `"ot"`}, {"names[n-41]", `"yy"`}, {"by.Items[len(o.Items)-1].Qty", "2"}, {"names[len(names)]", "?"}, {"o.Note[1:3]", `"ot"`}}
	for _, x := range []struct {
		maker
		source string
		all    [][2]string
		entry  string
	}{
		{maker{name: "g++", levels: [][]string{{"-g"}, {"-g", "-O2"}}, suffix: ".cc"}, sequencesCXX, cxx, "handle"},
		{maker{name: "rustc", levels: [][]string{{"-g", "-O"}}, suffix: ".rs"}, sequencesRust, rust, "handle"},
		{maker{name: "go", levels: [][]string{{}}, suffix: ".go"}, sequencesGo, golang, "main.handle"},
	} {
		for _, flags := range x.levels {
			bin := x.compile(t, flags, x.source)
			for _, stops := range []bool{false, true} {
				hold, fail := conditionsOf(x.all)
				if x.name == "g++" { // a narrow bit field is an int to C
					hold, fail = append(hold, "o.own[n-41].bits - 6 < n-41", "o.own[n-41].more + 2 < n-42"), append(fail, "o.own[n-41].bits - 6 > n-42")
				}
				walk(t, bin, x.entry, x.all, hold, fail, stops)
			}
		}
	}
}
