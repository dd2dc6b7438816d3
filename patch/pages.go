package patch

import "github.com/gokprobe/gokprobe/arch"

// Pages reads memory by whole pages, each of them once. It is for many reads while nobody changes what is read: threads are stopped, and who writes
// tells it. Reading a page takes hardly longer than reading a byte of it. Not safe for concurrent use.
type Pages struct {
	mem  arch.Memory
	read map[arch.Addr][]byte // by their address; nil: it can't be read
}

// mostPages is how many pages are kept, 16 MiB.
const mostPages = 4096

// NewPages begins with no page.
func NewPages(mem arch.Memory) *Pages { return &Pages{mem: mem, read: map[arch.Addr][]byte{}} }

// Holds reports whether memory at at is b. What can't be read is not.
func (p *Pages) Holds(at arch.Addr, b []byte) bool {
	now := make([]byte, len(b))
	return p.Read(at, now) && string(now) == string(b)
}

// Read fills b from at on, and reports whether all of it could be read.
func (p *Pages) Read(at arch.Addr, b []byte) bool {
	for len(b) > 0 {
		page := at &^ (pageSize - 1)
		code, known := p.read[page]
		if !known {
			code = p.fetch(page)
		}
		if code == nil {
			return false
		}
		n := copy(b, code[at-page:])
		at, b = at+arch.Addr(n), b[n:]
	}
	return true
}

func (p *Pages) fetch(page arch.Addr) []byte {
	if len(p.read) >= mostPages {
		clear(p.read)
	}
	code := make([]byte, pageSize)
	if p.mem.ReadMemory(page, code) != nil {
		code = nil
	}
	p.read[page] = code
	return code
}

// Forget drops the pages in which n bytes from at on lie.
func (p *Pages) Forget(at arch.Addr, n int) {
	for page := at &^ (pageSize - 1); page < at+arch.Addr(n); page += pageSize {
		delete(p.read, page)
	}
}
