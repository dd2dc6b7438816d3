package dap

import "testing"

// TestTheLikeliestSourceIsTheOneThatEndsAlike: where several end alike none is.
func TestTheLikeliestSourceIsTheOneThatEndsAlike(t *testing.T) {
	for _, c := range []struct {
		files []string
		name  string
		want  string
	}{
		{[]string{"/build/a/main.c", "/build/b/main.c"}, "/home/me/b/main.c", "/build/b/main.c"},
		{[]string{"/build/a/main.c", "/build/b/main.c"}, "/home/me/c/main.c", ""},
		{[]string{"/build/a/main.c", "/build/b/main.c"}, "/build/a/main.c", "/build/a/main.c"},
		{[]string{"src/main.c"}, "/home/me/proj/src/main.c", "src/main.c"},
		{[]string{"main.c", "src/main.c"}, "/home/me/proj/src/main.c", "src/main.c"},
		{[]string{"./main.c"}, "/x/main.c", "./main.c"},
		{[]string{"/x/../y/main.c"}, "/y/main.c", "/x/../y/main.c"},
		{nil, "/y/main.c", ""},
	} {
		if got, err := likeliest(c.files, c.name); got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s of %q is %q, %v", c.name, c.files, got, err)
		}
	}
}

func TestPathsAreSubstitutedThereAndBack(t *testing.T) {
	rules := []remap{{"/home/me/proj", "/build"}, {"/home/me/lib/", "/usr/src/lib/"}}
	for name, want := range map[string]string{
		"/home/me/proj/a/b.c": "/build/a/b.c", "/home/me/project/b.c": "/home/me/project/b.c", "/home/me/lib/x.c": "/usr/src/lib/x.c", "/other/x.c": "/other/x.c",
	} {
		if got := substituted(name, rules); got != want || restored(got, rules) != name {
			t.Errorf("%s is %s there, want %s; back it is %s", name, got, want, restored(got, rules))
		}
	}
}

func TestHitConditionsChooseByNumber(t *testing.T) {
	for text, want := range map[string]string{
		"": "123456", "3": "3", "==3": "3", "= 3": "3", ">4": "56", ">=4": "456", "<3": "12", "<= 3": "123", "%2": "246", " % 3 ": "36", "0": "",
	} {
		due, err := parseHitCondition(text)
		if err != nil {
			t.Error(err)
			continue
		}
		got := ""
		for n := range uint64(6) {
			if due(n + 1) {
				got += string(rune('1' + n))
			}
		}
		if got != want {
			t.Errorf("%q chooses %s, want %s", text, got, want)
		}
	}
	for _, text := range []string{"%0", "x", ">", "=>3", "-1", "3 hits", "%%2", "99999999999999999999"} {
		if _, err := parseHitCondition(text); err == nil {
			t.Errorf("%q was understood", text)
		}
	}
}
