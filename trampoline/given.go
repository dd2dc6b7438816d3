package trampoline

import (
	"iter"
	"maps"

	"github.com/gokprobe/gokprobe/arch"
)

// Given has f told of memory that is given back, slots, landings or cells, before anybody else can get it. It is for tests, which ask
// whether somebody is still there.
func (r *Region) Given(f func(...arch.Range)) { r.given = f }

// give tells of memory that is given back.
func (r *Region) give(memory ...arch.Range) {
	if r.given != nil && len(memory) > 0 {
		r.given(memory...)
	}
}

// places is all that l has.
func (l *landing) places() (all []arch.Range) {
	for _, at := range []arch.Range{l.entry, l.detour} {
		if at.Len() > 0 {
			all = append(all, at)
		}
	}
	for _, at := range l.strays {
		all = append(all, stretch(at, 1))
	}
	return all
}

// Resumes is the entries of the resume table that lead somewhere: where an exception is raised, and where a thread goes on then.
func (r *Region) Resumes() iter.Seq2[arch.Addr, arch.Addr] { return maps.All(r.resume.to) }
