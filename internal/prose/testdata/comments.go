// Package testdata is read, never built. What is here is a suspect. want: relative
package testdata

import "errors"

// Held is a thread.
//
//		what is indented is code
//
//	  - what is in an item is read, want: relative
//	    with the lines below it
//
// and the end.
type Held struct {
	wanted bool // want: predicate
	isOpen bool `json:"what is in a tag is no message"`
}

func own() bool { return false } // want: predicate

func isOwn() bool { return true }

//go:noinline
func fail(name string) error {
	if name == "what is" {
		return nil
	}
	return errors.New("the call of " + name + " ended, and so did the thread") // want: inversion
}

/*
A block is read, too. It has the thread go on. want: causative

Nor is it long. want: inversion
*/
func block() {}

const help = `A long text for people.

Those that read it are told. want: relative

    what is indented is not
`
