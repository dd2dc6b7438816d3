// Command typedargs prints a function's parameters as its source declares them:
// names and types come from the debug information, values from registers and memory.
package main

import (
	"flag"
	"fmt"
	"log"

	"github.com/gokprobe/gokprobe/kprobes"
)

func main() {
	kprobes.GuardianMain() // should this process be killed, another one puts the target right
	pid := flag.Int("p", 0, "process to probe")
	symbol := flag.String("symbol", "open_account", "function to probe")
	flag.Parse()

	ctx, stop := kprobes.Context() // ends on SIGINT and its like
	defer stop()                   // detaches, also in a panic
	s, err := kprobes.Attach(ctx, *pid, kprobes.Options{})
	if err != nil {
		log.Print(err)
		return
	}
	found, err := s.Symbols().Resolve(ctx, *symbol)
	if err != nil {
		log.Print(err)
		return
	}
	params, err := s.Symbols().Params(found[0].Addr)
	if err != nil {
		log.Print(err)
		return
	}
	kp := &kprobes.Kprobe{Addr: found[0].Addr, PreHandler: func(_ *kprobes.Kprobe, regs *kprobes.Regs) int {
		for _, p := range params {
			fmt.Printf("%s %s = %s\n", p.Type, p.Name, p.Value(regs, regs).Text)
		}
		return 0
	}}
	if err := s.RegisterKprobe(kp); err != nil {
		log.Print(err)
		return
	}
	fmt.Println("planted kprobe at", *symbol)
	<-s.Done() // the process has exited, or a signal has come
}
