package ptrace

import "testing"

// TestEachKeepsItsOwn: of each thread and each address space, whatever others keep of them.
func TestEachKeepsItsOwn(t *testing.T) {
	var numbers, others Kept[int]
	var words Kept[string]
	one, two, word := 1, 2, "word"
	for name, holders := range map[string][2]Holder{"threads": {&Thread{}, &Thread{}}, "address spaces": {&Space{}, &Space{}}} {
		want := func(h Holder, number, other *int, text *string) {
			t.Helper()
			if numbers.Of(h) != number || others.Of(h) != other || words.Of(h) != text {
				t.Errorf("%s: kept is %v, %v, %v, want %v, %v, %v", name, numbers.Of(h), others.Of(h), words.Of(h), number, other, text)
			}
		}
		h := holders[0]
		want(h, nil, nil, nil)
		numbers.Keep(h, nil) // where there is nothing
		numbers.Keep(h, &one)
		words.Keep(h, &word)
		want(h, &one, nil, &word)
		others.Keep(h, &two)
		want(h, &one, &two, &word)
		numbers.Keep(h, &two)
		want(h, &two, &two, &word)
		numbers.Keep(h, nil)
		want(h, nil, &two, &word)
		want(holders[1], nil, nil, nil)
		others.Keep(h, nil)
		words.Keep(h, nil)
		want(h, nil, nil, nil)
	}
}

// BenchmarkKept is the way from a stop to what its handler remembers.
func BenchmarkKept(b *testing.B) {
	var first Kept[string]
	var k Kept[int]
	th, text, number := &Thread{}, "", 1
	first.Keep(th, &text)
	k.Keep(th, &number)
	for b.Loop() {
		if k.Of(th) != &number {
			b.Fatal("it is not kept")
		}
	}
}
