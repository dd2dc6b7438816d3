package walk

import "github.com/gokprobe/gokprobe/arch"

// pageSize is that of every mapping, so that a page is there as a whole or not at all.
const pageSize = 1 << 12

// Pages is memory that is read in whole pages, each once: what is searched lies close together, and each read of the target is a system call.
type Pages struct {
	Mem  arch.Memory
	Left int // how many more pages are read
	seen map[arch.Addr][]byte

	last   arch.Addr // the page that was read last
	lastIs []byte    // its bytes; nil for none
}

// ReadMemory implements arch.Memory.
func (m *Pages) ReadMemory(at arch.Addr, p []byte) error {
	for len(p) > 0 {
		off := at % pageSize
		page, err := m.page(at - off)
		if err != nil {
			return err
		}
		n := copy(p, page[off:])
		p, at = p[n:], at.Add(int64(n))
	}
	return nil
}

func (m *Pages) page(at arch.Addr) ([]byte, error) {
	if at == m.last && m.lastIs != nil {
		return m.lastIs, nil
	}
	if page := m.seen[at]; page != nil {
		m.last, m.lastIs = at, page
		return page, nil
	}
	if m.Left--; m.Left < 0 {
		return nil, ErrMany
	}
	page := make([]byte, pageSize)
	if err := m.Mem.ReadMemory(at, page); err != nil {
		return nil, err
	}
	if m.seen == nil {
		m.seen = map[arch.Addr][]byte{}
	}
	m.seen[at] = page
	return page, nil
}

// WriteMemory implements arch.Memory: nothing is written.
func (m *Pages) WriteMemory(at arch.Addr, _ []byte) error {
	return &arch.FaultError{Addr: at, Write: true}
}
