// Command jprobe is the kernel's samples/kprobes/jprobe_example.c for a process: a func
// with the parameters of kernel_clone that gets the arguments of every call.
package main

import (
	"flag"
	"fmt"
	"log"

	"github.com/gokprobe/gokprobe/kprobes"
)

type limits struct{ CPU, Memory, Files int64 }

// jKernelClone has the parameters of the probed function; regs in front is optional.
func jKernelClone(regs *kprobes.Regs, flags, stack, size uint64, parentTID, childTID kprobes.Ptr, tls uint64,
	comm string, niceness int32, lim limits, share float64) {
	fmt.Printf("jprobe: clone_flags %#x, stack_start %#x, stack_size %#x\n", flags, stack, size)
	fmt.Printf("    comm %q, niceness %d, limits %+v, share %v\n", comm, niceness, lim, share)
	if childTID == 0 {
		kprobes.JprobeReturn() // ends the handler here; to return would do as well
	}
	tid, _ := regs.ReadUint64(parentTID)
	fmt.Printf("    tls %d, parent's tid %d\n", tls, uint32(tid))
}

func main() {
	kprobes.GuardianMain() // should this process be killed, another one puts the target right
	pid := flag.Int("p", 0, "process to probe")
	flag.Parse()

	ctx, stop := kprobes.Context() // ends on SIGINT and its like
	defer stop()                   // detaches, also in a panic
	s, err := kprobes.Attach(ctx, *pid, kprobes.Options{})
	if err != nil {
		log.Print(err)
		return
	}
	jp := &kprobes.Jprobe{KP: kprobes.Kprobe{SymbolName: "kernel_clone"}, Entry: jKernelClone}
	if err := s.RegisterJprobe(jp); err != nil {
		log.Print("register_jprobe failed: ", err)
		return
	}
	fmt.Println("planted jprobe at", jp.KP.Addr)
	<-s.Done() // the process has exited, or a signal has come
	fmt.Println("hits:", jp.KP.Hits())
}
