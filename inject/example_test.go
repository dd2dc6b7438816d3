package inject_test

import (
	"context"
	"fmt"
	"log"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/inject"
	"github.com/gokprobe/gokprobe/inject/fault"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
)

// One call in five fails. Those that pass do not stop.
func Example() {
	ctx := context.Background()
	s, err := kprobes.Launch(ctx, kprobes.Command{Path: testprog.MustBuild("shop"), Args: []string{"shop"}}, kprobes.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	in := inject.New(s, inject.Options{Injected: func(e inject.Event) { fmt.Println(e.Place, e.What) }})
	each := fault.Always()
	each.Interval = 5
	f, err := in.Add(ctx, inject.Rule{Spec: "deliver", Attr: each, Do: []inject.Action{inject.Return{Value: -1, Errno: unix.EIO}}})
	if err != nil {
		log.Fatal(err)
	}
	if err := s.Start(); err != nil {
		log.Fatal(err)
	}
	<-s.Done()
	fmt.Println(f.Stats().Injected, "of", f.Stats().Calls, "calls failed")
	// Output:
	// deliver [return -1 errno EIO]
	// deliver [return -1 errno EIO]
	// 2 of 10 calls failed
}
