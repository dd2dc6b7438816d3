package symbols

import (
	"fmt"
	"path/filepath"
	"testing"
)

func scalarType(kind typeKind, size int64) *dtype { return &dtype{kind: kind, size: size, align: size} }

func structOf(name string, size, align int64, fields ...dfield) *dtype {
	return &dtype{kind: typeStruct, under: name, size: size, align: align, field: fields}
}

func at(off int64, t *dtype) dfield { return dfield{off: off, typ: t} }

func sumOf(size, align int64, discr *dfield, variants ...*dtype) *dtype {
	t := &dtype{kind: typeSum, under: "E", size: size, align: align, discr: discr}
	for i, v := range variants {
		t.variants = append(t.variants, variant{dfield: dfield{typ: v}, value: int64(i)})
	}
	return t
}

// What debug information does not tell is not guessed, and no shape of a type makes it panic.
func TestWhatRustTakesTypesFor(t *testing.T) {
	u8, u32, u64, f32 := scalarType(typeUint, 1), scalarType(typeUint, 4), scalarType(typeUint, 8), scalarType(typeFloat, 4)
	i128, none := scalarType(typeInt, 16), structOf("()", 0, 1)
	id := structOf("Id", 4, 4, at(0, u32))
	tag := &dfield{typ: u32}
	for name, c := range map[string]struct {
		t    *dtype
		want string // scalars as offset:size, or what else
	}{
		"a number":                           {u64, "0:8"},
		"nothing":                            {none, ""},
		"a type that is not known":           {&dtype{align: 1}, "doubt"},
		"two numbers in another order":       {structOf("P", 16, 8, at(8, u8), at(0, u64)), "0:8 8:1"},
		"a number and nothing":               {structOf("P", 8, 8, at(0, none), at(0, u64)), "0:8"},
		"three numbers":                      {structOf("T", 12, 4, at(0, u32), at(4, u32), at(8, u32)), "aggregate"},
		"two numbers, aligned to more":       {structOf("A", 16, 16, at(0, u8), at(1, u8)), "aggregate"},
		"two numbers, packed":                {structOf("K", 9, 1, at(0, u8), at(1, u64)), "aggregate"},
		"a wrapped float, maybe repr(C)":     {structOf("W", 4, 4, at(0, f32)), "doubt"},
		"a wrapped number":                   {id, "0:4"},
		"a wrapped number of 128 bits":       {structOf("W", 16, 16, at(0, i128)), "doubt"},
		"a pair with a wrapped number":       {structOf("P", 8, 4, at(0, id), at(4, u32)), "doubt"},
		"a pair with a standard wrapper":     {structOf("Duration", 16, 8, at(0, u64), at(8, structOf("Nanoseconds", 4, 4, at(0, u32)))), "0:8 8:4"},
		"an array":                           {&dtype{kind: typeArray, size: 8, align: 8, count: 1, elem: u64}, "aggregate"},
		"a union of two":                     {&dtype{kind: typeUnion, under: "U", size: 4, align: 4, field: []dfield{at(0, f32), at(0, f32)}}, "doubt"},
		"MaybeUninit of a float":             {&dtype{kind: typeUnion, under: "MaybeUninit<f32>", size: 4, align: 4, field: []dfield{at(0, none), at(0, f32)}}, "0:4"},
		"an option":                          {sumOf(8, 4, tag, none, structOf("Some", 8, 4, at(4, u32))), "0:4 4:4"},
		"an option in a niche":               {sumOf(8, 8, &dfield{typ: u64}, none, structOf("Some", 8, 8, at(0, u64))), "0:8"},
		"variants of two sizes":              {sumOf(16, 8, tag, structOf("A", 16, 8, at(8, u64)), structOf("B", 16, 8, at(4, u32))), "aggregate"},
		"variants of an integer and a float": {sumOf(8, 4, tag, structOf("A", 8, 4, at(4, u32)), structOf("B", 8, 4, at(4, f32))), "aggregate"},
		"an option of a wrapped number":      {sumOf(8, 4, tag, none, structOf("Some", 8, 4, at(4, id))), "doubt"},
		"a size that is alignment alone":     {sumOf(4, 4, nil, none), "aggregate"},
		"that in a pair":                     {structOf("P", 8, 4, at(0, sumOf(4, 4, nil, none)), at(4, u32)), "aggregate"},
		"a discriminant behind the data":     {sumOf(8, 4, &dfield{off: 4, typ: u32}, structOf("A", 8, 4, at(0, u32)), structOf("B", 8, 4, at(0, u32))), "doubt"},
		"a discriminant of no size":          {sumOf(4, 4, &dfield{typ: none}, none, structOf("A", 4, 4, at(0, u32))), "doubt"},
		"a coroutine": {&dtype{kind: typeSum, under: "{async_fn_env#0}", size: 2, align: 1, discr: &dfield{typ: u8},
			variants: []variant{{dfield: dfield{typ: structOf("0", 2, 1, at(1, u8))}}, {dfield: dfield{typ: structOf("1", 2, 1, at(1, u8))}}}}, "aggregate"},
	} {
		got, p := "", c.t.asPassed()
		switch {
		case p.isUndecided:
			got = "doubt"
		case p.isAggregate:
			got = "aggregate"
		}
		for i, s := range p.scalars {
			if p.isUndecided || p.isAggregate {
				t.Errorf("%s: it has scalars, too", name)
			}
			if i > 0 {
				got += " "
			}
			got += fmt.Sprintf("%d:%d", s.off, s.size)
		}
		if got != c.want {
			t.Errorf("%s is taken for %q, want %q", name, got, c.want)
		}
		for _, memory := range []bool{false, true} {
			rustPlaces([]*dtype{c.t, u64}, c.t, memory)
			rustResult(c.t, memory)
		}
	}
}

