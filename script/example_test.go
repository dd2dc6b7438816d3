package script_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/script"
)

const scenario = `
def late(ctx):
    if ctx.args.number == 7:
        ctx.fail(errno = "EIO")      # it returns -1 and has not run

k = kprobe("deliver", pre = late)
test("each order is delivered once", lambda: expect(k.hits == 10, str(k.hits)))
at_end(lambda: print(k.hits, "orders, exit status", target.exit_status))
`

// A scenario makes one call fail, and judges the whole run.
func Example() {
	f, err := os.CreateTemp("", "*.star")
	if err != nil {
		log.Fatal(err)
	}
	defer os.Remove(f.Name())
	if _, err := f.WriteString(scenario); err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	s, err := kprobes.Launch(ctx, kprobes.Command{Path: testprog.MustBuild("shop"), Args: []string{"shop"}, Files: []*os.File{os.Stdin, os.Stdout}}, kprobes.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	sc, err := script.Load(f.Name(), script.Options{Session: s, Print: func(text string) { fmt.Println(text) }})
	if err != nil {
		log.Fatal(err)
	}
	if err := sc.Arm(); err != nil {
		log.Fatal(err)
	}
	if err := s.Start(); err != nil {
		log.Fatal(err)
	}
	sc.Run(ctx) // until the process ends
	r := sc.Finish(script.Ending{Exited: true, Status: s.Exit().Code})
	fmt.Println(len(r.Cases), "checks, failed:", r.Failed)
	// Output:
	// 1 orders were not delivered
	// 10 orders, exit status 0
	// 2 checks, failed: false
}
