package numbers

import (
	"fmt"
	"strings"
)

// genRust writes a random program in Rust.
type genRust struct{ gen }

func (g *genRust) integer() typ {
	bits := []int{8, 16, 32, 64}[g.IntN(4)]
	signed := g.IntN(2) == 0
	sign, size := "u", fmt.Sprint(bits)
	if signed {
		sign = "i"
	}
	if bits == 64 && g.IntN(2) == 0 {
		size = "size"
	}
	name := sign + size
	return g.gen.integer(name, bits, signed, func(n any) string { return fmt.Sprint(n) })
}

func (g *genRust) number() typ {
	switch g.IntN(10) {
	case 0:
		return typ{name: "bool", scalar: true, value: func() value {
			v := g.IntN(2)
			return leaf(fmt.Sprint(v == 1), v == 1, uint64(v))
		}}
	case 1, 2:
		name := []string{"f32", "f64"}[g.IntN(2)]
		return typ{name: name, scalar: true, value: func() value {
			v := float64(g.IntN(1<<20)-1<<19) / 8
			return leaf(fmt.Sprintf("(%g_%s)", v, name), v, v)
		}}
	}
	return g.integer()
}

func (g *genRust) text() typ {
	return typ{name: "&'static str", value: func() value {
		s := g.word(12)
		return value{fmt.Sprintf("%q", s), s, map[string]any{"": s}}
	}}
}

func (g *genRust) any(depth int) typ {
	switch g.IntN(12) {
	case 0, 1:
		return g.text()
	case 2:
		t, n := g.number(), 1+g.IntN(4)
		name := fmt.Sprintf("[%s; %d]", t.name, n)
		return typ{name: name, value: func() value {
			code, want := elements(t, n)
			return value{code: "[" + code + "]", want: want}
		}}
	case 3, 4:
		if depth > 0 {
			return g.structure(depth - 1)
		}
	case 5:
		return g.enum()
	case 6:
		if depth > 0 {
			return g.sum(depth - 1)
		}
	case 7:
		return g.option()
	}
	return g.number()
}

func (g *genRust) option() typ {
	t := g.number()
	if g.IntN(2) == 0 {
		t = g.text()
	}
	return typ{name: "Option<" + t.name + ">", value: func() value {
		if g.IntN(3) == 0 {
			return value{code: "None", want: "None"}
		}
		v := t.value()
		return value{code: "Some(" + v.code + ")", want: map[string]any{"Some": v.want}}
	}}
}

// sum is an enumeration with data.
func (g *genRust) sum(depth int) typ {
	const unit, tuple, fields = 0, 1, 2
	kinds, types := make([]int, 2+g.IntN(3)), make([][]typ, 5)
	decls := make([]string, len(kinds))
	for i := range kinds {
		kinds[i] = g.IntN(3)
		decls[i] = fmt.Sprintf("M%d", i)
		if kinds[i] == unit {
			continue
		}
		var parts []string
		for j := range 1 + g.IntN(2) {
			t := g.any(depth)
			types[i] = append(types[i], t)
			if kinds[i] == fields {
				parts = append(parts, fmt.Sprintf("m%d: %s", j, t.name))
			} else {
				parts = append(parts, t.name)
			}
		}
		if kinds[i] == tuple {
			decls[i] += "(" + strings.Join(parts, ", ") + ")"
		} else {
			decls[i] += " { " + strings.Join(parts, ", ") + " }"
		}
	}
	g.n++
	name := fmt.Sprintf("E%d", g.n)
	fmt.Fprintf(&g.types, "#[derive(Clone, Copy)] pub enum %s { %s }\n", name, strings.Join(decls, ", "))
	return typ{name: name, value: func() value {
		i := g.IntN(len(kinds))
		member := fmt.Sprintf("M%d", i)
		var code []string
		var list []any
		object := map[string]any{}
		for j, t := range types[i] {
			v := t.value()
			field := fmt.Sprintf("m%d", j)
			list, object[field] = append(list, v.want), v.want
			if kinds[i] == fields {
				v.code = field + ": " + v.code
			}
			code = append(code, v.code)
		}
		all := strings.Join(code, ", ")
		switch {
		case kinds[i] == unit:
			return value{code: name + "::" + member, want: member}
		case kinds[i] == fields:
			return value{code: fmt.Sprintf("%s::%s { %s }", name, member, all), want: map[string]any{member: object}}
		case len(list) == 1:
			return value{code: fmt.Sprintf("%s::%s(%s)", name, member, all), want: map[string]any{member: list[0]}}
		}
		return value{code: fmt.Sprintf("%s::%s(%s)", name, member, all), want: map[string]any{member: list}}
	}}
}

