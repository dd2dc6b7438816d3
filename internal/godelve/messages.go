package godelve

import (
	"encoding/gob"
	"errors"
	"io"
	"os"
)

// Limits of the conversation between the tracer and the process that Delve runs in.
const (
	mostMessage = 1 << 20 // bytes, of one message
	mostRead    = 64 << 10
	mostReason  = 1 << 10 // bytes of an error's text
)

// request is what the tracer sends: one of these.
type request struct {
	Load   *loading
	Eval   *evaluation
	Memory *memory // what was asked for by a reply
}

type loading struct {
	PID   int
	Entry uint64
}

type evaluation struct {
	Expr string
	Stop stop
}

type memory struct {
	Bytes []byte
	Fails string // why there are none
}

// reply is what the tracer gets: memory is asked for until there is a result.
type reply struct {
	Read   *reading
	Result *result
}

type reading struct {
	Addr uint64
	Size int
}

type result struct {
	Shown string
	JSON  any
	Fails string
}

func init() {
	gob.Register(map[string]any{})
	gob.Register([]any{})
}

// conversation is one end of a socket. Messages are sent in turn.
type conversation struct {
	file    *os.File
	limited *io.LimitedReader
	in      *gob.Decoder
	out     *gob.Encoder
}

func newConversation(f *os.File) *conversation {
	limited := &io.LimitedReader{R: f}
	return &conversation{file: f, limited: limited, in: gob.NewDecoder(limited), out: gob.NewEncoder(f)}
}

func (c *conversation) send(message any) error { return c.out.Encode(message) }

func (c *conversation) receive(message any) error {
	c.limited.N = mostMessage
	return c.in.Decode(message)
}

// reason is an error as it is sent.
func reason(err error) string {
	if err == nil {
		return ""
	}
	s := err.Error()
	return s[:min(len(s), mostReason)]
}

// asError is what reason has made a text of.
func asError(s string) error {
	if s == "" {
		return nil
	}
	return errors.New(s)
}
