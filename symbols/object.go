package symbols

import (
	"bytes"
	"compress/zlib"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/gokprobe/gokprobe/internal/budget"
	"github.com/gokprobe/gokprobe/internal/targetfs"
)

// object is an ELF file whose headers were checked against its size before debug/elf saw them. Sections must be read by content,
// section and debugSection, which take memory from the budget. The account is kept, or that of a single question, which is
// closed after the answer.
type object struct {
	*elf.File
	r    io.ReaderAt
	size uint64
	file *targetfs.File  // nil if it is no file that others may open too
	kept *budget.Account // of data that is kept as long as the file is open

	refused *refusals
}

// refusals lists why parts of an image and its debug file were not read.
type refusals struct {
	mu   sync.Mutex
	list []error
	some bool // something was not read, for whatever reason
}

// newObject reads the headers of r, a file of so many bytes.
func newObject(r io.ReaderAt, size uint64, kept *budget.Account) (*object, error) {
	const cost = 32 << 10 // bytes for an open file, with its read-ahead
	if err := kept.Take(cost, "an open file"); err != nil {
		return nil, err
	}
	o := &object{r: r, size: size, kept: kept, refused: &refusals{}}
	h, err := o.checkHeaders()
	if err != nil {
		return nil, err
	}
	if o.File, err = elf.NewFile(h); err != nil {
		return nil, err
	}
	return o, nil
}

// refuse notes err as the reason why something is not read, and returns it.
func (o *object) refuse(err error) error { return o.refused.note(err) }

// hasSome reports whether something was not read.
func (r *refusals) hasSome() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.some
}

// note adds err to the list if it is a refusal (errTooMuch, or over the budget), and returns it.
func (r *refusals) note(err error) error {
	if err == nil {
		return nil
	}
	const most = 8
	r.mu.Lock()
	defer r.mu.Unlock()
	r.some = true
	if (errors.Is(err, budget.ErrOver) || errors.Is(err, errTooMuch)) && len(r.list) < most {
		r.list = append(r.list, err)
	}
	return err
}

// all returns all noted errors.
func (r *refusals) all() []error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.list)
}

// errTooMuch is the error of a count or a size that no real file has.
var errTooMuch = errors.New("more than any real file has")

var errTruncated = errors.New("it extends beyond the end of the file")

// maxRatio is how far deflate compresses at most (RFC 1951: 258 bytes for two bits).
const maxRatio = 1032

// content is a section's content, decompressed; nil if it has none in this file.
func (o *object) content(s *elf.Section, acct *budget.Account) ([]byte, error) {
	if s.Type == elf.SHT_NOBITS || s.Size == 0 {
		return nil, nil
	}
	if s.Offset > o.size || s.FileSize > o.size-s.Offset {
		return nil, o.refuse(fmt.Errorf("section %s: %w", s.Name, errTruncated))
	}
	part := acct.Part("section " + s.Name)
	if err := part.Set(s.Size); err != nil {
		return nil, o.refuse(err)
	}
	b, err := make([]byte, s.Size), error(nil)
	if s.Flags&elf.SHF_COMPRESSED == 0 {
		_, err = o.r.ReadAt(b, int64(s.Offset))
		if errors.Is(err, io.EOF) {
			err = nil
		}
	} else {
		_, err = io.ReadFull(s.Open(), b)
	}
	if err != nil {
		_ = part.Set(0)
		return nil, o.refuse(fmt.Errorf("section %s: %w", s.Name, err))
	}
	return b, nil
}

// section is content by a section's name, nil if it can't be had.
func (o *object) section(name string, acct *budget.Account) []byte {
	s := o.Section(name)
	if s == nil {
		return nil
	}
	b, err := o.content(s, acct)
	if err != nil {
		return nil
	}
	return b
}

// debugSection reads .debug_NAME, or .zdebug_NAME as older tools compressed it.
func (o *object) debugSection(name string, acct *budget.Account) ([]byte, error) {
	if s := o.Section(".debug_" + name); s != nil {
		return o.content(s, acct)
	}
	s := o.Section(".zdebug_" + name)
	if s == nil || s.Flags&elf.SHF_COMPRESSED != 0 {
		return nil, nil
	}
	const head = 12 // "ZLIB" and the size, big-endian
	var magic [4]byte
	if _, err := s.ReadAt(magic[:], 0); err != nil || s.Size < head || string(magic[:]) != "ZLIB" {
		return o.content(s, acct)
	}
	question := acct.Open()
	defer question.Close()
	packed, err := o.content(s, question)
	if err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint64(packed[4:])
	if size/maxRatio > uint64(len(packed)) {
		return nil, o.refuse(fmt.Errorf("section %s: %w: %d bytes in %d", s.Name, errTooMuch, size, len(packed)))
	}
	zr, err := zlib.NewReader(bytes.NewReader(packed[head:]))
	if err != nil {
		return nil, err
	}
	part := acct.Part("section " + s.Name)
	if err := part.Set(size); err != nil {
		return nil, o.refuse(err)
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(zr, b); err != nil {
		_ = part.Set(0)
		return nil, err
	}
	return b, nil
}

// sectionSuffix is the first section whose name ends so.
func (o *object) sectionSuffix(suffix string) *elf.Section {
	for _, s := range o.Sections {
		if strings.HasSuffix(s.Name, suffix) {
			return s
		}
	}
	return nil
}
