package numbers

import (
	"fmt"
	"strings"
)

// genGo writes a random program in Go.
type genGo struct{ gen }

func (g *genGo) integer() typ {
	bits := []int{8, 16, 32, 64}[g.IntN(4)]
	signed := g.IntN(2) == 0
	name := fmt.Sprintf("int%d", bits)
	switch {
	case !signed:
		name = "u" + name
	case bits == 64 && g.IntN(2) == 0:
		name = "int"
	}
	return g.gen.integer(name, bits, signed, func(n any) string { return fmt.Sprint(n) })
}

func (g *genGo) number() typ {
	switch g.IntN(10) {
	case 0:
		return typ{name: "bool", scalar: true, value: func() value {
			v := g.IntN(2)
			return leaf(fmt.Sprint(v == 1), v == 1, uint64(v))
		}}
	case 1, 2:
		name := []string{"float32", "float64"}[g.IntN(2)]
		return typ{name: name, scalar: true, value: func() value {
			v := float64(g.IntN(1<<20)-1<<19) / 8
			return leaf(fmt.Sprint(v), v, v)
		}}
	}
	return g.integer()
}

func (g *genGo) text() typ {
	return typ{name: "string", value: func() value {
		s := g.word(12)
		return value{fmt.Sprintf("%q", s), s, map[string]any{"": s}}
	}}
}

func (g *genGo) any(depth int) typ {
	switch g.IntN(14) {
	case 0, 1:
		return g.text()
	case 2:
		return g.array(depth)
	case 3:
		return g.slice(depth)
	case 4, 5:
		if depth > 0 {
			return g.structure(depth - 1)
		}
	case 6:
		return g.boxed()
	case 7:
		return g.failure()
	}
	return g.number()
}

// elements are n values of a type: as Go writes them, as they are shown, and as fetch arguments are.
func elements(t typ, n int) (code string, want []any) {
	var list []string
	for range n {
		v := t.value()
		list, want = append(list, v.code), append(want, v.want)
	}
	return strings.Join(list, ", "), want
}

func (g *genGo) array(depth int) typ {
	t, n := g.number(), g.IntN(4)
	if depth > 0 && g.IntN(4) == 0 {
		t = g.structure(depth - 1)
	}
	name := fmt.Sprintf("[%d]%s", n, t.name)
	return typ{name: name, value: func() value {
		code, want := elements(t, n)
		if want == nil {
			want = []any{}
		}
		return value{code: name + "{" + code + "}", want: want}
	}}
}

func (g *genGo) slice(depth int) typ {
	t := g.number()
	if depth > 0 && g.IntN(4) == 0 {
		t = g.structure(depth - 1)
	}
	if t.name == "uint8" {
		t = g.text()
	}
	name := "[]" + t.name
	return typ{name: name, value: func() value {
		code, want := elements(t, 1+g.IntN(4))
		return value{code: name + "{" + code + "}", want: want}
	}}
}

// boxed is a value in an interface.
func (g *genGo) boxed() typ {
	return typ{name: "any", value: func() value {
		t := g.number()
		if g.IntN(3) == 0 {
			t = g.text()
		}
		v := t.value()
		shown := fmt.Sprint(v.want)
		if s, ok := v.want.(string); ok {
			shown = fmt.Sprintf("%q", s)
		}
		return value{code: t.name + "(" + v.code + ")", want: t.name + "(" + shown + ")"}
	}}
}

func (g *genGo) failure() typ {
	return typ{name: "error", value: func() value {
		if g.IntN(3) == 0 {
			return value{code: "nil"}
		}
		s := g.word(8)
		return value{code: fmt.Sprintf("errors.New(%q)", s), want: fmt.Sprintf("(*errors.errorString)(%q)", s)}
	}}
}

func (g *genGo) structure(depth int) typ {
	types := make([]typ, g.IntN(5))
	decls := ""
	for i := range types {
		types[i] = g.any(depth)
		decls += fmt.Sprintf("; m%d %s", i, types[i].name)
	}
	g.n++
	name := fmt.Sprintf("s%d", g.n)
	fmt.Fprintf(&g.types, "type %s struct {%s }\n", name, strings.TrimPrefix(decls, ";"))
	return typ{name: name, value: func() value {
		v := value{leaves: map[string]any{}}
		want := map[string]any{}
		var code []string
		for i, t := range types {
			mv := t.value()
			code = append(code, mv.code)
			field := fmt.Sprintf("m%d", i)
			want[field] = mv.want
			for path, number := range mv.leaves {
				v.leaves["."+field+path] = number
			}
		}
		v.code, v.want = name+"{"+strings.Join(code, ", ")+"}", want
		return v
	}}
}

func (g *genGo) pointed(depth int) typ {
	s := g.structure(depth)
	return typ{name: "*" + s.name, value: func() value {
		v := s.value()
		out := value{code: "&" + g.variable(s, v), leaves: map[string]any{}}
		for path, number := range v.leaves {
			out.leaves["->"+strings.TrimPrefix(path, ".")] = number
		}
		return out
	}}
}

// variable declares a global variable with a value.
func (g *genGo) variable(t typ, v value) string {
	g.n++
	name := fmt.Sprintf("v%d", g.n)
	fmt.Fprintf(&g.vars, "var %s %s = %s\n", name, t.name, v.code)
	return name
}

// param is the type of a parameter or a result.
func (g *genGo) param() typ {
	if g.IntN(10) == 0 {
		return g.pointed(1)
	}
	return g.any(2)
}

func (g *genGo) function(i int) function {
	f := function{name: fmt.Sprintf("main.f%d", i)}
	result, back := "", ""
	if g.IntN(8) > 0 {
		t := g.param()
		v := t.value()
		result, back = t.name, "\treturn "+g.variable(t, v)+"\n"
		f.result = &param{"ret", v}
	}
	var decls, args, uses []string
	for j := range g.IntN(13) {
		t := g.param()
		p := param{fmt.Sprintf("p%d", j), t.value()}
		if g.IntN(2) == 0 {
			uses = append(uses, fmt.Sprintf("\tlook(%s)\n", p.name))
		}
		decls, args = append(decls, p.name+" "+t.name), append(args, g.variable(t, p.value))
		f.params = append(f.params, p)
	}
	fmt.Fprintf(&g.funcs, "//go:noinline\nfunc f%d(%s) %s {\n\tsink += %d\n%s%s}\n\n", i, strings.Join(decls, ", "), result, i+1, strings.Join(uses, ""), back)
	call := fmt.Sprintf("f%d(%s)", i, strings.Join(args, ", "))
	if result != "" {
		call = "look(" + call + ")"
	}
	fmt.Fprintf(&g.calls, "\t%s\n", call)
	return f
}

// program is one of n functions.
func (g *genGo) program(n int) (source string, funcs []function) {
	for i := range n {
		funcs = append(funcs, g.function(i))
	}
	source = "package main\n\nimport (\n\t\"bufio\"\n\t\"errors\"\n\t\"fmt\"\n\t\"os\"\n)\n\n" + g.types.String() +
		"var sink int\nvar seen any\nvar _ = errors.New\n\n//go:noinline\nfunc look(v any) { seen = v }\n\n" + g.vars.String() + g.funcs.String() +
		"func main() {\n\tin := bufio.NewReader(os.Stdin)\n\tfmt.Println(\"ready\")\n\tfor {\n\tif _, err := in.ReadString('\\n'); err != nil {\n\t\treturn\n\t}\n" +
		g.calls.String() + "\tfmt.Println(\"done\")\n\t}\n}\n"
	return source, funcs
}
