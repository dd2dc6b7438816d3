package kprobes

import "testing"

// What is told of a mapping in a look is asked once, also when our own mappings have come meanwhile; the next look asks again, one
// inside of it as well.
func TestAMappingIsToldOfOnceInALook(t *testing.T) {
	asked := 0
	lo := &looks{}
	ask := func(want int) {
		t.Helper()
		for range 3 {
			for offset := range uint64(2) {
				if got := lo.once(mappingKey{offset: offset}, func() bool { asked++; return offset == 1 }); got != (offset == 1) {
					t.Errorf("mapping %d: %v", offset, got)
				}
			}
			lo.changed()
		}
		if asked != want {
			t.Errorf("asked %d times instead of %d", asked, want)
		}
	}
	end := lo.anew()
	ask(2)
	inner := lo.anew()
	ask(4)
	inner()
	ask(4)
	end()
	ask(10) // without a look nothing is kept
}
