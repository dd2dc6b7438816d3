// Package arm64 is where AArch64 will be. So far it knows the processor's registers, its calling
// conventions and a few instructions by their bytes. It decodes nothing and plans nothing: that says
// ErrUnsupported, and nothing can be probed.
//
// Not part of the public promise: any version may change it.
package arm64

import (
	"fmt"

	"github.com/gokprobe/gokprobe/arch"
)

// ErrUnsupported is why. It wraps arch.ErrUnsupported.
var ErrUnsupported = fmt.Errorf("%w: gokprobe can't decode instructions of arm64, only of amd64 (x86-64)", arch.ErrUnsupported)
