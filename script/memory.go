package script

import (
	"encoding/binary"
	"errors"
	"fmt"

	"go.starlark.net/starlark"

	"github.com/gokprobe/gokprobe/arch"
)

// maxRead is how many bytes ctx.read and ctx.string read at most.
const maxRead = 1 << 20

// unreadable is a memory error in a scenario's words.
func unreadable(err error) error {
	var fault *arch.FaultError
	if !errors.As(err, &fault) {
		return err
	}
	if fault.Write {
		return fmt.Errorf("%v can't be written: %w", fault.Addr, err)
	}
	return fmt.Errorf("%v can't be read; default= is the value for that case", fault.Addr)
}

// read is ctx.read(addr, n, default=).
func (c *hitContext) read(b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var at word
	var n int
	var otherwise starlark.Value
	if err := starlark.UnpackArgs(b.Name(), args, kwargs, "addr", &at, "n", &n, "default?", &otherwise); err != nil {
		return nil, err
	}
	if n < 0 || n > maxRead {
		return nil, fmt.Errorf("n must be from 0 to %d, not %d", maxRead, n)
	}
	if err := c.charge(uint64(n) / textPerStep); err != nil {
		return nil, err
	}
	p := make([]byte, n)
	if err := c.hit.ReadMemory(at.addr(), p); err != nil {
		return orElse(otherwise, unreadable(err))
	}
	return starlark.Bytes(p), nil
}

// orElse is the value that the scenario has given for the case of an error.
func orElse(v starlark.Value, err error) (starlark.Value, error) {
	if v == nil {
		return nil, err
	}
	return v, nil
}

// write is ctx.write(addr, data).
func (c *hitContext) write(b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var at word
	var p data
	if err := starlark.UnpackArgs(b.Name(), args, kwargs, "addr", &at, "data", &p); err != nil {
		return nil, err
	}
	if err := c.hit.WriteMemory(at.addr(), p); err != nil {
		return nil, unreadable(err)
	}
	return starlark.None, nil
}

// string is ctx.string(addr, max=4096, default=). Bytes that are no UTF-8 are replaced.
func (c *hitContext) string(b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var at word
	limit := 4096
	var otherwise starlark.Value
	if err := starlark.UnpackArgs(b.Name(), args, kwargs, "addr", &at, "max?", &limit, "default?", &otherwise); err != nil {
		return nil, err
	}
	if limit < 0 || limit > maxRead {
		return nil, fmt.Errorf("max must be from 0 to %d, not %d", maxRead, limit)
	}
	text, err := c.hit.ReadString(at.addr(), limit)
	if err != nil {
		return orElse(otherwise, unreadable(err))
	}
	return starlark.String(text), c.charge(uint64(len(text)) / textPerStep)
}

// int is ctx.int(addr, size=8, signed=False, default=).
func (c *hitContext) int(b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var at word
	size, sign := 8, false
	var otherwise starlark.Value
	if err := starlark.UnpackArgs(b.Name(), args, kwargs, "addr", &at, "size?", &size, "signed?", &sign, "default?", &otherwise); err != nil {
		return nil, err
	}
	if err := checkSize(size); err != nil {
		return nil, err
	}
	var p [8]byte
	if err := c.hit.ReadMemory(at.addr(), p[:size]); err != nil {
		return orElse(otherwise, unreadable(err))
	}
	v := binary.LittleEndian.Uint64(p[:])
	if sign {
		shift := 64 - 8*size
		return starlark.MakeInt64(int64(v) << shift >> shift), nil
	}
	return starlark.MakeUint64(v), nil
}

func checkSize(size int) error {
	switch size {
	case 1, 2, 4, 8:
		return nil
	}
	return fmt.Errorf("size is 1, 2, 4 or 8 bytes, not %d", size)
}

// setInt is ctx.set_int(addr, value, size=8).
func (c *hitContext) setInt(b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var at, v word
	size := 8
	if err := starlark.UnpackArgs(b.Name(), args, kwargs, "addr", &at, "value", &v, "size?", &size); err != nil {
		return nil, err
	}
	if err := checkSize(size); err != nil {
		return nil, err
	}
	p := binary.LittleEndian.AppendUint64(nil, uint64(v))[:size]
	if err := c.hit.WriteMemory(at.addr(), p); err != nil {
		return nil, unreadable(err)
	}
	return starlark.None, nil
}
