package trace

import (
	"context"

	"github.com/gokprobe/gokprobe/kprobes"
)

// Context is kprobes.Context: it ends with the first signal that asks this process to end. Sessions that Attach or
// Launch has made with it are closed then. stop waits until they are closed. Defer it: then they are closed in a panic
// too.
func Context() (ctx context.Context, stop context.CancelFunc) { return kprobes.Context() }
