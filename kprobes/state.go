package kprobes

import (
	"errors"
	"slices"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/program"
)

// The states of Programs: what each hit of a probe leaves to the next, however they are dealt with. So a
// state has one memory in an address space, which the target shares wherever that can be. It is
// there from the probe's registration to its end; the detours that were made for the probe may use it longer.

// errOwnState is why a program can't run in the target.
var errOwnState = errors.New("no memory for the program's state could be shared with the process")

// programState is a probe's in one address space.
type programState struct {
	kp   *Kprobe
	mem  mapMemory // at is 0 if only the tracer has it
	uses int       // the probe, and recordings
}

// State is what a cell of the Program's state holds, summed over the address spaces that the probe is or was in; 0
// if there is no such cell. It is reset by registration. Safe for concurrent use; hits that are
// under way may or may not be in.
func (kp *Kprobe) State(cell int) (n uint64) {
	counting.RLock()
	defer counting.RUnlock()
	if cell < 0 || cell >= len(kp.endedState) {
		return 0
	}
	n = kp.endedState[cell]
	for _, st := range kp.states {
		n += st.read()[cell]
	}
	return n
}

// read is what the cells hold.
func (st *programState) read() []uint64 {
	m := st.kp.checked.Maps[st.kp.checked.State()]
	cells, _ := m.Values(st.mem.words)
	return cells
}

// newState makes sure of memory for the state of kp's Program, if it has one, for code near at. A probe that
// was in a library which comes again goes on with what it has.
func (d *domain) newState(kp *Kprobe, at arch.Addr) {
	if kp.checked == nil || kp.checked.State() < 0 {
		return
	}
	old := d.states[kp]
	if old != nil && old.mem.at != 0 && serves(old.mem.span(), at, nearState) {
		return
	}
	d.hasState(kp, d.stateMemory(kp.checked.Maps[kp.checked.State()], at), old)
	d.leaveState(old)
}

// hasState has kp's state be in mem from now on, with what is in old, unless that is nil.
func (d *domain) hasState(kp *Kprobe, mem mapMemory, old *programState) {
	st := &programState{kp: kp, mem: mem, uses: 1}
	counting.Lock()
	if old != nil {
		copy(st.mem.words, old.mem.words)
		kp.disown(old)
	}
	kp.states = append(slices.Clone(kp.states), st)
	counting.Unlock()
	d.states[kp] = st
}

// nearState is half of what a displacement spans: the detour may lie on the other side.
const nearState = 1 << 30

// stateMemory is memory for m that code near at reaches, or else the tracer's own.
func (d *domain) stateMemory(m program.Map, at arch.Addr) mapMemory {
	if !d.private && hostDetours != nil {
		if where, cells, err := d.cells(at, m.Len()); err == nil {
			return mapMemory{at: where, words: wordsOf(cells)}
		}
	}
	return mapMemory{words: make([]uint64, m.Len()/8)}
}

// stateOf is the cells of kp's state for a hit that the tracer handles.
func (d *domain) stateOf(kp *Kprobe) []uint64 {
	if st := d.states[kp]; st != nil {
		return st.mem.words
	}
	return make([]uint64, kp.checked.Maps[kp.checked.State()].Len()/8) // the probe has left
}

// useState is the memory of kp's state for a recording, which leaves it when it ends.
func (d *domain) useState(kp *Kprobe) (mapMemory, error) {
	st := d.states[kp]
	if st == nil || st.mem.at == 0 {
		return mapMemory{}, errOwnState
	}
	st.uses++
	mem := st.mem
	mem.state = st
	return mem, nil
}

// leaveState takes the memory back when nobody uses it any more.
func (d *domain) leaveState(st *programState) {
	if st == nil {
		return
	}
	if st.uses--; st.uses > 0 || st.mem.at == 0 {
		return
	}
	if err := d.region.FreeCells(st.mem.at); err != nil {
		d.session.warn("freeing a program's state: %v", err)
	}
}

// endState ends kp's state in d, of which kp keeps what it holds.
func (d *domain) endState(kp *Kprobe) {
	st := d.states[kp]
	if st == nil {
		return
	}
	delete(d.states, kp)
	st.keep()
	d.leaveState(st)
}

// endStates ends kp's state in all address spaces.
func (s *Session) endStates(kp *Kprobe) {
	for d := range s.domains {
		d.endState(kp)
	}
}

// keep has the probe have the state's values for itself.
func (st *programState) keep() {
	counting.Lock()
	defer counting.Unlock()
	for i, n := range st.read() {
		st.kp.endedState[i] += n
	}
	st.kp.disown(st)
}

// disown forgets one of kp's states. counting is locked.
func (kp *Kprobe) disown(st *programState) {
	kp.states = slices.DeleteFunc(slices.Clone(kp.states), func(o *programState) bool { return o == st })
}

// foldStates ends all states before their memory goes.
func (d *domain) foldStates() {
	for _, st := range d.states {
		st.keep()
	}
	clear(d.states)
}
