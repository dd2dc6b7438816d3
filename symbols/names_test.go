package symbols

import (
	"slices"
	"testing"
)

// The names are rustc's and g++'s own; the readable forms are those of
// rustfilt and c++filt.
var mangledNames = []struct{ linkage, full, short string }{
	{"_ZN4core3fmt9Formatter9write_str17h2f1bd2b5bd9bd5d1E", "core::fmt::Formatter::write_str", "core::fmt::Formatter::write_str"},
	{"_ZN71_$LT$Test$u20$$u2b$$u20$$u27$static$u20$as$u20$foo..Bar$LT$Test$GT$$GT$3bar17h930b740aa94f1d3aE",
		"<Test + 'static as foo::Bar<Test>>::bar", "<Test + 'static as foo::Bar<Test>>::bar"},
	{"_RNvMs_Cs4rLQ8jWscXF_6paramsINtB4_6HoldermE3putB4_", "<params::Holder<u32>>::put", "<params::Holder<u32>>::put"},
	{"_RNvXCs4rLQ8jWscXF_6paramsINtB2_6HoldermENtNtCsgEmfK2I1SDS_4core5clone5Clone5cloneB2_",
		"<params::Holder<u32> as core::clone::Clone>::clone", "<params::Holder<u32> as core::clone::Clone>::clone"},
	{"_ZN5alloc3vec16Vec$LT$T$C$A$GT$4push17h1b5c6c8f0a0e0d3cE", "alloc::vec::Vec<T,A>::push", "alloc::vec::Vec<T,A>::push"},
	{"_RNvCs1234_7mycrate3foo", "mycrate::foo", "mycrate::foo"},
	{"_RNvMs_Cs4fqI2P2rA04_13const_genericINtB4_3FooKb1_E3foo", "<const_generic::Foo<true>>::foo", "<const_generic::Foo<true>>::foo"},
	{"_ZN2ns4overEi", "ns::over(int)", "ns::over"},
	{"_ZNSt6vectorIiSaIiEE9push_backERKi", "std::vector<int, std::allocator<int> >::push_back(int const&)", "std::vector<int, std::allocator<int> >::push_back"},
	{"_ZN2ns3OpsD1Ev", "ns::Ops::~Ops()", "ns::Ops::~Ops"},
	{"_ZNKSt17basic_string_viewIcSt11char_traitsIcEE4sizeEv", "std::basic_string_view<char, std::char_traits<char> >::size() const",
		"std::basic_string_view<char, std::char_traits<char> >::size"},
	{"_ZplRK1AS1_", "operator+(A const&, A const&)", "operator+"},
	{"_ZN1AcviEv", "A::operator int()", "A::operator int"},
}

func TestMangledNamesAreReadable(t *testing.T) {
	for _, n := range mangledNames {
		if got := demangleFull(n.linkage); got != n.full {
			t.Errorf("%s is %q, want %q", n.linkage, got, n.full)
		}
		if got := demangleShort(n.linkage); got != n.short {
			t.Errorf("%s is %q without parameters, want %q", n.linkage, got, n.short)
		}
	}
}

func TestTheHintOfAReadableNameIsInItsMangledForm(t *testing.T) {
	for _, n := range mangledNames {
		for _, name := range []string{n.full, n.short} {
			if hint := mangledHint(name); !containsName([]byte(n.linkage+"\x00"), hint) {
				t.Errorf("hint %q of %q is not in %s", hint, name, n.linkage)
			}
			if !matchesMangled(n.linkage, squeeze(name)) {
				t.Errorf("%q does not match %s", name, n.linkage)
			}
		}
	}
}

