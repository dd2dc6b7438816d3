package inject

import (
	"errors"
	"fmt"
	"time"

	"github.com/gokprobe/gokprobe/inject/fault"
)

// Delay makes the thread go on later. All others run meanwhile.
type Delay struct {
	D      time.Duration
	Jitter time.Duration // up to so much longer, by chance that follows from the rule's seed
}

func (a Delay) String() string {
	if a.Jitter > 0 {
		return fmt.Sprintf("delay %v..%v", a.D, a.D+a.Jitter)
	}
	return fmt.Sprintf("delay %v", a.D)
}

func (a Delay) ends() bool { return false }

// nextDelay counts delays of random length.
func (f *Fault) nextDelay() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.jitters++
	return f.jitters
}

// delays notes until when a thread is delayed.
func (f *Fault) delays(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if until := time.Now().Add(d); until.After(f.delayed) {
		f.delayed = until
	}
}

func (a Delay) bind(b binding) (effect, error) {
	if a.D < 0 || a.Jitter < 0 || a.D+a.Jitter <= 0 {
		return effect{}, errors.New("a delay must be more than 0")
	}
	seed := fault.Mix(b.fault.rule.Attr.Seed, delaySeed)
	return effect{would: a.String(), do: func(c *Call) (string, error) {
		d := a.D
		if a.Jitter > 0 {
			d += time.Duration(fault.Mix(seed, c.place.fault.nextDelay()) % uint64(a.Jitter+1))
		}
		c.Delay(d)
		c.place.fault.delays(d)
		return fmt.Sprintf("delay %v", d), nil
	}}, nil
}
