package symbols

import (
	"bytes"
	"compress/zlib"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/gokprobe/gokprobe/internal/budget"
)

// object is an ELF file whose headers have been checked against its size, before debug/elf saw them. Its sections are read by
// content, section and debugSection only, which ask the budget.
type object struct {
	*elf.File
	r    io.ReaderAt
	size uint64
	acct *budget.Account

	refused *refusals
}

// refusals is what was not read, and why, of an image and its debug file.
type refusals struct {
	mu   sync.Mutex
	list []error
}

// newObject reads the headers of r, a file of so many bytes.
func newObject(r io.ReaderAt, size uint64, acct *budget.Account) (*object, error) {
	o := &object{r: r, size: size, acct: acct, refused: &refusals{}}
	h, err := o.checkHeaders()
	if err != nil {
		return nil, err
	}
	if o.File, err = elf.NewFile(h); err != nil {
		return nil, err
	}
	return o, nil
}

// refuse notes what is not read.
func (o *object) refuse(err error) error {
	if errors.Is(err, budget.ErrOver) || errors.Is(err, errTooMuch) {
		const most = 8
		o.refused.mu.Lock()
		defer o.refused.mu.Unlock()
		if len(o.refused.list) < most {
			o.refused.list = append(o.refused.list, err)
		}
	}
	return err
}

// errTooMuch is a count or a size that no honest file has.
var errTooMuch = errors.New("more than any honest file has")

var errTruncated = errors.New("it ends behind the file")

// maxRatio is how far deflate compresses at most (RFC 1951: 258 bytes for two bits).
const maxRatio = 1032

// content is a section's content, decompressed; nil if it has none in this file.
func (o *object) content(s *elf.Section) ([]byte, error) {
	if s.Type == elf.SHT_NOBITS || s.Size == 0 {
		return nil, nil
	}
	if s.Offset > o.size || s.FileSize > o.size-s.Offset {
		return nil, fmt.Errorf("section %s: %w", s.Name, errTruncated)
	}
	b, err := o.take(s.Name, s.Size, s.FileSize)
	if err != nil {
		return nil, err
	}
	if s.Flags&elf.SHF_COMPRESSED == 0 {
		_, err = o.r.ReadAt(b, int64(s.Offset))
		if errors.Is(err, io.EOF) {
			err = nil
		}
	} else {
		_, err = io.ReadFull(s.Open(), b)
	}
	if err != nil {
		o.acct.Give(uint64(len(b)))
		return nil, fmt.Errorf("section %s: %w", s.Name, err)
	}
	return b, nil
}

// take allocates a section's content, of which the file has packed bytes.
func (o *object) take(name string, size, packed uint64) ([]byte, error) {
	err := o.acct.Take(max(size, packed), "section "+name)
	if err != nil {
		return nil, o.refuse(err)
	}
	if packed > size {
		o.acct.Give(packed - size)
	}
	return make([]byte, size), nil
}

// forget returns what content has read, when it is not needed any more.
func (o *object) forget(b []byte) { o.acct.Give(uint64(len(b))) }

// section is content by a section's name, nil if it can't be had.
func (o *object) section(name string) []byte {
	s := o.Section(name)
	if s == nil {
		return nil
	}
	b, err := o.content(s)
	if err != nil {
		return nil
	}
	return b
}

// debugSection reads .debug_NAME, or .zdebug_NAME as older tools compressed it.
func (o *object) debugSection(name string) ([]byte, error) {
	if s := o.Section(".debug_" + name); s != nil {
		return o.content(s)
	}
	s := o.Section(".zdebug_" + name)
	if s == nil || s.Flags&elf.SHF_COMPRESSED != 0 {
		return nil, nil
	}
	packed, err := o.content(s)
	if err != nil {
		return nil, err
	}
	defer o.forget(packed)
	const head = 12 // "ZLIB" and the size, big-endian
	if len(packed) < head || string(packed[:4]) != "ZLIB" {
		return packed, nil
	}
	size := binary.BigEndian.Uint64(packed[4:])
	if size/maxRatio > uint64(len(packed)) {
		return nil, o.refuse(fmt.Errorf("section %s: %w: %d bytes in %d", s.Name, errTooMuch, size, len(packed)))
	}
	zr, err := zlib.NewReader(bytes.NewReader(packed[head:]))
	if err != nil {
		return nil, err
	}
	b, err := o.take(s.Name, size, 0)
	if err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(zr, b); err != nil {
		o.forget(b)
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
