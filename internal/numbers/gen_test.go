package numbers

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// gen writes a random program in C or C++.
type gen struct {
	*rand.Rand
	cxx   bool
	types strings.Builder
	vars  strings.Builder
	funcs strings.Builder
	calls strings.Builder
	n     int // of types and variables
}

// value is one that the program has.
type value struct {
	code string // as C writes it
	want any    // as a Value's JSON has it
	// leaves are the numbers and texts in it, by what follows the parameter's name on the way to them: "" for itself.
	leaves map[string]any
}

// typ is a type, and how to make one of its values.
type typ struct {
	name, tail string // around a declared name
	value      func() value
	scalar     bool
}

// param is a parameter or a result.
type param struct {
	name string
	value
}

// function is one that the program calls once for each line that it is told.
type function struct {
	name   string
	params []param
	result *param
}

// leaf is the value of a scalar: want is what -args shows, number what a fetch argument does.
func leaf(code string, want, number any) value {
	return value{code, want, map[string]any{"": number}}
}

// integer is a type of so many bits. write is how its values are written, which are int64 or uint64.
func (g *gen) integer(name string, bits int, signed bool, write func(n any) string) typ {
	return typ{name: name, scalar: true, value: func() value {
		n := any(g.Uint64() >> g.IntN(64))
		if signed {
			n = int64(n.(uint64)) << (64 - bits) >> (64 - bits)
		} else {
			n = n.(uint64) << (64 - bits) >> (64 - bits)
		}
		return leaf(write(n), n, n)
	}}
}

// inC is an integer type of C's.
func (g *gen) inC(name string, bits int, signed bool) typ {
	return g.integer(name, bits, signed, func(n any) string {
		if n == int64(-1<<63) {
			return "(-9223372036854775807LL-1)"
		}
		if signed {
			return fmt.Sprintf("(%s)%dLL", name, n)
		}
		return fmt.Sprintf("(%s)%dULL", name, n)
	})
}

func (g *gen) float(name string) typ {
	return typ{name: name, scalar: true, value: func() value {
		v := float64(g.IntN(1<<20)-1<<19) / 8
		code := fmt.Sprintf("(%s)%g", name, v)
		if name == "long double" { // no fetch argument has such a type
			return value{code, v, nil}
		}
		return leaf(code, v, v)
	}}
}

func (g *gen) boolean() typ {
	name := "_Bool"
	if g.cxx {
		name = "bool"
	}
	return typ{name: name, scalar: true, value: func() value {
		v := g.IntN(2)
		return leaf(fmt.Sprint(v), v == 1, uint64(v))
	}}
}

func (g *gen) enum() typ {
	g.n++
	name := fmt.Sprintf("e%d", g.n)
	values := map[string]int64{}
	var list []string
	low := int64(0)
	if g.IntN(2) == 0 {
		low = -1 << 31
	}
	for i := range 1 + g.IntN(4) {
		v := low + g.Int64N(1<<32+min(low, 0))
		member := fmt.Sprintf("%s_%d", name, i)
		for _, other := range values {
			if other == v {
				v++
			}
		}
		values[member] = v
		list = append(list, member)
	}
	signed := false
	var code []string
	for _, m := range list {
		signed = signed || values[m] < 0
	}
	for _, m := range list {
		if signed && values[m] > 1<<31-1 {
			values[m] -= 1 << 31
		}
		code = append(code, fmt.Sprintf("%s = %dLL", m, values[m]))
	}
	fmt.Fprintf(&g.types, "enum %s { %s };\n", name, strings.Join(code, ", "))
	return typ{name: "enum " + name, scalar: true, value: func() value {
		m := list[g.IntN(len(list))]
		number := any(values[m])
		if !signed {
			number = uint64(values[m])
		}
		// Two members may have one value after all: then neither name is asked for.
		for _, other := range list {
			if other != m && values[other] == values[m] {
				return value{m, nil, map[string]any{"": number}}
			}
		}
		return leaf(m, m, number)
	}}
}

func (g *gen) pointer() typ {
	return typ{name: "void *", scalar: true, value: func() value {
		v := g.Uint64() >> 17
		return leaf(fmt.Sprintf("(void *)0x%xULL", v), fmt.Sprintf("%#x", v), v)
	}}
}

