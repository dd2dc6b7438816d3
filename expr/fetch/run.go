package fetch

import (
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/program"
)

// Registers are those at a hit; arch.Regs is one.
type Registers interface {
	Get(name string) (uint64, bool)
}

// MemoryReader is the target's; arch.Memory is one.
type MemoryReader interface {
	ReadMemory(at arch.Addr, p []byte) error
}

// maps is the memory that a run writes to.
type maps struct{ ring, lost []uint64 }

var pool = sync.Pool{New: func() any {
	return &maps{make([]uint64, ring.Len()/word), make([]uint64, program.Map{}.Len()/word)}
}}

// Run fetches the arguments where the tracer handles the hit: it interprets the program that
// would run in the target, and returns the record for Decode. Its head is 0. saved is what Save has returned at the entry of a function
// that has returned now. The error tells of a register that is not there.
func (l *Layout) Run(regs Registers, mem MemoryReader, saved []uint64) ([]byte, error) {
	m := pool.Get().(*maps)
	defer pool.Put(m)
	if len(l.saved) > 0 {
		regs = withSaved{regs, l.saved, saved}
	}
	if err := l.runs.Run(&program.Env{Regs: regs, Memory: mem, Maps: [][]uint64{m.ring, m.lost}}); err != nil {
		return nil, err
	}
	r, err := program.NewRingReader(ring, m.ring)
	if err != nil {
		return nil, err
	}
	var payload []byte
	_, err = r.Read(func(rec program.Record) { payload = slices.Clone(rec.Payload) })
	return payload, err
}

// Fetch is Run and Decode: the values of the arguments, where the tracer handles the hit.
func (l *Layout) Fetch(regs Registers, mem MemoryReader, saved []uint64, h Host) ([]Value, error) {
	payload, err := l.Run(regs, mem, saved)
	if err != nil {
		return nil, err
	}
	return l.Decode(payload, h), nil
}

// Saved is how many values Save returns: the different $argN of a Layout for returns.
func (l *Layout) Saved() int { return len(l.saved) }

// Save keeps, at a function's entry, the $argN that are wanted when it has returned.
// Memory that can't be read is 0.
func (l *Layout) Save(regs Registers, mem MemoryReader) []uint64 {
	values := make([]uint64, len(l.saved))
	for i, n := range l.saved {
		if n <= int64(len(l.env.Args)) {
			values[i], _ = regs.Get(l.env.Args[n-1])
			continue
		}
		sp, _ := regs.Get(l.env.Stack)
		var b [word]byte
		if mem.ReadMemory(arch.Addr(sp).Add(l.stackArgument(n).Off), b[:]) == nil {
			values[i] = binary.LittleEndian.Uint64(b[:])
		}
	}
	return values
}

// KeptSize is the bytes that Keep writes.
func (l *Layout) KeptSize() int { return word * len(l.saved) }

// Keep writes what Save returns into to, where Kept reads it.
func (l *Layout) Keep(to []byte, regs Registers, mem MemoryReader) {
	for i, v := range l.Save(regs, mem) {
		binary.NativeEndian.PutUint64(to[word*i:], v)
	}
}

// Kept reads what Keep has written.
func Kept(from []byte) []uint64 {
	values := make([]uint64, len(from)/word)
	for i := range values {
		values[i] = binary.NativeEndian.Uint64(from[word*i:])
	}
	return values
}

// withSaved are registers, and arguments that were saved.
type withSaved struct {
	Registers
	numbers []int64
	values  []uint64
}

// Get implements Registers. An argument that was not saved is 0.
func (w withSaved) Get(name string) (uint64, bool) {
	digits, ok := strings.CutPrefix(name, savedName(0)[:len("$arg")])
	if !ok {
		return w.Registers.Get(name)
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if i := slices.Index(w.numbers, n); err == nil && i >= 0 && i < len(w.values) {
		return w.values[i], true
	}
	return 0, true
}
