package kprobes

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/program"
)

// The states of Programs: what each hit of a probe leaves to the next, however they are dealt with. So a
// state has one memory in an address space, which the target shares wherever that can be, and code reaches wherever it
// is. It is there from the registration of the first probe whose Program uses it to the end of the last one; the detours that were made for
// these may use it longer. A followed child has a memory of its own, of zeros.

// Errors of states.
var (
	errOwnState   = errors.New("no memory for the program's state could be shared with the process")
	errStateCells = errors.New("a state that several Programs share has as many cells as that of the first of them")
)

// SharedState is the state of the Programs of several probes: in each address space they have one memory, so hits of all of them
// are one sequence. It counts on when its probes are registered again; begin with a new one. Probes that share one are of the same
// session, and their Programs use no cells that the first of them registered does not have. The zero value is ready to be used. Safe for concurrent use.
type SharedState struct {
	memories []*programState // guarded by counting
	ended    []uint64        // what those held that have ended, one for each cell; guarded by counting
}

// programState is one's memory in one address space.
type programState struct {
	of     *SharedState
	mem    mapMemory // at is 0 if only the tracer has it
	probes map[*Kprobe]bool
	uses   int // by recordings
}

// Cell returns the value of a cell, summed over all address spaces, ended ones
// included; 0 if there is no such cell. Hits that are under way may or may not be in.
func (st *SharedState) Cell(n int) (sum uint64) {
	counted(func() { sum = st.cell(n) })
	return sum
}

func (st *SharedState) cell(n int) (sum uint64) {
	if n < 0 || n >= len(st.ended) {
		return 0
	}
	sum = st.ended[n]
	for _, m := range st.memories {
		sum += m.read()[n]
	}
	return sum
}

// reserve makes sure of so many cells.
func (st *SharedState) reserve(cells int) error {
	counting.Lock()
	defer counting.Unlock()
	switch {
	case st.ended == nil:
		st.ended = make([]uint64, cells)
	case cells > len(st.ended):
		return fmt.Errorf("%w: %d, not %d", errStateCells, len(st.ended), cells)
	}
	return nil
}

// shape is the map that st is.
func (st *SharedState) shape() program.Map {
	return program.Map{Kind: program.State, Cells: len(st.ended)}
}

// State is what a cell of the Program's state holds, summed over the address spaces that the probe is or was in; 0
// if there is no such cell. Unless it is a SharedState's, it is reset by registration. Safe for concurrent use; hits that are
// under way may or may not be in.
func (kp *Kprobe) State(cell int) (sum uint64) {
	counted(func() {
		if kp.state != nil {
			sum = kp.state.cell(cell)
		}
	})
	return sum
}

// read is what the cells hold.
func (m *programState) read() []uint64 {
	cells, _ := m.of.shape().Values(m.mem.words)
	return cells
}

// newState makes sure of memory for the state of kp's Program, if it has one; at is the code that will most use it.
func (rc *recorder) newState(kp *Kprobe, at arch.Addr) {
	if kp.state == nil {
		return
	}
	if rc.states[kp.state] == nil {
		rc.hasState(kp.state, rc.stateMemory(kp.state.shape(), at))
	}
	rc.states[kp.state].probes[kp] = true
}

// hasState makes mem the memory of st in this address space.
func (rc *recorder) hasState(st *SharedState, mem mapMemory) {
	m := &programState{of: st, mem: mem, probes: map[*Kprobe]bool{}}
	counting.Lock()
	st.memories = append(slices.Clone(st.memories), m)
	counting.Unlock()
	rc.states[st] = m
}

// keepState makes sure of memory for the state of a kp that stands nowhere: if there is none, the tracer's own.
func (rc *recorder) keepState(kp *Kprobe) {
	if rc.states[kp.state] == nil {
		rc.hasState(kp.state, mapMemory{words: make([]uint64, kp.state.shape().Len()/8)})
	}
	rc.states[kp.state].probes[kp] = true
}

// stateMemory is memory for m, near at if that can be, or else the tracer's own.
func (rc *recorder) stateMemory(m program.Map, at arch.Addr) mapMemory {
	if !rc.d.memory.private && host.Detours != nil {
		if where, cells, err := rc.d.region.Cells(at, m.Len()); err == nil {
			return mapMemory{at: where, words: wordsOf(cells)}
		}
	}
	return mapMemory{words: make([]uint64, m.Len()/8)}
}

// stateOf is the cells of kp's state for a hit that the tracer handles.
func (rc *recorder) stateOf(kp *Kprobe) []uint64 {
	if m := rc.states[kp.state]; m != nil {
		return m.mem.words
	}
	return make([]uint64, kp.state.shape().Len()/8) // the probe has left
}

// nearState is half of what a displacement spans: the detour may lie on the other side.
const nearState = 1 << 30

// useState is the memory of kp's state for a recording at at, which leaves it when it ends.
func (rc *recorder) useState(kp *Kprobe, at arch.Addr) (mapMemory, error) {
	m := rc.states[kp.state]
	if m == nil || m.mem.at == 0 {
		return mapMemory{}, errOwnState
	}
	m.uses++
	mem := m.mem
	mem.state, mem.far = m, !serves(m.mem.span(), at, nearState)
	return mem, nil
}

// leaveState takes the memory back when nobody uses it any more.
func (rc *recorder) leaveState(m *programState) {
	if len(m.probes) > 0 || m.uses > 0 || m.mem.at == 0 {
		return
	}
	if err := rc.d.region.FreeCells(m.mem.at); err != nil {
		rc.d.session.warn("freeing a program's state: %v", err)
	}
}

// unuseState is the end of a recording's use of it.
func (rc *recorder) unuseState(m *programState) {
	if m != nil {
		m.uses--
		rc.leaveState(m)
	}
}

// endState ends kp's part in its state in d, and with the last one the memory: what that holds is kept.
func (rc *recorder) endState(kp *Kprobe) {
	m := rc.states[kp.state]
	if m == nil || !m.probes[kp] {
		return
	}
	if delete(m.probes, kp); len(m.probes) > 0 {
		return
	}
	delete(rc.states, kp.state)
	m.keep()
	rc.leaveState(m)
}

// endStates ends kp's part in its state in all address spaces.
func (rg *registry) endStates(kp *Kprobe) {
	for d := range rg.s.settled() {
		d.recorder.endState(kp)
	}
}

// keep copies the memory's values into the state.
func (m *programState) keep() {
	counting.Lock()
	defer counting.Unlock()
	for i, n := range m.read() {
		m.of.ended[i] += n
	}
	m.of.memories = slices.DeleteFunc(slices.Clone(m.of.memories), func(o *programState) bool { return o == m })
}

// foldStates ends all states before their memory goes.
func (rc *recorder) foldStates() {
	for _, m := range rc.states {
		m.keep()
	}
	clear(rc.states)
}
