package records

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestTimesThatTheTargetTellsAreBounded(t *testing.T) {
	for _, c := range []struct{ told, first, last, want uint64 }{
		{15, 10, 20, 15}, {10, 10, 20, 10}, {20, 10, 20, 20}, {21, 10, 20, 20}, {9, 10, 20, 10}, {0, 10, 20, 10},
		{^uint64(0), 10, 20, 10},  // just before the counter began anew
		{2, ^uint64(0) - 5, 3, 2}, // and just after
		{^uint64(0) - 9, ^uint64(0) - 5, 3, ^uint64(0) - 5},
		{1 << 62, 10, 20, 20},
	} {
		if got := Within(c.told, c.first, c.last); got != c.want {
			t.Errorf("%d between %d and %d is %d, want %d", c.told, c.first, c.last, got, c.want)
		}
	}
}

func TestRecordsAreHandedOnInTheOrderOfTheirTimes(t *testing.T) {
	const start = ^uint64(0) - 50 // the counter begins anew meanwhile
	rnd := rand.New(rand.NewPCG(1, 2))
	type record struct {
		time uint64
		n    int
	}
	for range 500 {
		var q Queue[record]
		var left []record
		size, n, until := 0, 0, uint64(start)
		for range 1 + rnd.IntN(8) {
			for range rnd.IntN(20) {
				r := record{start + rnd.Uint64N(100), n}
				n++
				q.Add(r.time, 3, r)
				left = append(left, r)
				size += 3
			}
			if q.Len() != len(left) || q.Size() != size {
				t.Fatalf("%d records of %d bytes, want %d of %d", q.Len(), q.Size(), len(left), size)
			}
			until += rnd.Uint64N(20)
			take := until
			if rnd.IntN(10) == 0 {
				take = AllTimes
			}
			var want, rest []record
			for _, r := range left {
				if take == AllTimes || !Later(r.time, take) {
					want = append(want, r)
				} else {
					rest = append(rest, r)
				}
			}
			slices.SortFunc(want, func(a, b record) int {
				if a.time != b.time {
					return int(int64(a.time - b.time))
				}
				return a.n - b.n
			})
			if got := q.Take(take); !slices.Equal(got, want) {
				t.Fatalf("until %d: %v, want %v", take, got, want)
			}
			left, size = rest, 3*len(rest)
		}
	}
}

func TestAnEmptyQueueHasNothingToTake(t *testing.T) {
	var q Queue[int]
	if len(q.Take(AllTimes)) != 0 || len(q.Take(5)) != 0 || q.Len() != 0 || q.Size() != 0 {
		t.Error("an empty queue has records")
	}
}

// at is a moment, in milliseconds.
func at(ms int) time.Time { return time.Unix(1000, 0).Add(time.Duration(ms) * time.Millisecond) }

func TestWhoHasWrittenARecord(t *testing.T) {
	var w Writers
	if w.Whose(1, at(0)) != nil || w.Present(7) != nil || w.End(7, at(0)) {
		t.Error("somebody is known to nobody")
	}
	first := &Writer{PID: 7, TID: 7, Storage: 1, From: at(0)}
	w.Note(first, at(0))
	other := &Writer{PID: 7, TID: 8, Storage: 2, From: at(10)}
	w.Note(other, at(10))
	// A vfork child had the first one's storage for some time. It is told of when it is over.
	child := &Writer{PID: 9, TID: 9, Storage: 1, From: at(20), Until: at(30)}
	w.Enter(child, at(31))
	if w.Present(7) != first || w.Present(8) != other || w.Present(9) != nil {
		t.Error("who is present")
	}
	if !w.End(7, at(50)) || w.Present(7) != nil || w.End(7, at(51)) {
		t.Error("an end")
	}
	heir := &Writer{PID: 7, TID: 10, Storage: 1, From: at(60)} // the next thread gets it
	w.Note(heir, at(60))
	for _, c := range []struct {
		storage uint64
		at      int
		want    *Writer
	}{
		{1, -1, nil}, {1, 0, first}, {1, 15, first}, {1, 20, child}, {1, 25, child}, {1, 30, child}, {1, 31, first}, {1, 50, first},
		{1, 55, nil}, {1, 60, heir}, {1, 9999, heir}, {2, 9, nil}, {2, 10, other}, {2, 9999, other}, {3, 10, nil},
	} {
		if got := w.Whose(c.storage, at(c.at)); got != c.want {
			t.Errorf("storage %d at %d: %+v, want %+v", c.storage, c.at, got, c.want)
		}
	}
	if got := slices.Sorted(w.Storages()); !slices.Equal(got, []uint64{1, 2}) {
		t.Errorf("storages %v", got)
	}
}

func TestPastWritersAreForgottenWhenThereAreMany(t *testing.T) {
	var w Writers
	for i := range 10_000 {
		now := at(100 * i)
		w.Note(&Writer{PID: 1, TID: 2 + i, Storage: 5, From: now}, now)
		if w.Whose(5, now) == nil || w.Whose(5, now).TID != 2+i {
			t.Fatalf("at %d it is somebody else", i)
		}
		if i > 5 && w.Whose(5, at(100*(i-5))) == nil { // half a second ago
			t.Fatalf("at %d those of late are forgotten", i)
		}
		w.End(2+i, now.Add(50*time.Millisecond))
	}
	if n := len(w.byStorage[5]); n > many+20 {
		t.Errorf("%d are kept", n)
	}
}

// TestWritersAreKnownUntilTheirRecordsAreHandedOn, however long that takes.
func TestWritersAreKnownUntilTheirRecordsAreHandedOn(t *testing.T) {
	var w Writers
	one := func(i int, handed time.Time) {
		w.Note(&Writer{PID: 1, TID: 2 + i, Storage: 5, From: at(100 * i)}, handed)
		w.End(2+i, at(100*i+50))
	}
	for i := range most / 2 {
		one(i, time.Time{})
	}
	for i := range most / 2 {
		if o := w.Whose(5, at(100*i+10)); o == nil || o.TID != 2+i {
			t.Fatalf("whose record %d is, is not known", i)
		}
	}
	one(most/2, at(50*most))
	if n := len(w.byStorage[5]); n > many {
		t.Errorf("all records are handed on, and %d are kept", n)
	}
	for i := range 2 * most {
		one(most+i, time.Time{})
	}
	if n := len(w.byStorage[5]); n > most+1 {
		t.Errorf("no records are handed on, and %d are kept", n)
	}
}
