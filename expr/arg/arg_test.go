package arg

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gokprobe/gokprobe/expr/caret"
	"github.com/gokprobe/gokprobe/expr/fetch"
)

// vfsRead is the entry of a function with parameters.
var vfsRead = Scope{Function: func() (Function, error) { return function{"file", "buf", "count", "pos"}, nil }}

// function has these parameters: file points to a structure, buf to characters, count is a number.
type function []string

func (f function) Params() []string { return f }

func (f function) Variable(name string, path []Member) (Variable, error) {
	v := Variable{Source: fetch.Source{Base: fetch.Argument, N: int64(slices.Index(f, name) + 1)}}
	switch {
	case v.Source.N == 0:
		return v, ErrNoVariable
	case len(path) > 0 && name != "file":
		return v, &MemberError{Err: ErrNoPointer}
	case len(path) > 1:
		return v, &MemberError{Step: 1, Err: ErrNoMember}
	case name == "buf":
		v.Text = TextPointer
	case name == "count":
		v.Type, _ = TypeOf("u64")
	}
	for _, m := range path {
		v.Source.Derefs = append(v.Source.Derefs, fetch.Deref{Off: 8})
		if m.Name == "flags" {
			v.Type, _ = TypeOf("b4@4/32")
		} else {
			v.Text = TextArray
		}
	}
	return v, nil
}

// sources are arguments of vfs_read and what they fetch.
var sources = []struct {
	arg    string
	source fetch.Source
	typ    string
	count  int
}{
	{"%ax", fetch.Source{Base: fetch.Register, Name: "rax"}, "x64", 0},
	{"%r15:s16", fetch.Source{Base: fetch.Register, Name: "r15"}, "s16", 0},
	{"%flags", fetch.Source{Base: fetch.Register, Name: "eflags"}, "x64", 0},
	{"%rdi:symbol", fetch.Source{Base: fetch.Register, Name: "rdi"}, "symbol", 0},
	{"x=$arg7", fetch.Source{Base: fetch.Argument, N: 7}, "x64", 0},
	{"$stack12:u32", fetch.Source{Base: fetch.StackWord, N: 12}, "u32", 0},
	{"$COMM", fetch.Source{Base: fetch.Comm}, "string", 0},
	{"@0x10:u8", fetch.Source{Base: fetch.Memory, N: 16}, "u8", 0},
	{"@data-8:u8[4]", fetch.Source{Base: fetch.Symbol, Name: "data", Off: -8}, "u8", 4},
	{"@lib-2.so:data+8", fetch.Source{Base: fetch.Symbol, Name: "lib-2.so:data", Off: 8}, "x64", 0},
	{"@a::b:string", fetch.Source{Base: fetch.Symbol, Name: "a::b"}, "string", 0},
	{"@a::b", fetch.Source{Base: fetch.Symbol, Name: "a::b"}, "x64", 0},
	{"+8(@m:a::b):s8", fetch.Source{Base: fetch.Symbol, Name: "m:a::b", Derefs: []fetch.Deref{{Off: 8}}}, "s8", 0},
	{"@" + strings.Repeat("long", 30), fetch.Source{Base: fetch.Symbol, Name: strings.Repeat("long", 30)}, "x64", 0},
	{"+u8(-0x10(%si)):ustring[2]", fetch.Source{Base: fetch.Register, Name: "rsi", Derefs: []fetch.Deref{{Off: -16}, {Off: 8, User: true}}}, "ustring", 2},
	{`\-5:s8`, fetch.Source{Base: fetch.Immediate, N: -5}, "s8", 0},
	{`\0xffffffffffffffff`, fetch.Source{Base: fetch.Immediate, N: -1}, "x64", 0},
	{`\"a=b:c"`, fetch.Source{Base: fetch.Text, Name: "a=b:c"}, "string", 0},
	{`t=\"":string`, fetch.Source{Base: fetch.Text}, "string", 0},
	{"+0(%di):b7@9/16", fetch.Source{Base: fetch.Register, Name: "rdi", Derefs: []fetch.Deref{{}}}, "b7@9/16", 0},
	{"count", fetch.Source{Base: fetch.Argument, N: 3}, "u64", 0},
	{"$arg3", fetch.Source{Base: fetch.Argument, N: 3}, "u64", 0},
	{"count:char", fetch.Source{Base: fetch.Argument, N: 3}, "char", 0},
	{"+0(count)", fetch.Source{Base: fetch.Argument, N: 3, Derefs: []fetch.Deref{{}}}, "x64", 0},
	{"buf:string", fetch.Source{Base: fetch.Argument, N: 2, Derefs: []fetch.Deref{{}}}, "string", 0},
	{"buf:ustring", fetch.Source{Base: fetch.Argument, N: 2, Derefs: []fetch.Deref{{User: true}}}, "ustring", 0},
	{"file->flags", fetch.Source{Base: fetch.Argument, N: 1, Derefs: []fetch.Deref{{Off: 8}}}, "b4@4/32", 0},
	{"file->comm:string", fetch.Source{Base: fetch.Argument, N: 1, Derefs: []fetch.Deref{{Off: 8}}}, "string", 0},
}

