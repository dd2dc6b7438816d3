package symbols

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/crc64"
	"io"

	"github.com/ulikunitz/xz/lzma"

	"github.com/gokprobe/gokprobe/internal/budget"
)

// mostMiniDebug is how large a compressed file of symbols may be when unpacked, in bytes: it has only names of functions. This file
// reads the xz format itself, and uses the decoder for the contents of a block only: the decoder would allocate a dictionary
// of any size for which a header asks.
const mostMiniDebug = 32 << 20

// addMiniDebug adds the symbols of .gnu_debugdata, an xz-compressed ELF file
// with the local functions' names that Fedora and others put into stripped
// files.
func (img *image) addMiniDebug(s *symtab) bool {
	question := img.f.kept.Open()
	defer question.Close()
	packed := img.f.section(".gnu_debugdata", question)
	if packed == nil {
		return false
	}
	data, err := unpack(packed, question)
	if err != nil {
		_ = img.f.refuse(fmt.Errorf("section .gnu_debugdata: %w", err))
		return false
	}
	f, err := newObject(bytes.NewReader(data), uint64(len(data)), img.f.kept)
	if img.f.refuse(err) != nil {
		return false
	}
	f.refused = img.f.refused
	return img.addSections(s, f, ".symtab", SourceMiniDebug)
}

// unpack decompresses an xz file of one stream (The .xz File Format, 1.2.1).
func unpack(packed []byte, acct *budget.Account) (data []byte, err error) {
	defer func() {
		if p := recover(); p != nil { // of the decoder, on damaged input
			data, err = nil, fmt.Errorf("damaged: %v", p)
		}
	}()
	const streamHeader = 12
	if len(packed) < streamHeader || string(packed[:6]) != "\xfd7zXZ\x00" || packed[7] > 0x0f {
		return nil, errXZ
	}
	out := &unpacked{part: acct.Part("what is unpacked"), dictionary: acct.Part("the dictionary to unpack it")}
	in := bytes.NewReader(packed[streamHeader:])
	for more := true; more && err == nil; {
		more, err = out.block(in, packed[7])
	}
	return out.b, err
}

// unpacked is the content of the blocks so far.
type unpacked struct {
	b                []byte
	part, dictionary *budget.Part
}

// Write implements io.Writer. When it grows, the budget must have room for the old and the new memory at once.
func (u *unpacked) Write(p []byte) (int, error) {
	if need := len(u.b) + len(p); need > cap(u.b) {
		size := max(2*cap(u.b), need, 1<<16)
		if err := u.part.Set(uint64(cap(u.b) + size)); err != nil {
			return 0, err
		}
		u.b = append(make([]byte, 0, size), u.b...)
		_ = u.part.Set(uint64(size))
	}
	u.b = append(u.b, p...)
	return len(p), nil
}

var errXZ = errors.New("not an xz file with LZMA2")

// block reads one block; more is false at the index, which follows the last block.
func (u *unpacked) block(in *bytes.Reader, check byte) (more bool, err error) {
	size, err := in.ReadByte()
	if err != nil || size == 0 {
		return false, err
	}
	header := make([]byte, int(size)*4+3)
	if _, err := io.ReadFull(in, header); err != nil {
		return false, err
	}
	dictionary, err := xzDictionary(header)
	if err != nil {
		return false, err
	}
	begin, room := len(u.b), mostMiniDebug-len(u.b)
	before := in.Len()
	// A match never reaches further back than what there is.
	dictionary = max(min(dictionary, mostMiniDebug), lzma.MinDictCap)
	if err := u.dictionary.Set(dictionary); err != nil {
		return false, err
	}
	zr, err := lzma.Reader2Config{DictCap: int(dictionary)}.NewReader2(in)
	if err != nil {
		return false, err
	}
	n, err := io.Copy(u, io.LimitReader(zr, int64(room)+1))
	switch {
	case err != nil:
		return false, err
	case n > int64(room):
		return false, fmt.Errorf("%w: over %d MiB of symbols", errTooMuch, mostMiniDebug>>20)
	}
	return true, checkBlock(u.b[begin:], in, (4-(before-in.Len())%4)%4, check)
}

// checkBlock reads the padding and the checksum after a block, and compares the checksum.
func checkBlock(content []byte, in *bytes.Reader, padding int, check byte) error {
	sizes := [16]int{0, 4, 4, 4, 8, 8, 8, 16, 16, 16, 32, 32, 32, 64, 64, 64}
	tail := make([]byte, padding+sizes[check])
	if _, err := io.ReadFull(in, tail); err != nil {
		return err
	}
	var sum []byte
	switch check {
	case 1:
		sum = le.AppendUint32(nil, crc32.ChecksumIEEE(content))
	case 4:
		sum = le.AppendUint64(nil, crc64.Checksum(content, crc64.MakeTable(crc64.ECMA)))
	case 10:
		h := sha256.Sum256(content)
		sum = h[:]
	default: // none, or one that is not in use
		return nil
	}
	if !bytes.Equal(sum, tail[padding:]) {
		return errors.New("damaged: its checksum is wrong")
	}
	return nil
}

// xzDictionary is the size of the dictionary that a block's header, without its first byte, asks for. LZMA2 must be its only filter,
// as xz writes it (3.1, 5.3.1).
func xzDictionary(header []byte) (uint64, error) {
	flags := header[0]
	if flags&0x3f != 0 { // more filters, reserved bits
		return 0, errXZ
	}
	c := &lineCursor{b: header[1:]}
	for _, present := range []byte{0x40, 0x80} { // compressed and uncompressed size
		if flags&present != 0 {
			c.uleb()
		}
	}
	const lzma2, largest = 0x21, 40
	if c.uleb() != lzma2 || c.uleb() != 1 || c.isBad {
		return 0, errXZ
	}
	code := c.uint(1)
	switch {
	case c.isBad || code > largest:
		return 0, errXZ
	case code == largest:
		return 1<<32 - 1, nil
	}
	return (2 | code&1) << (code/2 + 11), nil
}