// A function that other languages can call by its name may have their convention: what differs is not known.
func TestRustFunctionsWithNamesOfTheirOwn(t *testing.T) {
	u32, f32 := scalarType(typeUint, 4), scalarType(typeFloat, 4)
	for name, c := range map[string]struct {
		t     *dtype
		known bool
	}{
		"a number":      {u32, true},
		"two integers":  {structOf("P", 8, 4, at(0, u32), at(4, u32)), false},
		"two floats":    {structOf("P", 8, 4, at(0, f32), at(4, f32)), false},
		"three numbers": {structOf("T", 12, 4, at(0, u32), at(4, u32), at(8, u32)), false},
		"large":         {&dtype{kind: typeStruct, under: "L", size: 24, align: 4, field: []dfield{at(0, &dtype{kind: typeArray, size: 24, align: 4, count: 6, elem: u32})}}, true},
	} {
		s := &signature{unit: &unit{lang: langRust, hasRustMemory: true}, linkage: "mine"}
		if got := !s.rustResult(c.t).isUnknown; got != c.known {
			t.Errorf("%s as a result: known %v, want %v", name, got, c.known)
		}
		s.linkage = "_ZN4mine4mine17h0123456789abcdefE"
		if s.rustResult(c.t).isUnknown {
			t.Errorf("%s as a result of a mangled name is not known", name)
		}
	}
}

// A small unit has no list of places even if it is optimized, and what LLVM has taken away is gone all the same.
func TestASmallOptimizedUnitIsSeenToBeOptimized(t *testing.T) {
	for _, c := range []struct {
		flags []string
		want  []string // of g's a and b: the value, or ? where it is not known
	}{
		{[]string{"-O0"}, []string{"1", "5"}},
		{[]string{"-O2"}, []string{"?", "5"}},
	} {
		out := filepath.Join(t.TempDir(), "prog")
		run(t, "clang", append([]string{"-g", "-o", out, filepath.Join("testdata", "small.c")}, c.flags...)...)
		x := trace(t, out, "main")
		entry := one(t, x.tab, "g").Addr
		x.runTo(entry)
		params, err := x.tab.Params(entry)
		must(t, err)
		var got []string
		for _, p := range params {
			v := p.Value(x.vectorRegs(), x.mem)
			if v.Err != nil {
				v.Text = "?"
			}
			got = append(got, v.Text)
		}
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%v: got %v, want %v", c.flags, got, c.want)
		}
	}
}