func TestWhatAnArgumentFetches(t *testing.T) {
	for _, s := range sources {
		args, _, f, _ := ParseAll([]string{s.arg}, vfsRead)
		if f != nil {
			t.Errorf("%s: %+v", s.arg, f)
			continue
		}
		a := args[0]
		typ, ok := TypeOf(s.typ)
		typ.Count = s.count
		if !ok || !reflect.DeepEqual(a.Source, s.source) || a.Type != typ {
			t.Errorf("%s fetches %+v as %+v", s.arg, a.Source, a.Type)
		}
	}
}

func TestBitField(t *testing.T) {
	if typ, ok := TypeOf("b7@9/16"); !ok || typ != (fetch.Type{Name: "b7@9/16", Kind: fetch.BitField, Size: 2, Width: 7, Shift: 9}) {
		t.Errorf("%+v, %v", typ, ok)
	}
}

func TestASingleArgument(t *testing.T) {
	others := []fetch.Arg{{Name: "a"}}
	a, err := Parse("n=+8($arg1):u32", others, Scope{})
	if err != nil || a.Name != "n" || a.Text != "+8($arg1):u32" {
		t.Errorf("%+v, %v", a, err)
	}
	if a, err := Parse("%di", others, Scope{}); err != nil || a.Name != "arg2" {
		t.Errorf("%+v, %v", a, err)
	}
	_, err = Parse("a=%di", others, Scope{})
	var e *caret.Error
	if !errors.As(err, &e) || e.ID != "USED_ARG_NAME" || e.System != "trace_kprobe" || e.Command != "a=%di" || e.Column != 0 {
		t.Errorf("a name that is used: %v", err)
	}
	_, err = Parse("b=%zz", others, Scope{Uprobe: true})
	if !errors.As(err, &e) || e.ID != "BAD_REG_NAME" || e.System != "trace_uprobe" || e.Column != 2 {
		t.Errorf("an unknown register: %+v", e)
	}
}

func TestWordsStandForSeveralArguments(t *testing.T) {
	args, from, f, _ := ParseAll([]string{"%ax", "$arg*", "x=$arg2"}, vfsRead)
	var got []string
	for _, a := range args {
		got = append(got, a.Name+"="+a.Text)
	}
	if want := []string{"arg1=%ax", "file=file", "buf=buf", "count=count", "pos=pos", "x=$arg2"}; f != nil || !slices.Equal(got, want) ||
		!slices.Equal(from, []int{0, 1, 1, 1, 1, 2}) {
		t.Errorf("%q from %v, %+v", got, from, f)
	}
	for _, c := range []struct {
		words      string
		id         string
		at, column int
	}{
		{"%ax b=%zz", "BAD_REG_NAME", 1, 2},
		{"%ax $arg* $arg*", "DOUBLE_ARGS", 2, 0},
		{strings.Repeat("%ax ", MaxArgs+1), "TOO_MANY_ARGS", 0, 0},
	} {
		_, _, f, at := ParseAll(strings.Fields(c.words), vfsRead)
		if f == nil || f.ID != c.id || at != c.at || f.Column != c.column {
			t.Errorf("%.40s: %+v in word %d", c.words, f, at)
		}
	}
}

