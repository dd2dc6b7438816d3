package frames

import (
	"cmp"
	"slices"
	"testing"

	"github.com/gokprobe/gokprobe/arch"
)

func TestWhichFrameIsDeeper(t *testing.T) {
	for _, c := range []struct {
		f, other Frame
		want     bool
	}{
		{Frame{PID: 1, CFA: 0x1000}, Frame{PID: 1, CFA: 0x2000}, true},
		{Frame{PID: 1, CFA: 0x2000}, Frame{PID: 1, CFA: 0x1000}, false},
		{Frame{PID: 1, CFA: 0x1000}, Frame{PID: 1, CFA: 0x1000}, false},
		{Frame{PID: 1, Goroutine: 7, CFA: 0x20}, Frame{PID: 1, Goroutine: 7, CFA: 0x10}, true}, // a distance from the base
		{Frame{PID: 1, Goroutine: 7, CFA: 0x10}, Frame{PID: 1, Goroutine: 7, CFA: 0x20}, false},
	} {
		if got := c.f.Deeper(c.other); got != c.want {
			t.Errorf("%+v is deeper than %+v: %v", c.f, c.other, got)
		}
	}
}

func TestAnEmptyBookHasNoCalls(t *testing.T) {
	var b Book[*int]
	if b.Top(Frame{}) != nil || b.Latest(Owner{}) != nil || b.Of(Owner{}) != nil || len(b.Frames()) != 0 {
		t.Error("an empty book has calls")
	}
	for range b.In(Frame{}) {
		t.Error("an empty book has calls in a frame")
	}
}

// followed is a call as a test keeps it.
type followed struct {
	call  Call[*followed]
	id    int
	frame Frame
	owner Owner
}

// model keeps the same calls in the simplest way.
type model struct {
	book    Book[*followed]
	entered []*followed           // in the order of their entries
	owned   map[Owner][]*followed // in the order in which each got them
	next    int
}

func (m *model) enter(own Owner, f Frame) {
	c := &followed{id: m.next, frame: f, owner: own}
	m.next++
	m.book.Enter(&c.call, c, own, f)
	m.entered, m.owned[own] = append(m.entered, c), append(m.owned[own], c)
}

func (m *model) leave(c *followed) {
	m.book.Leave(&c.call)
	m.entered = without(m.entered, c)
	m.owned[c.owner] = without(m.owned[c.owner], c)
}

func (m *model) give(c *followed, own Owner) {
	m.book.Give(&c.call, own)
	m.owned[c.owner] = without(m.owned[c.owner], c)
	c.owner = own
	m.owned[own] = append(m.owned[own], c)
}

func without(all []*followed, c *followed) []*followed {
	return slices.DeleteFunc(all, func(o *followed) bool { return o == c })
}

func last(all []*followed) *followed {
	if len(all) == 0 {
		return nil
	}
	return all[len(all)-1]
}

// check compares all that the book answers.
func (m *model) check(t *testing.T) {
	t.Helper()
	frames := map[Frame][]*followed{}
	for _, c := range m.entered {
		frames[c.frame] = append(frames[c.frame], c)
	}
	for f, want := range frames {
		got := slices.Collect(m.book.In(f))
		slices.Reverse(got)
		if !slices.Equal(got, want) || m.book.Top(f) != last(want) {
			t.Fatalf("frame %+v has %d calls, want %d", f, len(got), len(want))
		}
	}
	for own, want := range m.owned {
		if got := m.book.Of(own); !slices.Equal(got, want) || m.book.Latest(own) != last(want) {
			t.Fatalf("owner %+v has %d calls, want %d", own, len(got), len(want))
		}
	}
	for _, c := range m.entered {
		if c.call.Frame != c.frame || c.call.Owner != c.owner {
			t.Fatalf("call %d is in %+v of %+v, want %+v of %+v", c.id, c.call.Frame, c.call.Owner, c.frame, c.owner)
		}
	}
	all := m.book.Frames()
	slices.SortFunc(all, func(a, b Frame) int { return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.CFA, b.CFA)) })
	if len(all) != len(frames) || len(slices.Compact(all)) != len(frames) {
		t.Fatalf("%d frames, want %d", len(all), len(frames))
	}
	for _, own := range m.book.owners { // what nobody has takes no memory
		if own == nil {
			t.Fatal("an owner without calls is kept")
		}
	}
}

// FuzzBook has calls come and go as the bytes say, two for each step.
func FuzzBook(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x11\x01\x00\x00\x22\x02\x01\x01\x01"))
	f.Add([]byte("\x00\x00\x00\x00\x00\x00\x01\x01\x01\x01\x01\x00"))
	f.Add([]byte("\x00\x01\x00\x12\x03\x00\x02\x21\x02\x30\x03\x01"))
	f.Fuzz(func(t *testing.T, steps []byte) {
		m := &model{owned: map[Owner][]*followed{}}
		for ; len(steps) >= 2; steps = steps[2:] {
			what, n := steps[0]%4, int(steps[1])
			own, frame := Owner{TID: n % 3}, Frame{PID: 1 + n%2, CFA: arch.Addr(n / 16)}
			switch {
			case what == 0 || len(m.entered) == 0:
				m.enter(own, frame)
			case what == 1:
				m.leave(m.entered[n%len(m.entered)])
			case what == 2:
				m.give(m.entered[n%len(m.entered)], own)
			default: // a frame ends, each of its calls while the book goes through them
				for c := range m.book.In(frame) {
					m.leave(c)
				}
			}
			m.check(t)
		}
	})
}
