package trace

import (
	"context"

	"github.com/gokprobe/gokprobe/kprobes"
)

// Context is kprobes.Context: one that ends with the first signal that asks the program to end. Sessions that Attach or
// Launch has made with it are closed then. stop, which is to be deferred, waits until they are, in a panic as well.
func Context() (ctx context.Context, stop context.CancelFunc) { return kprobes.Context() }
