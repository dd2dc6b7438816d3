package kprobes

import (
	"context"
	"runtime"
	"testing"
	"weak"

	"github.com/gokprobe/gokprobe/internal/testprog"
)

// living counts the values that are there still.
func living[T any](seen map[weak.Pointer[T]]bool) (n int) {
	for p := range seen {
		if p.Value() != nil {
			n++
		}
	}
	return n
}

// TestWhatIsKeptGoesWithItsThread: of thousands of threads and forked children that hit and end, the session remembers only those that there are.
func TestWhatIsKeptGoesWithItsThread(t *testing.T) {
	for _, c := range []struct {
		prog, command, reply string
		threads, spaces      int // that are to be seen
	}{
		{prog: "churn", command: "count", reply: "count", threads: 2000},
		{prog: "forker", command: "run 100", reply: "ran", threads: 400, spaces: 200},
	} {
		t.Run(c.prog, func(t *testing.T) {
			prog := testprog.Start(t, testprog.Build(t, c.prog))
			s, err := Attach(context.Background(), prog.PID(), Options{Follow: true, NoOptimize: true})
			if err != nil {
				t.Fatal(err)
			}
			states, spaces, threads := map[weak.Pointer[threadState]]bool{}, map[weak.Pointer[domain]]bool{}, 0
			kp := &Kprobe{SymbolName: "foo", PreHandler: func(_ *Kprobe, r *Regs) int {
				states[weak.Make(r.hit)], spaces[weak.Make(r.domain)] = true, true
				threads = len(states)
				return 0
			}}
			if err := s.RegisterKprobe(kp); err != nil {
				t.Fatal(err)
			}
			prog.Send(c.command)
			prog.Expect(c.reply)
			const few = 50
			testprog.Await(t, "a crowd of threads, most of which have gone", func() (passed bool) {
				_ = s.do(func() error {
					passed = threads >= c.threads && len(s.domains) == 1 && len(s.main.Threads()) < few
					return nil
				})
				return passed
			})
			_ = s.do(func() error {
				runtime.GC()
				if now := len(s.main.Threads()); living(states) > now+few || living(spaces) > few {
					t.Errorf("%d threads of %d and %d address spaces of %d are remembered, %d threads live", living(states), len(states), living(spaces), len(spaces), now)
				}
				if len(spaces) < c.spaces {
					t.Errorf("%d address spaces were seen, want %d", len(spaces), c.spaces)
				}
				return nil
			})
			wantClosed(t, prog, s)
		})
	}
}
