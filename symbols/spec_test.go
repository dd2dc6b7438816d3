package symbols

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

func TestSpecificationsAreRead(t *testing.T) {
	for _, c := range []struct {
		spec string
		want []query
	}{
		{"foo", []query{{name: "foo"}}},
		{"foo+0x12", []query{{name: "foo+0x12"}, {name: "foo", offset: 18}}},
		{"foo+12", []query{{name: "foo+12"}, {name: "foo", offset: 12}}},
		{"foo+*", []query{{name: "foo+*"}, {name: "foo", isEvery: true}}},
		{"libc.so.6:malloc", []query{{name: "libc.so.6:malloc"}, {module: "libc.so.6", name: "malloc"}}},
		{"libstdc++.so.6:f+4", []query{
			{name: "libstdc++.so.6:f+4"}, {module: "libstdc++.so.6", name: "f+4"},
			{name: "libstdc++.so.6:f", offset: 4}, {module: "libstdc++.so.6", name: "f", offset: 4},
		}},
		{"prog:0x1139", []query{{name: "prog:0x1139"}, {module: "prog", addr: 0x1139}}},
		{"0x7f12", []query{{addr: 0x7f12}}},
		{"file.c:42", []query{{file: "file.c", line: 42}}},
		{"prog:file.c:42", []query{{module: "prog", file: "file.c", line: 42}}},
		{"std::vec::Vec<T>::push", []query{{name: "std::vec::Vec<T>::push"}}},
		{"prog:ns::f(int)", []query{{name: "prog:ns::f(int)"}, {module: "prog", name: "ns::f(int)"}}},
		{"operator+", []query{{name: "operator+"}}},
		{"A::operator+(A const&)", []query{{name: "A::operator+(A const&)"}}},
		{"[vdso]:time", []query{{name: "[vdso]:time"}, {module: "[vdso]", name: "time"}}},
		{"main.(*T).M", []query{{name: "main.(*T).M"}}},
		{"main.F[...].func1+8", []query{{name: "main.F[...].func1+8"}, {name: "main.F[...].func1", offset: 8}}},
	} {
		got, err := parseSpec(c.spec)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("parseSpec(%q)\n got %+v, %v\nwant %+v", c.spec, got, err, c.want)
		}
	}
	for _, spec := range []string{"", "  ", "0x", "0xg", "0x11112222333344445", "a\nb", "0x0"} {
		if got, err := parseSpec(spec); !errors.Is(err, ErrBadSpec) {
			t.Errorf("parseSpec(%q) = %+v, %v, want ErrBadSpec", spec, got, err)
		}
	}
}

// Whatever is typed, the readings are few, each names one thing, and the first
// one is the text itself.
func FuzzParseSpec(f *testing.F) {
	for _, s := range []string{"foo+0x12", "lib.so:mem*", "file.c:42", "0x7f12", "a::b<c:d>", "main.(*T).M+*", "[vdso]:x", "+*", ":", "a:0x1+2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, spec string) {
		qs, err := parseSpec(spec)
		if err != nil {
			if !errors.Is(err, ErrBadSpec) || len(qs) > 0 {
				t.Fatalf("%v, %v", qs, err)
			}
			return
		}
		if len(qs) == 0 || len(qs) > 4 {
			t.Fatalf("%d readings", len(qs))
		}
		for _, q := range qs {
			kinds := 0
			for _, set := range []bool{q.name != "", q.file != "", q.addr != 0} {
				if set {
					kinds++
				}
			}
			if kinds != 1 || (q.line > 0) != (q.file != "") || q.isEvery && q.offset != 0 {
				t.Fatalf("reading %+v", q)
			}
		}
		if q := qs[0]; q.name != "" && q.name != strings.TrimSpace(spec) {
			t.Fatalf("first reading is %+v", q)
		}
	})
}

func FuzzMatchGlob(f *testing.F) {
	f.Add("m*[a-c]?", "memcpya")
	f.Fuzz(func(t *testing.T, pattern, name string) {
		matchesGlob(pattern, name)
		isGlob(pattern)
		globHint(pattern)
		if !isGlob(pattern) && matchesGlob(pattern, pattern) != true {
			t.Fatalf("%q does not match itself", pattern)
		}
		mangledHint(name)
		matchesMangled("_ZN2ns4overEi", squeeze(name))
	})
}
