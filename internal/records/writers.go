package records

import (
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/gokprobe/gokprobe/internal/halts"
)

// Writer is a thread that may have written records, as these name it: by the address of the storage that is the thread's own. At any moment
// no two threads that run have the same: one may get it when another has ended, and a vfork child has its parent's, which waits meanwhile.
type Writer struct {
	PID, TID int
	Comm     func(time.Time) string // its name at a time
	Halts    *halts.Log             // when it was held
	Storage  uint64
	From     time.Time // when it began to have the storage
	Until    time.Time // when another has it, or nobody; zero while it lasts
}

// Writers are those of one address space. The zero Writers has none.
type Writers struct {
	byStorage map[uint64][]*Writer // in the order of their beginning
	present   map[int]*Writer      // by TID
}

// Past writers of one storage are forgotten when there are many, and their records have been handed on; of very many the oldest, whatever waits.
const (
	many = 32
	most = 4096
	past = time.Second
)

// Whose finds out who has written a record at a time: the latest that has got the storage by then. It is nil if nobody is known.
func (w *Writers) Whose(storage uint64, at time.Time) *Writer {
	for _, o := range slices.Backward(w.byStorage[storage]) {
		if !at.Before(o.From) && (o.Until.IsZero() || !at.After(o.Until)) {
			return o
		}
	}
	return nil
}

// Present is the thread with a TID that has its storage still, nil if that is not known.
func (w *Writers) Present(tid int) *Writer { return w.present[tid] }

// Note adds one that is present. All records up to handed have been handed on.
func (w *Writers) Note(o *Writer, handed time.Time) {
	if w.present == nil {
		w.present = map[int]*Writer{}
	}
	w.present[o.TID] = o
	w.Enter(o, handed)
}

// Enter adds one that is not, or not under its own TID. All records up to handed have been handed on: however late that is, nobody is forgotten
// before, since its records would be taken for another's.
func (w *Writers) Enter(o *Writer, handed time.Time) {
	if w.byStorage == nil {
		w.byStorage = map[uint64][]*Writer{}
	}
	all := w.byStorage[o.Storage]
	if len(all) > many {
		all = slices.DeleteFunc(all, func(o *Writer) bool { return !o.Until.IsZero() && handed.Sub(o.Until) > past })
	}
	if len(all) > most {
		if i := slices.IndexFunc(all, func(o *Writer) bool { return !o.Until.IsZero() }); i >= 0 {
			all = slices.Delete(all, i, i+1)
		}
	}
	i, _ := slices.BinarySearchFunc(all, o.From, func(o *Writer, t time.Time) int { return o.From.Compare(t) })
	w.byStorage[o.Storage] = slices.Insert(all, i, o)
}

// End tells that the thread with a TID has its storage no more. It is false if it was not present.
func (w *Writers) End(tid int, now time.Time) bool {
	o := w.present[tid]
	if o == nil {
		return false
	}
	o.Until = now
	delete(w.present, tid)
	return true
}

// None tells that nobody was ever noted.
func (w *Writers) None() bool { return len(w.byStorage) == 0 }

// Storages goes through all that were ever noted.
func (w *Writers) Storages() iter.Seq[uint64] { return maps.Keys(w.byStorage) }
