package inject

import (
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// parsers make actions of text, by their kind.
var parsers = map[string]func(string) (Action, error){
	"retval": parseValue, "error": parseError, "result": parseResult, "errno": parseErrno, "set": parseSet, "poke": parsePoke, "corrupt": parseCorrupt,
	"delay": parseDelay, "signal": parseSignal,
}

// ParseAction reads an action, as the options of gokprobe inject of the same names are written:
//
//	retval   -1, 0x10, NULL, true, 2.5, an enumerator (Results.Value)
//	error    ENOENT, io.EOF, "text", a Go expression (Results.Error)
//	result   NAME=VALUE, N=VALUE (Results.Named)
//	errno    ENOENT, 2: fails as functions do that set errno (Return.Fails)
//	set      %di=5, rdi=$arg2, $arg3=0
//	poke     ADDR=0x00ff or ADDR="text", where ADDR is an Operand
//	corrupt  ADDR, ADDR@N, ADDR@N^0x01
//	delay    50ms, 10ms..20ms
//	signal   SIGTERM, term, 15
func ParseAction(kind, text string) (Action, error) {
	parse := parsers[kind]
	if parse == nil {
		return nil, fmt.Errorf("unknown action %q, choose one of %s", kind, strings.Join(kindsOf(), ", "))
	}
	a, err := parse(strings.TrimSpace(text))
	if err != nil {
		return nil, fmt.Errorf("%s %q: %w", kind, text, err)
	}
	return a, nil
}

func parseErrno(text string) (Action, error) {
	e, err := ParseErrno(text)
	return Return{Errno: e, Fails: true}, err
}

// ParseErrno reads an error number by its name (errno(3)), in any case, or its number.
func ParseErrno(text string) (unix.Errno, error) {
	const last = 4095 // MAX_ERRNO
	text = strings.TrimSpace(text)
	if n, err := strconv.Atoi(text); err == nil {
		if n < 0 {
			n = -n
		}
		if n == 0 || n > last {
			return 0, fmt.Errorf("error numbers are 1 to %d", last)
		}
		return unix.Errno(n), nil
	}
	want := strings.ToUpper(text)
	aliases := map[string]unix.Errno{"EWOULDBLOCK": unix.EWOULDBLOCK, "ENOTSUP": unix.ENOTSUP, "EDEADLOCK": unix.EDEADLOCK}
	if e, ok := aliases[want]; ok {
		return e, nil
	}
	for e := unix.Errno(1); e <= 256; e++ {
		if name := unix.ErrnoName(e); name != "" && name == want {
			return e, nil
		}
	}
	return 0, errors.New("there is no error of this name, see errno(3)")
}

var argumentName = regexp.MustCompile(`^\$arg([0-9]+)$`)

func parseSet(text string) (Action, error) {
	name, value, ok := strings.Cut(text, "=")
	name, value = strings.TrimSpace(name), strings.TrimSpace(value)
	if !ok || name == "" || value == "" {
		return nil, errors.New("write REGISTER=VALUE or $argN=VALUE")
	}
	if m := argumentName.FindStringSubmatch(name); m != nil {
		n, err := strconv.Atoi(m[1])
		if err != nil || n < 1 {
			return nil, errors.New("arguments are counted from 1")
		}
		return SetArgument{N: n, Value: Operand(value)}, nil
	}
	if name == "$retval" {
		return parseValue(value)
	}
	return SetRegister{Name: strings.TrimPrefix(name, "%"), Value: Operand(value)}, nil
}

func parsePoke(text string) (Action, error) {
	at, value, ok := strings.Cut(text, "=")
	at, value = strings.TrimSpace(at), strings.TrimSpace(value)
	if !ok || at == "" || value == "" {
		return nil, errors.New(`write ADDRESS=0xBYTES or ADDRESS="text"`)
	}
	if value[0] == '"' {
		s, err := strconv.Unquote(value)
		if err == nil && s == "" {
			err = errors.New("there are no bytes to write")
		}
		return SetMemory{At: Operand(at), Bytes: []byte(s)}, err
	}
	b, err := hex.DecodeString(strings.ReplaceAll(strings.TrimPrefix(value, "0x"), " ", ""))
	if err != nil || len(b) == 0 {
		return nil, errors.New("bytes are written as pairs of hexadecimal digits, 0x00ff, or as \"text\"")
	}
	return SetMemory{At: Operand(at), Bytes: b}, nil
}

var corruption = regexp.MustCompile(`^(.+?)(?:@([0-9]+))?(?:\^(0x[0-9a-fA-F]+|[0-9]+))?$`)

func parseCorrupt(text string) (Action, error) {
	m := corruption.FindStringSubmatch(text)
	if m == nil {
		return nil, errors.New("write ADDRESS, ADDRESS@N or ADDRESS@N^BITS")
	}
	a := Corrupt{At: Operand(m[1]), XOR: 0xff}
	var err error
	if m[2] != "" {
		if a.Off, err = strconv.ParseUint(m[2], 10, 63); err != nil {
			return nil, errors.New("the byte's number is too large")
		}
	}
	if m[3] != "" {
		bits, err := strconv.ParseUint(m[3], 0, 8)
		if err != nil || bits == 0 {
			return nil, errors.New("the bits of a byte to change are 0x01 to 0xff")
		}
		a.XOR = byte(bits)
	}
	return a, nil
}

func parseDelay(text string) (Action, error) {
	low, high, isRange := strings.Cut(text, "..")
	d, err := time.ParseDuration(low)
	if err != nil || d < 0 {
		return nil, errors.New("a delay is written as 50ms, 2s, or 10ms..20ms")
	}
	a := Delay{D: d}
	if isRange {
		until, err := time.ParseDuration(high)
		if err != nil || until < d {
			return nil, errors.New("a range of delays is written as 10ms..20ms")
		}
		a.Jitter = until - d
	}
	if a.D+a.Jitter == 0 {
		return nil, errors.New("a delay must be more than 0")
	}
	return a, nil
}

func parseSignal(text string) (Action, error) {
	s, err := ParseSignal(text)
	return Signal{s}, err
}

// ParseSignal reads a signal by its name, with or without SIG and in any case, or its number.
func ParseSignal(text string) (unix.Signal, error) {
	if n, err := strconv.Atoi(text); err == nil {
		if n < 1 || n > 64 {
			return 0, errors.New("signals are numbered 1 to 64")
		}
		return unix.Signal(n), nil
	}
	name := strings.ToUpper(text)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	if s := unix.SignalNum(name); s != 0 {
		return s, nil
	}
	return 0, errors.New("there is no signal of this name, see signal(7)")
}