func TestGlobs(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"mem*", "memcpy", true},
		{"mem*", "__memcpy", false},
		{"*", "", true},
		{"*cpy", "memcpy", true},
		{"m*m*y", "memcpymemcpy", true},
		{"m?mcpy", "memcpy", true},
		{"m?mcpy", "mmcpy", false},
		{"[a-m]emcpy", "memcpy", true},
		{"[!a-m]emcpy", "memcpy", false},
		{"[^x]emcpy", "memcpy", true},
		{"main.(*T).*", "main.(*T).Method", true},
		{"main.(*T).*", "main.(*XT).Method", false},
		{"main.F[...]", "main.F[...]", true},
		{"main.F[...]*", "main.F[...].func1", true},
		{"main.F[go.shape.int]", "main.F[go.shape.int]", false},
		{"net/http.*", "net/http.(*Server).Serve", true},
		{"ns::operator[]*", "ns::operator[](int)", true},
		{"a[", "a[", true},
		{"a*[", "ab[", true},
	} {
		if got := matchesGlob(c.pattern, c.name); got != c.want {
			t.Errorf("matchesGlob(%q, %q) = %v", c.pattern, c.name, got)
		}
	}
	for pattern, want := range map[string]bool{
		"main.(*T).M": false, "main.F[...]": false, "ns::operator[]": false, "memcpy": false,
		"mem*": true, "m?": true, "[ab]": true, "main.(*T).*": true, "*": true,
	} {
		if got := isGlob(pattern); got != want {
			t.Errorf("isGlob(%q) = %v", pattern, got)
		}
	}
}

func TestCopiesAndColdPartsOfAFunctionAreToldApart(t *testing.T) {
	for linkage, want := range map[string][2]string{
		"foo":                                 {"foo", ""},
		"foo.isra.0":                          {"foo", ".isra.0"},
		"foo.constprop.0.cold":                {"foo", ".constprop.0.cold"},
		"_ZN2ns4overEi.part.3":                {"_ZN2ns4overEi", ".part.3"},
		"_ZN4core3fmt5x17hdeadE.llvm.1234567": {"_ZN4core3fmt5x17hdeadE", ".llvm.1234567"},
		"main.isra":                           {"main", ".isra"},
		"main.(*T).M.func1":                   {"main.(*T).M.func1", ""},
		"crtstuff.c":                          {"crtstuff.c", ""},
	} {
		if base, suffix := splitClone(linkage); base != want[0] || suffix != want[1] {
			t.Errorf("splitClone(%q) = %q, %q", linkage, base, suffix)
		}
	}
	if got := demangleShort("_ZN2ns4overEi.cold"); got != "ns::over.cold" {
		t.Errorf("the cold part is called %q", got)
	}
	tab := file(t, build(t, "clones.cc", "-O2"))
	for spec, linkage := range map[string]string{
		"ns::checked":       "_ZN2ns7checkedEi",
		"ns::checked(int)":  "_ZN2ns7checkedEi",
		"plain":             "plain",
		"_ZN2ns7checkedEi":  "_ZN2ns7checkedEi",
		"ns::check*":        "_ZN2ns7checkedEi",
		"plain.cold":        "plain.cold",
		"ns::checked.cold*": "_ZN2ns7checkedEi.cold",
		"ns::checked.warm*": "_ZN2ns7checkedEi.warm",
	} {
		if loc := one(t, tab, spec); loc.Symbol.Linkage != linkage {
			t.Errorf("%s is %s, want %s", spec, loc.Symbol.Linkage, linkage)
		}
	}
}

func TestGoFunctionsNamedLikePartsAreWhole(t *testing.T) {
	tab := file(t, build(t, "cold.go"))
	found, err := tab.Resolve(t.Context(), "main.*")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, loc := range found {
		names = append(names, loc.Symbol.Linkage)
		if loc.Symbol.Linkage == "main.main" {
			continue
		}
		if params, err := tab.Params(loc.Addr); err != nil || len(params) != 1 || params[0].Name != "n" {
			t.Errorf("%s has the parameters %v: %v", loc.Symbol.Linkage, params, err)
		}
	}
	for _, name := range []string{"main.cold", "main.main", "main.warm"} {
		if !slices.Contains(names, name) {
			t.Errorf("main.* stands for %v, without %s", names, name)
		}
	}
}
