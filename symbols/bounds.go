package symbols

import "github.com/gokprobe/gokprobe/symbols/walk"

// Bounds are how much of one value is shown. A 0 means the default.
type Bounds struct {
	Depth int // levels of members and elements: 1 shows those of the value itself
	Items int // elements of a list or a container
	Bytes int // of a text
}

// DefaultBounds hold where others are not asked for.
var DefaultBounds = Bounds{Depth: 3, Items: 8, Bytes: 64}

// MostBounds are what a tracer reads at one hit without making the target wait for long.
var MostBounds = Bounds{Depth: 16, Items: 1024, Bytes: 4096}

// Within is p shown within bounds, which are cut to MostBounds.
func (p Param) Within(b Bounds) Param {
	p.bounds = b
	return p
}

// bounds are Bounds as a formatter counts with them.
type bounds struct {
	depth        int
	items, bytes int64
	fields       int   // and elements of one parameter, all levels
	reads        int   // of memory on walks through containers
	recorded     int64 // bytes of one parameter in a record
}

// Bounds that follow from others.
const (
	fieldsAlways = 64
	fieldsAtMost = 1 << 12
	recordAlways = 2048
	recordAsked  = 6144 // if more is asked for than by default
)

// made fills in the defaults, and what follows.
func (b Bounds) made() bounds {
	within := func(n, usual, most int) int {
		if n <= 0 {
			return usual
		}
		return min(n, most)
	}
	d, m := DefaultBounds, MostBounds
	b = Bounds{within(b.Depth, d.Depth, m.Depth), within(b.Items, d.Items, m.Items), within(b.Bytes, d.Bytes, m.Bytes)}
	more := max(b.Items, d.Items) * max(b.Depth, d.Depth)
	x := bounds{depth: b.Depth, items: int64(b.Items), bytes: int64(b.Bytes), reads: max(walk.Most, 16*b.Items), recorded: recordAlways}
	x.fields = min(fieldsAlways*more/(d.Items*d.Depth), fieldsAtMost)
	if b.Depth > d.Depth || b.Items > d.Items || b.Bytes > d.Bytes {
		x.recorded = recordAsked
	}
	return x
}
