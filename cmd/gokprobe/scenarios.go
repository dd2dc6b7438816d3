package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/gokprobe/gokprobe/script"
)

// shared is one scenario in several processes.
type shared struct {
	*scenario
	over chan struct{} // closed when the scenario has ended by itself
	end  context.CancelFunc
}

// scriptSeveral is the script command after its flags, with several processes.
func scriptSeveral(std stdio, to []target, who whom, req scriptRequest) error {
	sn, err := newScenario(std, req)
	if err != nil {
		return err
	}
	err = attachWhole(std, to, who, req.request, sn.newJoint)
	if !sn.told {
		err = errors.Join(err, sn.close(nil))
	}
	return err
}

// newJoint is a jointMaker.
func (sn *scenario) newJoint(ctx context.Context, _ *several) (joint, error) {
	return &shared{scenario: sn, over: make(chan struct{}), end: func() {}}, sn.execute(ctx, nil)
}

func (sh *shared) join(ctx context.Context, h *holding) error {
	return inTime(ctx, sh.sc.Join(ctx, h.sess))
}

func (sh *shared) leave(held []*holding) {
	var wg sync.WaitGroup
	for _, h := range held {
		wg.Go(func() { _ = sh.sc.Leave(h.sess) }) // the session's end tells what can't be undone
	}
	wg.Wait()
}

// complete arms the scenario, and begins its timers.
func (sh *shared) complete(ctx context.Context, _ bool) error {
	if err := sh.arm(ctx); err != nil {
		return err
	}
	fmt.Fprintf(sh.std.err, "seed: %d\n", sh.req.seed)
	runs, end := context.WithCancel(context.Background())
	sh.end = end
	go func() {
		defer close(sh.over)
		if !sh.sc.Idle() {
			sh.sc.Run(runs)
		}
	}()
	return nil
}

func (sh *shared) places() int { return sh.sc.Placed() }

func (sh *shared) gone(h *holding) (why string, gone bool) { return sh.sc.Gone(h.sess) }

func (sh *shared) done() <-chan struct{} { return sh.over }

func (sh *shared) tell(_ *several, _ uint64, giveUp <-chan struct{}) error {
	sh.end()
	<-sh.over
	failed, err := sh.finish(script.Ending{}, giveUp)
	if err == nil && failed {
		err = statusError(exitFailed) // all was told
	}
	return err
}
