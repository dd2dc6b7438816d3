package kprobes

import (
	"hash/maphash"
	"slices"
	"sync"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/ptrace"
)

// What a search for calls of rt_sigprocmask and rt_sigaction has found in code is kept, by the code's hash: the C library's is the same in most processes, and to
// search it is most of what the first probe in a process costs. It is kept relative to the code's start. What hangs on the process, not on the code, is asked each time: how
// the place is mapped, whether it is in a restartable sequence, and what stands where a constant pointer leads.

// foundCall is a maskSite relative to the start of the mapping that it is in.
type foundCall struct {
	insn, at arch.Addr
	loads    [][]byte // from at on
	number   int
	pointer  arch.Addr // that is passed always, if constant
	constant bool
}

// searchedCode is what was found in code, by its hash.
var searchedCode struct {
	sync.Mutex
	calls map[codeKey][]foundCall
	seed  maphash.Seed // of this process alone: nobody can make code with the hash of other code
}

type codeKey struct{ hash, length uint64 }

// mostSearched is how many pieces of code are remembered.
const mostSearched = 256

func init() {
	searchedCode.calls, searchedCode.seed = map[codeKey][]foundCall{}, maphash.MakeSeed()
}

func keyOfCode(code []byte) codeKey {
	return codeKey{maphash.Bytes(searchedCode.seed, code), uint64(len(code))}
}

// remembered is what was found in such code.
func (k codeKey) remembered() (calls []foundCall, ok bool) {
	searchedCode.Lock()
	defer searchedCode.Unlock()
	calls, ok = searchedCode.calls[k]
	return calls, ok
}

// remember keeps what was found. Where there is much already, that is forgotten.
func (k codeKey) remember(calls []foundCall) {
	searchedCode.Lock()
	defer searchedCode.Unlock()
	if len(searchedCode.calls) >= mostSearched {
		clear(searchedCode.calls)
	}
	searchedCode.calls[k] = calls
}

// relative is the opposite of in.
func (c *callSite) relative(start, pointer arch.Addr, constant bool) foundCall {
	f := foundCall{insn: c.insn - start, at: c.at - start, number: c.number, constant: constant}
	if constant {
		f.pointer = pointer - start
	}
	for _, load := range c.loads {
		f.loads = append(f.loads, slices.Clone(load.Bytes))
	}
	return f
}

// in is the call in code that is at start.
func (f *foundCall) in(start arch.Addr) (c callSite, err error) {
	c = callSite{insn: start + f.insn, at: start + f.at, number: f.number}
	at := c.at
	for _, b := range f.loads {
		load, err := ptrace.Host.Decode(b, at)
		if err != nil {
			return c, err
		}
		c.loads, at = append(c.loads, load), load.End()
	}
	return c, nil
}
