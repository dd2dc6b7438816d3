// Command kretprobe is the kernel's samples/kprobes/kretprobe_example.c for a process: how long
// the calls of a function take, and what they return. Calls of other threads than the first
// are let go by the entry handler.
package main

import (
	"encoding/binary"
	"flag"
	"fmt"
	"log"
	"time"

	"github.com/gokprobe/gokprobe/kprobes"
)

var begin = time.Now()

// entryHandler runs at the entry of each call.
func entryHandler(ri *kprobes.KretprobeInstance, regs *kprobes.Regs) int {
	if regs.TID() != regs.PID() {
		return 1 // don't follow this call
	}
	binary.LittleEndian.PutUint64(ri.Data, uint64(time.Since(begin)))
	return 0
}

// handler runs when a followed call has returned. Its Data is what the entry has left there.
func handler(ri *kprobes.KretprobeInstance, regs *kprobes.Regs) int {
	entered := time.Duration(binary.LittleEndian.Uint64(ri.Data))
	fmt.Printf("%s returned %d and took %d ns\n", ri.Kretprobe().KP.SymbolName, regs.ReturnValue(), time.Since(begin)-entered)
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
		DataSize:     8,  // a time
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
