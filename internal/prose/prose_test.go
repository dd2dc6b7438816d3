package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestSuspectsAreThoseThatTheFilesName compares what is found in the files below
// testdata with what they say themselves: a line that ends with "want" and kinds.
func TestSuspectsAreThoseThatTheFilesName(t *testing.T) {
	for _, name := range []string{"testdata/comments.go", "testdata/text.md"} {
		src, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for i, l := range strings.Split(string(src), "\n") {
			if _, kinds, ok := strings.Cut(l, "want:"); ok {
				for k := range strings.FieldsSeq(strings.TrimRight(kinds, " ->")) {
					want = append(want, fmt.Sprintf("%d %s", i+1, k))
				}
			}
		}
		found, err := search([]string{name})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range found {
			got = append(got, fmt.Sprintf("%d %s", s.line, s.kind))
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

func TestSentencesAreJudgedOneByOne(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string
	}{
		{"start has the thread run.", []string{"causative"}},
		{"hasState has st be in mem.", []string{"causative"}},
		{"It has the same length as the rest.", nil},
		{"The site has been armed.", nil},
		{"It has to wait.", nil},
		{"What is read is what was there.", []string{"relative"}},
		{"Those that wait are woken.", []string{"relative"}},
		{"A list, of which none is empty.", []string{"relative"}},
		{"It is not known what to do.", nil},
		{"A signal waits, and so does a step.", []string{"inversion"}},
		{"Nor is a number known.", []string{"inversion"}},
		{"The traced program goes on.", []string{"program"}},
		{"The target goes on.", nil},
		{strings.Repeat("word ", 25) + ".", nil},
		{strings.Repeat("word ", 26) + ".", []string{"long"}},
		{strings.Repeat("word ", 20) + "end: " + strings.Repeat("word ", 20) + ".", nil},
		{"The first is fine. So is the second. The third is, too.", []string{"inversion"}},
	} {
		p := passage{text: c.text, marks: []mark{{0, 1}}}
		var got []string
		for _, s := range p.suspects() {
			got = append(got, s.kind)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%q: got %q, want %q", c.text, got, c.want)
		}
	}
}

func TestALineIsThatOfTheSentence(t *testing.T) {
	var p passage
	p.add("The first sentence is fine, and it ends on the", 7)
	p.add("second line. So is this one.", 8)
	p.add("What is more, it ends here.", 9)
	var got []string
	for _, s := range p.suspects() {
		got = append(got, fmt.Sprint(s.line, s.kind))
	}
	if want := []string{"8inversion", "9relative"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestPredicatesReadAsQuestions(t *testing.T) {
	for _, name := range []string{"isOpen", "IsOpen", "has", "hasRoom", "canStop", "contains", "Contains", "holdsLock", "needsStep", "didRun"} {
		if !isQuestion(name) {
			t.Errorf("%s does not read as a question", name)
		}
	}
	for _, name := range []string{"wanted", "timed", "own", "away", "landed", "pass", "issue", "Wanted", "hash"} {
		if isQuestion(name) {
			t.Errorf("%s reads as a question", name)
		}
	}
}

func TestAFileThatIsNoGoIsAnError(t *testing.T) {
	name := t.TempDir() + "/broken.go"
	if err := os.WriteFile(name, []byte("package"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := search([]string{name}); err == nil {
		t.Error("no error")
	}
}

func TestSumsAreByDirectoryAndKind(t *testing.T) {
	var out strings.Builder
	printSums(&out, []suspect{{file: "b/x.go", kind: "long"}, {file: "a/x.go", kind: "long"}, {file: "a/y.go", kind: "program"}})
	want := `| directory | causative | relative | inversion | program | long | predicate |
|---|---|---|---|---|---|---|
| a | 0 | 0 | 0 | 1 | 1 | 0 |
| b | 0 | 0 | 0 | 0 | 1 | 0 |
| all | 0 | 0 | 0 | 1 | 2 | 0 |
`
	if out.String() != want {
		t.Errorf("got\n%s, want\n%s", out.String(), want)
	}
}
