package manual

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestEveryTopicIsPrintedInLinesThatFit(t *testing.T) {
	topics := Topics()
	if len(topics) == 0 {
		t.Fatal("no topics")
	}
	for _, topic := range topics {
		if topic.Title == "" || strings.ToUpper(topic.Title[:1]) == topic.Title[:1] && topic.Name != "signals" {
			t.Errorf("%s has the title %q", topic.Name, topic.Title)
		}
		text := Text(topic.Body)
		for line := range strings.Lines(text) {
			if line = strings.TrimRight(line, "\n"); utf8.RuneCountInString(line) > Columns || strings.TrimRight(line, " ") != line {
				t.Errorf("%s: %q", topic.Name, line)
			}
		}
		if strings.ContainsAny(text, "`") || strings.Count(text, "\n") < 10 {
			t.Errorf("%s: %s", topic.Name, text)
		}
	}
}

func TestTextIsFilledAndCodeStaysAsItIs(t *testing.T) {
	markdown := "# NAME\n\na - " + Escape("what_it *does* [now] #1. (x) <y> `z` \\n") + "\n\n# HOW\n\n" + strings.Repeat("word ", 20) + "\n\n" +
		Code([]string{"a  b", "", "  c"}) + "\n`-short V`\n: one\n\n-a-long-one VALUE\n: " + strings.Repeat("two ", 20) + "\n\n- x\n- y\n\n### sub\n\nbelow\n"
	want := `NAME
    a - what_it *does* [now] #1. (x) <y> ` + "`z`" + ` \n

HOW
    word word word word word word word word word word word word word word word
    word word word word word

    a  b

      c

    -short V          one
    -a-long-one VALUE two two two two two two two two two two two two two two
                      two two two two two two

    - x
    - y

    sub
        below
`
	if got := Text(markdown); got != want {
		t.Errorf("%s", got)
	}
}

func TestAPageOfTheManualHasATitleAndMinusSigns(t *testing.T) {
	p := Page{Name: "gokprobe-x", Section: 1, Date: "2026-11-25", Version: "v1", Body: "# NAME\n\ngokprobe-x - does x-y\n\n# OPTIONS\n\n-a\n: one of -b\n\n# EXAMPLES\n\n    x -a\n"}
	got := string(p.Man())
	for _, want := range []string{
		".TH \"GOKPROBE-X\" \"1\" \"2026-11-25\" \"gokprobe v1\" \"gokprobe manual\"\n", ".SH NAME\ngokprobe\\-x \\- does x\\-y\n", ".TP\n\\-a\none of \\-b\n", ".EX\nx \\-a\n.EE\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in %s", want, got)
		}
	}
	if p.File() != "man1/gokprobe-x.1" {
		t.Error(p.File())
	}
}
