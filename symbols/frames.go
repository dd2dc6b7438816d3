package symbols

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/go-delve/delve/pkg/dwarf/frame"

	"github.com/gokprobe/gokprobe/arch"
)

// frameTable finds the call-frame information of one function. Where the file
// has the binary search table of .eh_frame_hdr (Linux Standard Base §10.6.2),
// only the entries asked for are read and parsed.
type frameTable struct {
	once   sync.Once
	index  []frameIndex                  // .eh_frame_hdr
	parsed frame.FrameDescriptionEntries // without one: all of .eh_frame and .debug_frame

	debugOnce sync.Once
	debug     frame.FrameDescriptionEntries // with one: .debug_frame, which has functions that the program itself never unwinds through

	common  atomic.Pointer[commonEntry] // the last that ends has seen
	entries cache[*fde]                 // by address of the entry
	rows    cache[*unwindRow]
}

type frameIndex struct{ start, fde uint64 } // link-time addresses

// fde is one frame description entry. signal says that its frame has interrupted
// the code of its caller: a signal trampoline ('S' augmentation).
type fde struct {
	*frame.FrameDescriptionEntry
	isSignal bool
}

// frameRange is the extent of the frame description entry that covers a: a
// function, or one part of a function that the compiler split.
func (m *Module) frameRange(a arch.Addr) (arch.Range, bool) {
	if m.img == nil {
		return arch.Range{}, false
	}
	f := m.img.frame(m.link(a))
	if f == nil || f.End()-f.Begin() > min(mostFunction, max(m.img.codeFrom(f.Begin()), pageSize)) {
		return arch.Range{}, false
	}
	return arch.Range{Start: m.addr(f.Begin()), End: m.addr(f.End())}, true
}

// Unwindable reports whether the target's own unwinder finds call-frame information for the
// return address a, in the table that PT_GNU_EH_FRAME names. As unwinders do, it looks one byte
// before a: a itself may belong to the next function.
func (t *Table) Unwindable(a arch.Addr) bool {
	m := t.module(a)
	if m == nil || m.img == nil {
		return false
	}
	f := m.img.loadedFrame(m.link(a) - 1)
	return f != nil && m.img.frames.index != nil
}

// frame returns the entry that covers link-time address v, nil if none does. Files whose code comes from several compilers, such as Go's and C's, have
// some functions in .debug_frame alone.
func (img *image) frame(v uint64) *fde {
	t := &img.frames
	if f := img.loadedFrame(v); f != nil || t.index == nil {
		return f
	}
	t.debugOnce.Do(func() { t.debug = img.debugFrames() })
	return entryFor(t.debug, v)
}

// loadedFrame is frame in what is loaded with the code, or, without an index of that, in all that there is.
func (img *image) loadedFrame(v uint64) *fde {
	t := &img.frames
	t.once.Do(func() { img.loadFrames(t) })
	if t.index == nil {
		return entryFor(t.parsed, v)
	}
	i := sort.Search(len(t.index), func(i int) bool { return t.index[i].start > v }) - 1
	if i < 0 {
		return nil
	}
	if img.ends(t, t.index[i], v-t.index[i].start) { // padding between functions is asked for often
		return nil
	}
	f := img.readFrame(t, t.index[i])
	if f == nil || !f.Cover(v) {
		return nil
	}
	return f
}

func entryFor(list frame.FrameDescriptionEntries, v uint64) *fde {
	i := sort.Search(len(list), func(i int) bool { return list[i].Begin() > v }) - 1
	if i < 0 || !list[i].Cover(v) {
		return nil
	}
	return newFDE(list[i])
}

func newFDE(f *frame.FrameDescriptionEntry) *fde {
	out := &fde{FrameDescriptionEntry: f}
	for _, c := range f.CIE.Augmentation {
		out.isSignal = out.isSignal || c == 'S'
	}
	return out
}

func (img *image) loadFrames(t *frameTable) {
	if t.index = img.frameIndex(); t.index != nil {
		return
	}
	if s := img.f.Section(".eh_frame"); s != nil && s.Type != elf.SHT_NOBITS {
		t.parsed = t.parsed.Append(img.allFrames(img.f.section(".eh_frame", img.f.kept), s.Addr))
	}
	t.parsed = t.parsed.Append(img.debugFrames())
}

// debugFrames parses .debug_frame.
func (img *image) debugFrames() frame.FrameDescriptionEntries {
	raw, err := img.f.debugSection("frame", img.f.kept)
	if err != nil || len(raw) == 0 {
		return nil
	}
	return img.allFrames(raw, 0)
}

