package script

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	startime "go.starlark.net/lib/time"
	"go.starlark.net/starlark"

	"github.com/gokprobe/gokprobe/arch"
)

// word is an integer as the 64 bits of a register: from -2^63 to 2^64-1.
type word uint64

// Unpack implements starlark.Unpacker.
func (w *word) Unpack(v starlark.Value) error {
	switch v := v.(type) {
	case starlark.Bool:
		if v {
			*w = 1
		}
		return nil
	case starlark.Int:
		if u, ok := v.Uint64(); ok {
			*w = word(u)
			return nil
		}
		if i, ok := v.Int64(); ok {
			*w = word(i)
			return nil
		}
		return fmt.Errorf("%v does not fit in 64 bits", v)
	}
	return fmt.Errorf("got %s, want int", v.Type())
}

// addr is where a word leads.
func (w word) addr() arch.Addr { return arch.Addr(w) }

// duration is a length of time, as "50ms", or time.millisecond * 50.
type duration time.Duration

// Unpack implements starlark.Unpacker.
func (d *duration) Unpack(v starlark.Value) error {
	switch v := v.(type) {
	case startime.Duration:
		*d = duration(v)
	case starlark.String:
		parsed, err := time.ParseDuration(string(v))
		if err != nil {
			return fmt.Errorf("%v is no duration, write one like \"50ms\" or \"1.5s\"", v)
		}
		*d = duration(parsed)
	default:
		return fmt.Errorf("got %s, want a duration such as \"50ms\"", v.Type())
	}
	if *d < 0 {
		return errors.New("a duration can't be negative")
	}
	return nil
}

// data is bytes: bytes, or the UTF-8 of a string.
type data []byte

// Unpack implements starlark.Unpacker.
func (d *data) Unpack(v starlark.Value) error {
	switch v := v.(type) {
	case starlark.Bytes:
		*d = data(v)
	case starlark.String:
		*d = data(v)
	default:
		return fmt.Errorf("got %s, want bytes or string", v.Type())
	}
	return nil
}

// function is something that can be called, or None.
type function struct{ starlark.Callable }

// Unpack implements starlark.Unpacker.
func (f *function) Unpack(v starlark.Value) error {
	switch v := v.(type) {
	case starlark.NoneType:
		return nil
	case starlark.Callable:
		f.Callable = v
		return nil
	}
	return fmt.Errorf("got %s, want a function", v.Type())
}

// texts is a list of strings, or one.
type texts []string

// Unpack implements starlark.Unpacker.
func (t *texts) Unpack(v starlark.Value) error {
	switch v := v.(type) {
	case starlark.NoneType:
		return nil
	case starlark.String:
		*t = texts{string(v)}
		return nil
	case *starlark.Dict: // NAME=TEXT of each
		for _, pair := range v.Items() {
			*t = append(*t, text(pair[0])+"="+text(pair[1]))
		}
		return nil
	case starlark.Iterable:
		for e := range starlark.Elements(v) {
			text, ok := starlark.AsString(e)
			if !ok {
				return fmt.Errorf("got a list with %s in it, want strings", e.Type())
			}
			*t = append(*t, text)
		}
		return nil
	}
	return fmt.Errorf("got %s, want a list of strings", v.Type())
}

// signed is what the low bits of v mean as a number with a sign: C functions that return int
// leave the upper half of the register as it happens to be.
func signed(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var v word
	bits := 32
	if err := starlark.UnpackArgs(b.Name(), args, kwargs, "value", &v, "bits?", &bits); err != nil {
		return nil, err
	}
	if bits < 1 || bits > 64 {
		return nil, fmt.Errorf("signed: bits must be from 1 to 64, not %d", bits)
	}
	return starlark.MakeInt64(int64(v) << (64 - bits) >> (64 - bits)), nil
}

// toJSON is a value as encoding/json takes it. What JSON has no word for is its text.
func toJSON(v starlark.Value, depth int) any {
	if depth == 0 {
		return v.String()
	}
	switch v := v.(type) {
	case starlark.NoneType:
		return nil
	case starlark.Bool:
		return bool(v)
	case starlark.Int:
		if i, ok := v.Int64(); ok {
			return i
		}
		if u, ok := v.Uint64(); ok {
			return u
		}
	case starlark.Float:
		if f := float64(v); !math.IsNaN(f) && !math.IsInf(f, 0) {
			return f
		}
	case starlark.String:
		return string(v)
	case *counter:
		return v.n
	case starlark.IterableMapping:
		all := map[string]any{}
		for k, e := range starlark.Entries(v) {
			all[text(k)] = toJSON(e, depth-1)
		}
		return all
	case starlark.Iterable:
		all := []any{}
		for e := range starlark.Elements(v) {
			all = append(all, toJSON(e, depth-1))
		}
		return all
	}
	return text(v)
}

// text is a value as print shows it.
func text(v starlark.Value) string {
	if s, ok := starlark.AsString(v); ok {
		return s
	}
	return v.String()
}

// trimmed is a line of a scenario as a name.
func trimmed(line string) string {
	const most = 60
	line = strings.TrimSpace(line)
	if r := []rune(line); len(r) > most {
		return string(r[:most]) + "…"
	}
	return line
}
