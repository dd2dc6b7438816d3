package kprobes

import (
	"fmt"
	"hash/maphash"
	"slices"
	"sync"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/syscallsites"
)

// What a search for calls of rt_sigprocmask and rt_sigaction has found in code is kept,
// by the code's hash: the C library's is the same in most processes, and to search it
// is most of what the first probe in a process costs. It is kept relative to the code's
// start. Facts that depend on the process, not on the code, are checked each time: how
// the place is mapped, whether it is in a restartable sequence, and the memory at a
// constant pointer.

// foundCall is a maskSite relative to the start of the mapping that it is in.
type foundCall struct {
	insn, at arch.Addr
	loads    [][]byte // from at on
	number   int
	pointer  arch.Addr // that is passed always, if constant
	constant bool
}

// searchedCalls is what a search has found. short says why there may be more.
type searchedCalls struct {
	calls []foundCall
	short string
}

// searchedCode holds the findings in code, by the code's hash.
var searchedCode struct {
	sync.Mutex
	found map[codeKey]searchedCalls
	seed  maphash.Seed // of this process alone: nobody can make code with the hash of other code
}

type codeKey struct{ hash, length uint64 }

// mostRemembered is how many pieces of code are remembered.
const mostRemembered = 256

func init() {
	searchedCode.found, searchedCode.seed = map[codeKey]searchedCalls{}, maphash.MakeSeed()
}

// keyOfCode reads all code in r, as it is without us.
func (mk *masks) keyOfCode(r arch.Range) (codeKey, error) {
	if r.Len() > syscallsites.MostCode {
		return codeKey{}, fmt.Errorf("the code at %s is too large to be searched: %d MiB", r.Start, r.Len()>>20)
	}
	var h maphash.Hash
	h.SetSeed(searchedCode.seed)
	err := syscallsites.Windows(searched{mk.d}, r, func(own arch.Range, start arch.Addr, code []byte) bool {
		_, _ = h.Write(code[own.Start-start : own.End-start])
		return true
	})
	return codeKey{h.Sum64(), r.Len()}, err
}

// remembered returns earlier findings in such code.
func (k codeKey) remembered() (found searchedCalls, ok bool) {
	searchedCode.Lock()
	defer searchedCode.Unlock()
	found, ok = searchedCode.found[k]
	return found, ok
}

// remember keeps the findings. Where there is much already, that is forgotten.
func (k codeKey) remember(found searchedCalls) {
	searchedCode.Lock()
	defer searchedCode.Unlock()
	if len(searchedCode.found) >= mostRemembered {
		clear(searchedCode.found)
	}
	searchedCode.found[k] = found
}

// relative is the opposite of in.
func relative(site *syscallsites.Site, start, pointer arch.Addr, constant bool) foundCall {
	f := foundCall{insn: site.Insn - start, at: site.At - start, number: site.Number, constant: constant}
	if constant {
		f.pointer = pointer - start
	}
	for _, load := range site.Loads {
		f.loads = append(f.loads, slices.Clone(load.Bytes))
	}
	return f
}

// in is the call in code that is at start.
func (f *foundCall) in(start arch.Addr) (c syscallsites.Site, err error) {
	c = syscallsites.Site{Insn: start + f.insn, At: start + f.at, Number: f.number}
	at := c.At
	for _, b := range f.loads {
		load, err := host.Arch.Decode(b, at)
		if err != nil {
			return c, err
		}
		c.Loads, at = append(c.Loads, load), load.End()
	}
	return c, nil
}