// enum has no data.
func (g *genRust) enum() typ {
	g.n++
	name := fmt.Sprintf("E%d", g.n)
	n := 1 + g.IntN(4)
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf("M%d", i))
	}
	fmt.Fprintf(&g.types, "#[derive(Clone, Copy)] pub enum %s { %s }\n", name, strings.Join(list, ", "))
	return typ{name: name, scalar: true, value: func() value {
		i := g.IntN(n)
		return value{code: fmt.Sprintf("%s::M%d", name, i), want: fmt.Sprintf("M%d", i)}
	}}
}

// structure may have its members in another order in memory.
func (g *genRust) structure(depth int) typ {
	types := make([]typ, 1+g.IntN(5))
	var decls []string
	for i := range types {
		types[i] = g.any(depth)
		decls = append(decls, fmt.Sprintf("pub m%d: %s", i, types[i].name))
	}
	g.n++
	name := fmt.Sprintf("S%d", g.n)
	fmt.Fprintf(&g.types, "#[derive(Clone, Copy)] pub struct %s { %s }\n", name, strings.Join(decls, ", "))
	return typ{name: name, value: func() value {
		v := value{leaves: map[string]any{}}
		want := map[string]any{}
		var code []string
		for i, t := range types {
			mv := t.value()
			field := fmt.Sprintf("m%d", i)
			code = append(code, field+": "+mv.code)
			want[field] = mv.want
			for path, number := range mv.leaves {
				v.leaves["."+field+path] = number
			}
		}
		v.code, v.want = name+" { "+strings.Join(code, ", ")+" }", want
		return v
	}}
}

func (g *genRust) pointed(depth int) typ {
	s := g.structure(depth)
	return typ{name: "&'static " + s.name, value: func() value {
		v := s.value()
		out := value{code: "&" + g.variable(s, v), leaves: map[string]any{}}
		for path, number := range v.leaves {
			out.leaves["->"+strings.TrimPrefix(path, ".")] = number
		}
		return out
	}}
}

// param is the type of a parameter or a result.
func (g *genRust) param() typ {
	if g.IntN(8) == 0 {
		return g.pointed(1)
	}
	return g.any(2)
}

// variable declares a global variable with a value.
func (g *genRust) variable(t typ, v value) string {
	g.n++
	name := fmt.Sprintf("V%d", g.n)
	fmt.Fprintf(&g.vars, "static %s: %s = %s;\n", name, t.name, v.code)
	return name
}

func (g *genRust) function(i int) function {
	f := function{name: fmt.Sprintf("random::f%d", i)}
	result, back := "", ""
	if g.IntN(8) > 0 {
		t := g.param()
		v := t.value()
		given := "black_box(" + g.variable(t, v) + ")"
		if g.IntN(3) == 0 {
			given = v.code // a constant, which callers know
		}
		result, back = " -> "+t.name, "\t"+given+"\n"
		f.result = &param{"ret", v}
	}
	var decls, args, uses []string
	for j := range g.IntN(13) {
		t := g.param()
		p := param{fmt.Sprintf("p%d", j), t.value()}
		switch g.IntN(4) {
		case 0, 1:
			uses = append(uses, fmt.Sprintf("\tblack_box(&%s);\n", p.name))
		case 2:
			uses = append(uses, fmt.Sprintf("\tblack_box(%s);\n", p.name))
		}
		arg := p.code
		if g.IntN(3) > 0 {
			arg = g.variable(t, p.value)
		}
		if g.IntN(2) == 0 {
			arg = "black_box(" + arg + ")"
		}
		decls, args = append(decls, p.name+": "+t.name), append(args, arg)
		f.params = append(f.params, p)
	}
	fmt.Fprintf(&g.funcs, "#[inline(never)]\nfn f%d(%s)%s {\n\tSINK.fetch_add(%d, Relaxed);\n%s%s}\n\n", i, strings.Join(decls, ", "), result, i+1, strings.Join(uses, ""), back)
	call := fmt.Sprintf("f%d(%s)", i, strings.Join(args, ", "))
	if g.IntN(2) == 0 {
		call = "black_box(" + call + ")"
	}
	fmt.Fprintf(&g.calls, "\t%s;\n", call)
	return f
}

// program is one of n functions.
func (g *genRust) program(n int) (source string, funcs []function) {
	for i := range n {
		funcs = append(funcs, g.function(i))
	}
	source = "#![allow(warnings)]\nuse std::hint::black_box;\nuse std::io::BufRead;\nuse std::sync::atomic::{AtomicU64, Ordering::Relaxed};\n\n" + g.types.String() +
		"static SINK: AtomicU64 = AtomicU64::new(0);\n\n" + g.vars.String() + g.funcs.String() +
		"fn main() {\n\tlet mut line = String::new();\n\tprintln!(\"ready\");\n\twhile std::io::stdin().lock().read_line(&mut line).unwrap() > 0 {\n" +
		g.calls.String() + "\tprintln!(\"done\");\n\t}\n}\n"
	return source, funcs
}
