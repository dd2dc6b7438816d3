package kprobes

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// Context is for programs that attach, instead of context.Background:
//
//	ctx, stop := kprobes.Context()
//	defer stop()
//	s, err := kprobes.Attach(ctx, pid, kprobes.Options{})
//
// The context is done when SIGINT, SIGTERM, SIGQUIT or SIGHUP comes, or at stop; SIGHUP counts unless it was ignored, as under nohup(1). Then all
// sessions that were made under it close, and their processes are as they were found. Its cause names the signal. Until they have closed further signals
// are dropped; after that each has its usual effect, so a second one ends a program that does not end by itself.
//
// stop ends the context and returns when all of its sessions have closed. Deferred, it also does so in a panic of the goroutine that has
// deferred it; the panic goes on afterwards. A handler must not call stop, which would wait for the handler.
//
// Nothing is closed by os.Exit, log.Fatal, a panic of another goroutine, or SIGKILL, which run no deferred call: then the processes have GuardianMain and Recover.
func Context() (ctx context.Context, stop func()) {
	h := &holder{gone: sync.NewCond(new(sync.Mutex))}
	ctx, cancel := context.WithCancelCause(context.WithValue(context.Background(), holderKey{}, h))
	signals := []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	came := make(chan os.Signal, 1)
	signal.Notify(came, signals...)
	go func() {
		select {
		case sig := <-came:
			cancel(fmt.Errorf("ended by a signal: %v", sig))
		case <-ctx.Done():
		}
		h.wait()
		signal.Stop(came)
	}()
	return ctx, func() {
		cancel(context.Canceled)
		h.wait()
		signal.Stop(came)
	}
}

// holder counts the sessions that a context of Context holds.
type holder struct {
	gone *sync.Cond // one of them
	held int
}

type holderKey struct{}

// enterHolder counts a session that is made under ctx, until left is called.
func enterHolder(ctx context.Context) (left func()) {
	h, ok := ctx.Value(holderKey{}).(*holder)
	if !ok {
		return func() {}
	}
	h.add(1)
	return func() { h.add(-1) }
}

func (h *holder) add(n int) {
	h.gone.L.Lock()
	defer h.gone.L.Unlock()
	h.held += n
	h.gone.Broadcast()
}

// wait waits until no session is left.
func (h *holder) wait() {
	h.gone.L.Lock()
	defer h.gone.L.Unlock()
	for h.held > 0 {
		h.gone.Wait()
	}
}
