package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// interrupts watches for the signals that end the command. The command must not die of one
// while it holds a target: its probes would stay in the target's code.
type interrupts struct {
	ctx    context.Context // cancelled by the first signal
	again  chan struct{}   // closed by the second
	cancel context.CancelFunc
	ch     chan os.Signal
	pipe   chan os.Signal
}

// watchInterrupts begins to watch. warn prints a sentence.
func watchInterrupts(warn func(string, ...any)) *interrupts {
	ctx, cancel := context.WithCancel(context.Background())
	in := &interrupts{
		ctx: ctx, again: make(chan struct{}), cancel: cancel,
		ch: make(chan os.Signal, 4), pipe: make(chan os.Signal, 1),
	}
	in.ignorePipe()
	signals := []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGABRT, syscall.SIGTSTP}
	if !signal.Ignored(syscall.SIGHUP) { // as under nohup(1)
		signals = append(signals, syscall.SIGHUP)
	}
	signal.Notify(in.ch, signals...)
	go in.watch(warn)
	return in
}

// ignorePipe makes a write to a closed pipe an error. It catches SIGPIPE instead of ignoring
// it: a COMMAND that gokprobe starts would inherit that the signal is ignored.
func (in *interrupts) ignorePipe() { signal.Notify(in.pipe, syscall.SIGPIPE) }

func (in *interrupts) watch(warn func(string, ...any)) {
	n := 0
	for sig := range in.ch {
		if sig == syscall.SIGTSTP {
			warn("not suspended, since the target's threads would stop at the probes; end with Ctrl-C")
			continue
		}
		switch n++; n {
		case 1:
			in.cancel()
		case 2:
			warn("detaching, which can't be cut short; output that nobody has read is dropped")
			close(in.again)
		}
	}
}

// stop gives the signals their usual meaning back.
func (in *interrupts) stop() {
	signal.Stop(in.ch)
	signal.Stop(in.pipe)
	close(in.ch)
	in.cancel()
}

// watchPipe makes a write to a closed pipe an error, until stop is called on its result. It is
// for commands that end by themselves, and need no other signal.
func watchPipe() *interrupts {
	_, cancel := context.WithCancel(context.Background())
	in := &interrupts{cancel: cancel, ch: make(chan os.Signal), pipe: make(chan os.Signal, 1)}
	in.ignorePipe()
	return in
}
