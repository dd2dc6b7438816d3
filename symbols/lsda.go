package symbols

import (
	"debug/elf"
	"encoding/binary"

	"github.com/gokprobe/gokprobe/internal/budget"
)

// Encodings of pointers in .eh_frame and its tables (Linux Standard Base §10.5.1).
const (
	peAbsPtr  = 0x00
	peULEB    = 0x01
	peUData2  = 0x02
	peUData4  = 0x03
	peUData8  = 0x04
	peSLEB    = 0x09
	peSData2  = 0x0a
	peSData4  = 0x0b
	peSData8  = 0x0c
	pePCRel   = 0x10
	peOmit    = 0xff
	peForm    = 0x0f
	peApplied = 0x70
)

// ehReader reads a table that lies at the link-time address at. When something can't be read, bad is set, and all later reads
// return 0.
type ehReader struct {
	b     []byte
	at    uint64
	isBad bool
}

func (r *ehReader) bytes(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.isBad, r.b = true, nil
		return make([]byte, 8)
	}
	out := r.b[:n]
	r.b, r.at = r.b[n:], r.at+uint64(n)
	return out
}

func (r *ehReader) byte() byte { return r.bytes(1)[0] }

func (r *ehReader) uleb() (v uint64) {
	for shift := 0; shift < 64; shift += 7 {
		b := r.byte()
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return v
		}
	}
	r.isBad = true
	return 0
}

// pointer reads a pointer of that encoding. It supports no pointers that are relative to a base other than their own address.
func (r *ehReader) pointer(enc byte) uint64 {
	from := r.at
	var v uint64
	switch enc & peForm {
	case peAbsPtr, peUData8, peSData8:
		v = binary.LittleEndian.Uint64(r.bytes(8))
	case peULEB:
		v = r.uleb()
	case peUData2:
		v = uint64(binary.LittleEndian.Uint16(r.bytes(2)))
	case peSData2:
		v = uint64(int64(int16(binary.LittleEndian.Uint16(r.bytes(2)))))
	case peUData4:
		v = uint64(binary.LittleEndian.Uint32(r.bytes(4)))
	case peSData4:
		v = uint64(int64(int32(binary.LittleEndian.Uint32(r.bytes(4)))))
	default:
		r.isBad = true
	}
	switch enc & peApplied {
	case 0:
	case pePCRel:
		if v != 0 {
			v += from
		}
	default:
		r.isBad = true
	}
	return v
}

// landingPads lists the link-time addresses at which exceptions from the code of one entry are handled. They are in the entry's
// language-specific data area, as GCC's and Clang's personality routines read it (gcc/unwind-pe.h; Itanium C++ ABI, exception tables).
func (img *image) landingPads(at frameIndex) []uint64 {
	area, ok := img.lsda(at.fde)
	if !ok {
		return nil
	}
	const most = 1 << 20
	question := img.f.kept.Open()
	defer question.Close()
	raw := img.readUpTo(area, most, question)
	r := &ehReader{b: raw, at: area}
	base := at.start
	if enc := r.byte(); enc != peOmit {
		base = r.pointer(enc)
	}
	if r.byte() != peOmit {
		r.uleb() // where the types are
	}
	enc := r.byte()
	length := r.uleb()
	if r.isBad || length > uint64(len(r.b)) {
		return nil
	}
	r.b = r.b[:length]
	var pads []uint64
	for len(r.b) > 0 && !r.isBad {
		r.pointer(enc)
		r.pointer(enc)
		pad := r.pointer(enc)
		r.uleb()
		if pad != 0 && !r.isBad {
			pads = append(pads, base+pad)
		}
	}
	return pads
}

// lsda is the link-time address of the language-specific data area of the frame description entry at v.
func (img *image) lsda(v uint64) (uint64, bool) {
	body, err := img.frameEntry(v)
	if err != nil || len(body) < 8 {
		return 0, false
	}
	back := uint64(binary.LittleEndian.Uint32(body[4:]))
	cie, err := img.frameEntry(v + 4 - back)
	if err != nil || len(cie) < 9 {
		return 0, false
	}
	enc, code := cieEncodings(&ehReader{b: cie[8:], at: v + 4 - back + 8})
	if enc == peOmit {
		return 0, false
	}
	r := &ehReader{b: body[8:], at: v + 8}
	r.pointer(code)
	r.pointer(code & peForm)
	r.uleb() // of the augmentation's data
	area := r.pointer(enc)
	return area, !r.isBad && area != 0
}

// cieEncodings reads a common information entry after its id. It returns how its frame entries encode the address of the data area,
// peOmit if they have none, and how they encode addresses of code.
func cieEncodings(r *ehReader) (lsda, code byte) {
	lsda = peOmit
	r.byte() // version
	var aug []byte
	for c := r.byte(); c != 0 && !r.isBad; c = r.byte() {
		aug = append(aug, c)
	}
	if len(aug) == 0 || aug[0] != 'z' {
		return peOmit, 0
	}
	r.uleb() // code alignment
	r.uleb() // data alignment
	r.uleb() // return address
	r.uleb() // length of the rest
	for _, c := range aug[1:] {
		switch c {
		case 'L':
			lsda = r.byte()
		case 'R':
			code = r.byte()
		case 'P':
			r.pointer(r.byte() &^ 0x80)
		case 'S', 'B':
		default:
			return peOmit, 0
		}
	}
	if r.isBad {
		return peOmit, 0
	}
	return lsda, code
}

// readUpTo reads n bytes at link-time address v, or as many as the segment has.
func (img *image) readUpTo(v, n uint64, acct *budget.Account) []byte {
	for _, p := range img.f.Progs {
		if p.Type == elf.PT_LOAD && v >= p.Vaddr && v-p.Vaddr < p.Filesz {
			b, err := img.readAt(v, min(n, p.Filesz-(v-p.Vaddr)), acct)
			if err != nil {
				return nil
			}
			return b
		}
	}
	return nil
}