func (g *gen) text() typ {
	return typ{name: "const char *", scalar: true, value: func() value {
		s := g.word(12)
		return value{fmt.Sprintf("%q", s), s, map[string]any{"": s}}
	}}
}

func (g *gen) word(most int) string {
	b := make([]byte, 1+g.IntN(most))
	for i := range b {
		b[i] = 'a' + byte(g.IntN(26))
	}
	return string(b)
}

func (g *gen) number() typ {
	all := []typ{
		g.inC("signed char", 8, true), g.inC("unsigned char", 8, false), g.inC("char", 8, true), g.inC("short", 16, true),
		g.inC("unsigned short", 16, false), g.inC("int", 32, true), g.inC("unsigned", 32, false), g.inC("long", 64, true),
		g.inC("unsigned long", 64, false), g.boolean(), g.float("float"), g.float("double"),
	}
	return all[g.IntN(len(all))]
}

func (g *gen) any() typ {
	switch g.IntN(14) {
	case 0:
		return g.enum()
	case 1:
		return g.pointer()
	case 2:
		return g.text()
	case 3:
		return g.float("long double")
	case 4, 5:
		return g.structure(1)
	case 6:
		return g.pointed()
	}
	return g.number()
}

// member is a structure's: its declaration for a name, and its value.
type member struct {
	decl  func(name string) string
	value func() value
	bits  bool
}

func (g *gen) member(depth int) member {
	t := g.number()
	switch g.IntN(10) {
	case 0, 1:
		return g.bitField()
	case 2:
		n := 1 + g.IntN(5)
		return member{func(name string) string { return fmt.Sprintf("%s %s[%d]", t.name, name, n) }, func() value {
			v := value{leaves: map[string]any{}}
			var code []string
			var want, numbers []any
			for range n {
				e := t.value()
				code, want, numbers = append(code, e.code), append(want, e.want), append(numbers, e.leaves[""])
			}
			v.code, v.want = "{"+strings.Join(code, ", ")+"}", want
			v.leaves[""] = numbers
			if t.name == "char" {
				return value{`"` + "ab"[:min(2, n-1)] + `"`, "ab"[:min(2, n-1)], map[string]any{"": "ab"[:min(2, n-1)]}}
			}
			return v
		}, false}
	case 3:
		if depth > 0 {
			t = g.structure(depth - 1)
		}
	case 4:
		t = g.enum()
	case 5:
		t = g.text()
	}
	return member{func(name string) string { return t.name + " " + name }, t.value, false}
}

func (g *gen) bitField() member {
	widths := map[string]int{"int": 32, "unsigned": 32, "signed char": 8, "unsigned short": 16, "long": 64, "unsigned long": 64}
	names := []string{"int", "unsigned", "signed char", "unsigned short", "long", "unsigned long"}
	name := names[g.IntN(len(names))]
	width := 1 + g.IntN(widths[name])
	signed := !strings.HasPrefix(name, "unsigned")
	return member{func(field string) string { return fmt.Sprintf("%s %s : %d", name, field, width) }, func() value {
		n := g.Uint64()
		if signed {
			v := int64(n) << (64 - width) >> (64 - width)
			if v == -1<<63 {
				v++
			}
			return leaf(fmt.Sprintf("%dLL", v), v, v)
		}
		v := n << (64 - width) >> (64 - width)
		return leaf(fmt.Sprintf("%dULL", v), v, v)
	}, true}
}

// structure is a struct of some members.
func (g *gen) structure(depth int) typ {
	n := 1 + g.IntN(5)
	members := make([]member, n)
	var decls strings.Builder
	for i := range members {
		members[i] = g.member(depth)
		fmt.Fprintf(&decls, " %s;", members[i].decl(fmt.Sprintf("m%d", i)))
	}
	g.n++
	name := fmt.Sprintf("struct s%d", g.n)
	fmt.Fprintf(&g.types, "%s {%s };\n", name, decls.String())
	return typ{name: name, value: func() value {
		v := value{leaves: map[string]any{}}
		want := map[string]any{}
		var code []string
		for i, m := range members {
			mv := m.value()
			code = append(code, mv.code)
			field := fmt.Sprintf("m%d", i)
			want[field] = mv.want
			for path, number := range mv.leaves {
				v.leaves["."+field+path] = number
			}
		}
		v.code, v.want = "{"+strings.Join(code, ", ")+"}", want
		return v
	}}
}

