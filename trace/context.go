package trace

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// Context is one that ends with the first SIGINT, SIGTERM, SIGQUIT or SIGHUP (unless that is ignored, as under nohup): sessions that Attach or Launch
// has made with it are closed then. stop gives the signals their usual meaning back.
func Context() (ctx context.Context, stop context.CancelFunc) {
	signals := []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	return signal.NotifyContext(context.Background(), signals...)
}