func TestPathsAreReadAsInTheSource(t *testing.T) {
	for text, want := range map[string]string{
		"a": "a", "o.x": "o .x", "o->x.y": "o .x .y", "a[3][-1]": "a [3] [-1]", "*p": "p *", "*p.x": "p .x *", "(*p).x": "p * .x", "&a[0x10]": "a [16] &", "len(o.x)": "o .x len",
		"**(p->q)": "p .q * *", "t.0.1": "t .0 .1", "$retval->x": "$retval .x", "len( &x )": "x & len", "Größe.é": "Größe .é", "a::b.c": "a::b .c", "len(a::b::c[1:3])": "a::b::c [1:3] len", "x[:5]": "x [0:5]", "x[ 2 : 7 ]": "x [2:7]",
	} {
		p, ok := ParsePath(text)
		got := p.Name
		for _, s := range p.Steps {
			switch s.How {
			case Either:
				got += " ." + s.Name
			case Element:
				got += " [" + strconv.FormatInt(s.Index, 10) + "]"
			case Range:
				got += fmt.Sprintf(" [%d:%d]", s.Index, s.End)
			default:
				got += map[How]string{Target: " *", Address: " &", Length: " len"}[s.How]
			}
		}
		if !ok || got != want {
			t.Errorf("%s is %q, not %q", text, got, want)
		}
	}
	for text, id := range map[string]string{
		"": "BAD_PATH", "a.": "BAD_PATH", "a..b": "BAD_PATH", "a[": "BAD_INDEX", "a[b": "PATH_NO_CLOSE", "a[b+]": "BAD_INDEX", "a[b*2]": "PATH_NO_CLOSE", "a[1-]": "BAD_INDEX", "a[1": "PATH_NO_CLOSE", "(a": "PATH_NO_CLOSE", "len(a": "PATH_NO_CLOSE", "a b": "BAD_PATH", "a-b": "BAD_HYPHEN",
		"a[99999999999999999999]": "BAD_INDEX", strings.Repeat("*", 40) + "a": "TOO_MANY_OPS", "$": "BAD_PATH", "7": "BAD_PATH",
		"a[3:3]": "BAD_RANGE", "a[3:]": "BAD_INDEX", "a[:]": "BAD_INDEX", "a[1:2": "PATH_NO_CLOSE", "a::": "BAD_PATH", "::a": "BAD_PATH", "a:b": "BAD_PATH",
	} {
		if _, f := readPath(text, 0); f == nil || f.ID != id {
			t.Errorf("%s: %v, not %s", text, f, id)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range sources {
		f.Add(s.arg)
	}
	f.Add("&(*file->f_path[-3]).a.0")
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := ParseExpr(text, Scope{Function: vfsRead.Function, AsInSource: true}); err != nil {
			var e *caret.Error
			if !errors.As(err, &e) || e.Column < 0 || e.Column > len(text)+1 || e.Text == "" || e.Errno == 0 {
				t.Fatalf("%q as in the source: %v", text, err)
			}
		}
		for _, s := range []Scope{vfsRead, {Uprobe: true}, {Return: true}} {
			a, err := Parse(text, nil, s)
			var e *caret.Error
			if errors.As(err, &e) && (e.Column < 0 || e.Column > len(text)+1 || e.Text == "" || e.Errno == 0) {
				t.Fatalf("%q: column %d, %+v", text, e.Column, e)
			}
			if err != nil {
				continue
			}
			again, err := Parse(a.Name+"="+a.Text, nil, s)
			if err != nil || !reflect.DeepEqual(again, a) {
				t.Fatalf("%q is %+v, which is %+v, %v", text, a, again, err)
			}
		}
	})
}
