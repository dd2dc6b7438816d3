// Command kretprobe is the kernel's samples/kprobes/kretprobe_example.c for a process: how long
// the calls of a function take, and what they return. Calls of other threads than the first
// are let go by the entry handler.
package main

import (
	"flag"
	"fmt"
	"log"

	"github.com/gokprobe/gokprobe/kprobes"
)

// entryHandler runs at the entry of each call.
func entryHandler(ri *kprobes.KretprobeInstance, regs *kprobes.Regs) int {
	if regs.TID() != regs.PID() {
		return 1 // don't follow this call
	}
	return 0
}

// handler runs when a followed call has returned. Its thread has stopped at both ends; what that has cost is taken off the time, as far as it is known.
func handler(ri *kprobes.KretprobeInstance, regs *kprobes.Regs) int {
	fmt.Printf("%s returned %d and took %d ns\n", ri.Kretprobe().KP.SymbolName, regs.ReturnValue(), ri.Took().Time)
	return 0
}

func main() {
	kprobes.GuardianMain() // should this process be killed, another one puts the target right
	pid := flag.Int("p", 0, "process to probe")
	symbol := flag.String("symbol", "kernel_clone", "function to probe")
	flag.Parse()

	ctx, stop := kprobes.Context() // ends on SIGINT and its like
	defer stop()                   // detaches, also in a panic
	s, err := kprobes.Attach(ctx, *pid, kprobes.Options{})
	if err != nil {
		log.Print(err)
		return
	}
	rp := &kprobes.Kretprobe{
		KP:           kprobes.Kprobe{SymbolName: *symbol},
		Handler:      handler,
		EntryHandler: entryHandler,
		MaxActive:    20, // calls at once
	}
	if err := s.RegisterKretprobe(rp); err != nil {
		log.Print("register_kretprobe failed: ", err)
		return
	}
	fmt.Println("planted kretprobe at", rp.KP.Addr)
	<-s.Done() // the process has exited, or a signal has come
	fmt.Printf("entries: %d, returns: %d, missed: %d\n", rp.KP.Hits(), rp.Hits(), rp.NMissed())
}
