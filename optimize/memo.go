package optimize

import (
	"bytes"
	"hash/maphash"
	"sync"

	"github.com/gokprobe/gokprobe/arch"
)

// Memo has the analyses of functions that were asked for last, so that the same code is decoded once, whichever process it is in and wherever it
// lies. It is found by its content: an analysis depends on nothing else, so it can't be that of another file's code, nor of code
// that was changed since. The zero value is ready, and safe for concurrent use.
type Memo struct {
	Most int // bytes of code that are kept; what is known of it takes about as much again

	mutex      sync.Mutex
	young, old map[content]known // what was asked for since the last change of generations, and what was before it
	size       int               // bytes of code in young

	asked, found uint64
}

// content is what an analysis is of, apart from a function's bytes.
type content struct {
	hash           uint64 // of the bytes
	length         int
	breakpointOnly bool
	alignment      arch.Addr
}

// known is an analysis, or that there is none.
type known struct {
	code    []byte
	an      *Analysis
	refusal *Refusal
	at      arch.Addr // where the code lay
}

var seed = maphash.MakeSeed()

// Analyze is the function of that name. It may keep f.Code, which must not change any more.
func (m *Memo) Analyze(a arch.Arch, d arch.Detours, f Function) (*Analysis, error) {
	if len(f.Targets) > 0 || len(f.Code) > m.Most/2 {
		return Analyze(a, d, f)
	}
	key := content{hash: maphash.Bytes(seed, f.Code), length: int(f.Range.Len()), breakpointOnly: f.BreakpointOnly, alignment: f.Range.Start % functionAlign}
	if k, ok := m.get(key, f.Code); ok {
		return k.there(f)
	}
	an, err := Analyze(a, d, f)
	k := known{code: f.Code, an: an, at: f.Range.Start}
	if refusal, ok := err.(*Refusal); ok { //nolint:errorlint // it is what Analyze makes
		k.refusal = refusal
	}
	if an != nil || k.refusal != nil {
		m.put(key, k)
	}
	return an, err
}

// there is what is known of f, which has that code.
func (k known) there(f Function) (*Analysis, error) {
	if k.an != nil {
		return k.an.moved(f.Range.Start).Before(f.Next), nil
	}
	refusal := *k.refusal
	refusal.At += f.Range.Start - k.at
	return nil, &refusal
}

func (m *Memo) get(key content, code []byte) (known, bool) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.asked++
	k, ok := m.young[key]
	if !ok {
		if k, ok = m.old[key]; ok && bytes.Equal(k.code, code) {
			m.keep(key, k)
		}
	}
	if ok = ok && bytes.Equal(k.code, code); ok {
		m.found++
	}
	return k, ok
}

func (m *Memo) put(key content, k known) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.keep(key, k)
}

// keep puts k into young. When that has half of what is kept it becomes old, and what was old goes.
func (m *Memo) keep(key content, k known) {
	if was, ok := m.young[key]; ok {
		m.size -= len(was.code)
	}
	if m.size += len(k.code); m.young == nil || m.size > m.Most/2 {
		m.old, m.young, m.size = m.young, map[content]known{}, len(k.code)
	}
	m.young[key] = k
}

// Used tells how often an analysis was asked for, and how often it was known.
func (m *Memo) Used() (asked, found uint64) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.asked, m.found
}
