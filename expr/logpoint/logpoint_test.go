package logpoint

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/expr/caret"
)

func TestLogPointsAreReadAsTheyAreWritten(t *testing.T) {
	for text, want := range map[string]Point{
		`a.go:42 "order {o.ID} of {len(o.Items)}" if o.Total > 100`: {Spec: "a.go:42", If: "o.Total > 100",
			Parts: []Part{{"order ", false}, {"o.ID", true}, {" of ", false}, {"len(o.Items)", true}}},
		`ns::f(int, char) "{ $arg1:s32 }"`: {Spec: "ns::f(int, char)", Parts: []Part{{"$arg1:s32", true}}},
		`foo%return "{{{ret}}} \"x\" \\" if(ret<0)`: {Spec: "foo%return", If: "(ret<0)",
			Parts: []Part{{"{", false}, {"ret", true}, {"} \"x\" \\", false}}},
		`main ""`: {Spec: "main"},
	} {
		want.Text = text
		if got, err := Parse(text); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %+v, %v", text, got, err)
		}
	}
	if p, _ := Parse(`f "{a} {b} {a}"`); !reflect.DeepEqual(p.Exprs(), []string{"a", "b"}) {
		t.Error("the expressions are", p.Exprs())
	}
}

// TestTextsWithoutQuotesHaveNoEscapes but doubled braces.
func TestTextsWithoutQuotesHaveNoEscapes(t *testing.T) {
	for text, want := range map[string][]Part{
		"":                 nil,
		`say "{n}" \ {{}}`: {{`say "`, false}, {"n", true}, {`" \ {}`, false}},
	} {
		if got, err := ParseText(text); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"{", "a } b", "{}", "{a{b}}"} {
		if got, err := ParseText(text); err == nil {
			t.Errorf("%s is %+v", text, got)
		}
	}
}

func TestMistakesInLogPointsAreShown(t *testing.T) {
	for text, want := range map[string]struct {
		id     string
		column int
	}{
		"":                {"LOG_NO_TEXT", 0},
		"foo":             {"LOG_NO_TEXT", 3},
		`"text"`:          {"LOG_NO_PLACE", 0},
		`foo "text`:       {"LOG_NO_CLOSE", 9},
		`foo "a {b"`:      {"LOG_BRACE", 7},
		`foo "a } b"`:     {"LOG_BRACE", 7},
		`foo "a {} b"`:    {"LOG_NO_EXPR", 7},
		`foo "a {b{c}} "`: {"LOG_BRACE", 7},
		`foo "\q"`:        {"LOG_BAD_ESCAPE", 5},
		`foo "a" x`:       {"LOG_BEHIND_TEXT", 8},
		`foo "a" if`:      {"LOG_BEHIND_TEXT", 8},
		`foo "a" iffy`:    {"LOG_BEHIND_TEXT", 8},
	} {
		_, err := Parse(text)
		var e *caret.Error
		if !errors.As(err, &e) || e.ID != want.id || e.Column != want.column || e.Text == "" {
			t.Errorf("%s: %v at %d, want %s at %d", text, err, e.Column, want.id, want.column)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(`a.go:42 "order {o.ID} {{x}}" if o.Total > 100`)
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Parse(text)
		if err != nil {
			return
		}
		var back strings.Builder
		back.WriteString(p.Spec + ` "`)
		for _, part := range p.Parts {
			if part.IsExpr {
				back.WriteString("{" + part.Text + "}")
				continue
			}
			back.WriteString(strings.NewReplacer(`\`, `\\`, `"`, `\"`, "{", "{{", "}", "}}").Replace(part.Text))
		}
		back.WriteString(`"`)
		if p.If != "" {
			back.WriteString(" if " + p.If)
		}
		again, err := Parse(back.String())
		if err != nil || again.Spec != p.Spec || again.If != p.If || !reflect.DeepEqual(again.Parts, p.Parts) {
			t.Errorf("%q is %+v, and written again %q: %+v, %v", text, p, back.String(), again, err)
		}
	})
}
