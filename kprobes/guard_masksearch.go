package kprobes

import (
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/gokprobe/gokprobe/arch"
	"github.com/gokprobe/gokprobe/internal/host"
	"github.com/gokprobe/gokprobe/internal/procfs"
	"github.com/gokprobe/gokprobe/internal/syscallsites"
	"github.com/gokprobe/gokprobe/internal/targetfs"
)

// What a search for calls of rt_sigprocmask and rt_sigaction has found in code is kept,
// by the code's hash: the C library's is the same in most processes, and to search it
// is most of what the first probe in a process costs. It is kept relative to the code's
// start. Facts that depend on the process, not on the code, are checked each time: how
// the place is mapped, whether it is in a restartable sequence, and the memory at a
// constant pointer.
//
// To read and hash it all would be most of what a program costs that a followed child
// executes. So the hash of code that is its file's is kept as well, by the file.

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
	files map[fileCode]codeKey
	seed  maphash.Seed // of this process alone: nobody can make code with the hash of other code
}

type codeKey struct{ hash, length uint64 }

// mostRemembered is how many pieces of code are remembered.
const mostRemembered = 256

func init() {
	searchedCode.found, searchedCode.files, searchedCode.seed = map[codeKey]searchedCalls{}, map[fileCode]codeKey{}, maphash.MakeSeed()
}

// fileCode is a part of a file, in bytes.
type fileCode struct {
	file           targetfs.Info
	offset, length uint64
}

// mostChanged is how many bytes of private copies are compared with their file, before all the code is read.
const mostChanged = 256 << 10

// liesIn tells which part of which file the code at r is, which m maps. It is unchanged if the process has no private copies of its pages, or if these are
// as the file's but for our patches, and if a change of the file would show. Who writes to the file through memory of his own may still not be seen
// (mmap(2), MAP_SHARED): so what is found by this is looked at in the process (stand).
func (mk *masks) liesIn(m *procfs.Mapping, r arch.Range) (c fileCode, unchanged bool) {
	f := mk.d.neighbours.mappedFile(m)
	tid, err := mk.d.space.TID()
	if err != nil || f == nil || !f.Settled(coarsestTime) {
		return c, false
	}
	copies, err := procfs.Copied(tid, r, mostChanged)
	if err != nil {
		return c, false
	}
	total := uint64(0)
	for _, part := range copies {
		now, file := make([]byte, part.Len()), make([]byte, part.Len())
		_, err := f.ReadAt(file, int64(m.Offset)+int64(part.Start-m.Range.Start))
		if err != nil && !errors.Is(err, io.EOF) || mk.d.text.Original(part.Start, now) != nil || !bytes.Equal(now, file) {
			return c, false
		}
		total += part.Len()
	}
	return fileCode{f.Info, m.Offset, r.Len()}, total < mostChanged
}

// coarsestTime is how far apart the times of changes are that file systems can tell, at most: FAT.
const coarsestTime = 2 * time.Second

// key is that of the code, as it was hashed before; zero if it was not.
func (c fileCode) key() codeKey {
	searchedCode.Lock()
	defer searchedCode.Unlock()
	return searchedCode.files[c]
}

// remember keeps the code's key.
func (c fileCode) remember(key codeKey) { rememberIn(searchedCode.files, c, key) }

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

// remember keeps the findings.
func (k codeKey) remember(found searchedCalls) { rememberIn(searchedCode.found, k, found) }

// rememberIn keeps v in a map of searchedCode's. Where there is much already, that is forgotten.
func rememberIn[K comparable, V any](m map[K]V, k K, v V) {
	searchedCode.Lock()
	defer searchedCode.Unlock()
	if len(m) >= mostRemembered {
		clear(m)
	}
	m[k] = v
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
