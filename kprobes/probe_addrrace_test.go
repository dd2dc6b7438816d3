package kprobes_test

import (
	"sync"
	"testing"

	"github.com/gokprobe/gokprobe/kprobes"
)

// TestAProbesAddressMayBeReadWhileChildrenAreFollowed: it stays what registration has written, whichever processes the probe is
// placed in meanwhile. make test runs this with the race detector.
func TestAProbesAddressMayBeReadWhileChildrenAreFollowed(t *testing.T) {
	prog := start(t, "forker")
	s := attach(t, prog.PID(), kprobes.Options{Follow: true})
	kps := []*kprobes.Kprobe{{SymbolName: "foo"}, {SymbolName: "foo", PostHandler: func(*kprobes.Kprobe, *kprobes.Regs, uint64) {}}}
	register(t, s, kps...)
	at := kps[0].Addr
	done := make(chan struct{})
	var readers sync.WaitGroup
	for _, kp := range kps {
		readers.Go(func() {
			for {
				if kp.Addr != at || kp.Addr == 0 {
					t.Errorf("the address is %s, was %s", kp.Addr, at)
					return
				}
				kp.Hits()
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	prog.Do("run 20", "ran 80")
	close(done)
	readers.Wait()
	closeSession(t, s)
	wantRight(t, prog)
}