// pointed is a pointer to a structure, or in C++ a reference.
func (g *gen) pointed() typ {
	s := g.structure(1)
	reference := g.cxx && g.IntN(2) == 0
	sign, take := " *", "&"
	if reference {
		sign, take = " &", ""
	}
	return typ{name: s.name + sign, value: func() value {
		v := s.value()
		at := g.variable(s, v)
		out := value{code: take + at, leaves: map[string]any{}}
		for path, number := range v.leaves {
			out.leaves["->"+strings.TrimPrefix(path, ".")] = number
		}
		if reference {
			out.want = v.want
		}
		return out
	}}
}

// variable declares a global variable with a value.
func (g *gen) variable(t typ, v value) string {
	g.n++
	name := fmt.Sprintf("v%d", g.n)
	fmt.Fprintf(&g.vars, "%s %s%s = %s;\n", t.name, name, t.tail, v.code)
	return name
}

// function adds a random function and its call.
func (g *gen) function(i int) function {
	f := function{name: fmt.Sprintf("f%d", i)}
	result, back := "void", ""
	if g.IntN(8) > 0 {
		t := g.any()
		v := t.value()
		given := g.variableOf(t, v)
		if t.scalar && g.IntN(3) == 0 {
			given = v.code // a constant, which callers know
		}
		result, back = t.name, "\treturn "+given+";\n"
		f.result = &param{"ret", v}
	}
	var decls, args, uses []string
	for j := range g.IntN(13) {
		t := g.any()
		p := param{fmt.Sprintf("p%d", j), t.value()}
		arg := p.code
		if !t.scalar && !strings.HasSuffix(t.name, "*") && !strings.HasSuffix(t.name, "&") || g.IntN(2) == 0 {
			arg = g.variableOf(t, p.value)
		}
		switch g.IntN(4) {
		case 0:
			uses = append(uses, fmt.Sprintf("\tlook(&%s);\n", p.name))
		case 1, 2:
			if t.scalar && t.name != "const char *" && t.name != "void *" {
				uses = append(uses, fmt.Sprintf("\tsink += %s > 0;\n", p.name))
			} else {
				uses = append(uses, fmt.Sprintf("\tlook(&%s);\n", p.name))
			}
		}
		decls, args = append(decls, t.name+" "+p.name), append(args, arg)
		f.params = append(f.params, p)
	}
	storage := []string{"", "static "}[g.IntN(2)]
	if len(decls) == 0 {
		decls = []string{"void"}
	}
	fmt.Fprintf(&g.funcs, "%s__attribute__((noinline)) %s %s(%s)\n{\n\tsink += %d;\n%s%s}\n", storage, result, f.name, strings.Join(decls, ", "), i+1, strings.Join(uses, ""), back)
	call := fmt.Sprintf("%s(%s);", f.name, strings.Join(args, ", "))
	if f.result != nil && !strings.HasSuffix(result, "&") {
		g.n++
		fmt.Fprintf(&g.calls, "\t%s r%d = %s look(&r%d);\n", result, g.n, call, g.n)
	} else {
		fmt.Fprintf(&g.calls, "\t%s\n", call)
	}
	return f
}

// variableOf is variable, but for a reference, which is what it refers to.
func (g *gen) variableOf(t typ, v value) string {
	if strings.HasSuffix(t.name, "&") {
		return v.code
	}
	return g.variable(t, v)
}

// program is one of n functions, which it calls one after the other for each line that it reads.
func (g *gen) program(n int) (source string, funcs []function) {
	for i := range n {
		funcs = append(funcs, g.function(i))
	}
	linkage := ""
	if g.cxx {
		linkage = `extern "C" `
	}
	source = "#include <stdio.h>\n" + g.types.String() +
		"volatile long sink;\n" + linkage + "__attribute__((noinline)) void look(const volatile void *p) { __asm__ volatile(\"\" :: \"r\"(p) : \"memory\"); }\n" +
		g.vars.String() + g.funcs.String() +
		"int main(void)\n{\n\tputs(\"ready\");\n\tfflush(stdout);\n\tint c;\nagain:\n\twhile ((c = getchar()) != '\\n')\n\t\tif (c < 0)\n\t\t\treturn 0;\n" +
		g.calls.String() + "\tputs(\"done\");\n\tfflush(stdout);\n\tgoto again;\n}\n"
	return source, funcs
}
