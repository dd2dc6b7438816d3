package optimize

import (
	"fmt"

	"github.com/gokprobe/gokprobe/arch"
)

// Reason is why a site can't be optimized. Its String is a fixed phrase, for listings and
// statistics.
type Reason uint8

// The reasons. The names in brackets are the kernel's checks, as doc.go lists them.
const (
	NoReason    Reason = iota
	NoFunction         // the function around the site is not known [E3]
	NotAHead           // no instruction begins at the site
	Ends               // the function ends before the jump does, and the bytes behind it are not known [E4]
	Undecodable        // the function can't be decoded as a whole [E5]
	InData             // it seems to be data, since what follows can't be decoded and nothing leads there [E5]
	IntoMiddle         // a jump leads behind a prefix, or between instructions otherwise [E8]
	NoCopy             // the instruction can't run as a copy [E11]
	NoLanding          // the jump can lead to no free place [E13]
	numReasons
)

var phrases = [numReasons]string{
	NoReason:    "optimizable",
	NoFunction:  "the function around it is not known",
	NotAHead:    "it is not the beginning of an instruction",
	Ends:        "the function ends within the jump",
	Undecodable: "the function holds bytes that are no instruction",
	InData:      "it is data in the function, or code that can't be decoded",
	IntoMiddle:  "a jump leads into the middle of an instruction",
	NoCopy:      "the instruction can't run as a copy",
	NoLanding:   "there is no room where the jump may lead",
}

// String is the reason's phrase, without a capital or full stop.
func (r Reason) String() string {
	if r >= numReasons {
		return fmt.Sprintf("reason %d", uint8(r))
	}
	return phrases[r]
}

// Reasons lists all reasons for a refusal.
func Reasons() []Reason {
	all := make([]Reason, 0, numReasons)
	for r := NoReason + 1; r < numReasons; r++ {
		all = append(all, r)
	}
	return all
}

// Refusal is the error for a site that can't be optimized. It is no failure: the site
// keeps its breakpoint.
type Refusal struct {
	Reason Reason
	At     arch.Addr // what is in the way: an instruction, a branch's target, the end of the code
	Err    error     // the architecture's own reason, or nil
}

// Error names the reason and the address.
func (r *Refusal) Error() string {
	s := fmt.Sprintf("%s (%s)", r.Reason, r.At)
	if r.Err != nil {
		s += ": " + r.Err.Error()
	}
	return s
}

// Unwrap returns Err.
func (r *Refusal) Unwrap() error { return r.Err }