// frameIndex reads .eh_frame_hdr, nil if there is none.
func (img *image) frameIndex() []frameIndex {
	p := img.segment(elf.PT_GNU_EH_FRAME)
	if p == nil {
		return nil
	}
	question := img.f.kept.Open()
	defer question.Close()
	raw, err := img.readAt(p.Vaddr, p.Filesz, question)
	if err != nil {
		return nil
	}
	if err := img.f.kept.Take(2*uint64(len(raw)), "the index of functions of "+img.path); err != nil {
		_ = img.f.refuse(err)
		return nil
	}
	return parseFrameHeader(raw, p.Vaddr)
}

// parseFrameHeader reads .eh_frame_hdr if its table has the one encoding that
// linkers write: 4-byte signed values relative to the header.
func parseFrameHeader(raw []byte, at uint64) []frameIndex {
	const (
		udata4        = 0x03
		datarelSdata4 = 0x3b
		omit          = 0xff
	)
	if len(raw) < 12 || raw[0] != 1 || raw[1] == omit || raw[2] != udata4 || raw[3] != datarelSdata4 {
		return nil
	}
	if raw[1]&0x0f != 0x0b && raw[1]&0x0f != 0x03 { // eh_frame_ptr of 4 bytes
		return nil
	}
	n := int(binary.LittleEndian.Uint32(raw[8:]))
	raw = raw[12:]
	if n <= 0 || n > len(raw)/8 {
		return nil
	}
	out := make([]frameIndex, n)
	rel := func(b []byte) uint64 { return at + uint64(int64(int32(binary.LittleEndian.Uint32(b)))) }
	for i := range out {
		out[i] = frameIndex{rel(raw[i*8:]), rel(raw[i*8+4:])}
	}
	return out
}

// readFrame parses one entry together with its common information entry.
func (img *image) readFrame(t *frameTable, at frameIndex) *fde {
	if f, ok := t.entries.get(at.fde); ok {
		return f
	}
	f, size := img.parseFrame(at)
	t.entries.put(at.fde, f, size, img.f.kept)
	return f
}

// parseFrame parses one entry, and returns how many bytes it takes too.
func (img *image) parseFrame(at frameIndex) (f *fde, size uint64) {
	body, err := img.frameEntry(at.fde)
	if err != nil || len(body) < 8 {
		return nil, 0
	}
	back := uint64(binary.LittleEndian.Uint32(body[4:]))
	cie, err := img.frameEntry(at.fde + 4 - back)
	if err != nil {
		return nil, 0
	}
	// The pair is parsed as a section of its own: the distance to the common
	// entry changes, and with it pc-relative addresses, set right afterwards.
	pair := append(append([]byte(nil), cie...), body...)
	binary.LittleEndian.PutUint32(pair[len(cie)+4:], uint32(len(cie)+4))
	list := parseFrames(pair, at.fde)
	if len(list) != 1 {
		return nil, 0
	}
	list[0].Translate(at.start - list[0].Begin())
	const cost = 320 // bytes: both entries as Delve has them
	return newFDE(list[0]), cost + uint64(len(pair))
}

// frameEntry reads the length-prefixed entry at link-time address v.
func (img *image) frameEntry(v uint64) ([]byte, error) {
	question := img.f.kept.Open()
	defer question.Close()
	head, err := img.readAt(v, 4, question)
	if err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(head)
	if n < 4 || n > 1<<20 {
		return nil, fmt.Errorf("call-frame entry at %#x has length %#x", v, n)
	}
	return img.readAt(v, uint64(n)+4, question)
}

// How many bytes Delve needs for call-frame information: for each of its bytes, at most, since an entry has at least 20; and for an entry.
const (
	frameCost = 8
	fdeCost   = 128
)

// allFrames parses a section of img; at as for parseFrames.
func (img *image) allFrames(raw []byte, at uint64) frame.FrameDescriptionEntries {
	part := img.f.kept.Part("the call-frame information of " + img.path)
	if err := part.Set(frameCost * uint64(len(raw))); err != nil {
		_ = img.f.refuse(err)
		return nil
	}
	list := parseFrames(raw, at)
	_ = part.Set(min(fdeCost*uint64(len(list)), frameCost*uint64(len(raw))))
	return list
}

// parseFrames parses a section; at is its address, 0 for .debug_frame. Delve's
// parser panics on damaged input.
func parseFrames(raw []byte, at uint64) (list frame.FrameDescriptionEntries) {
	defer func() {
		if recover() != nil {
			list = nil
		}
	}()
	list, err := frame.Parse(raw, binary.LittleEndian, 0, 8, at)
	if err != nil {
		return nil
	}
	return list
}
