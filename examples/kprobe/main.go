// Command kprobe is the kernel's samples/kprobes/kprobe_example.c for a process:
// a probe on kernel_clone whose handlers print the registers before and after the
// probed instruction, and the stack that led there.
package main

import (
	"flag"
	"fmt"
	"log"

	"github.com/gokprobe/gokprobe/kprobes"
)

const frames = 3

// handlerPre runs just before the probed instruction is executed.
func handlerPre(p *kprobes.Kprobe, regs *kprobes.Regs) int {
	flags, _ := regs.Get("eflags")
	fmt.Printf("<%s> p->addr = %v, ip = %v, flags = %#x\n", p.SymbolName, p.Addr, regs.IP(), flags)
	for _, f := range regs.Backtrace(frames) {
		fmt.Println("   ", f.Symbol.Name)
	}
	return 0 // go on with the instruction
}

// handlerPost runs after the probed instruction.
func handlerPost(p *kprobes.Kprobe, regs *kprobes.Regs, _ uint64) {
	flags, _ := regs.Get("eflags")
	fmt.Printf("<%s> p->addr = %v, ip = %v, flags = %#x\n", p.SymbolName, p.Addr, regs.IP(), flags)
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
	kp := &kprobes.Kprobe{SymbolName: *symbol, PreHandler: handlerPre, PostHandler: handlerPost}
	if err := s.RegisterKprobe(kp); err != nil {
		log.Print("register_kprobe failed: ", err)
		return
	}
	fmt.Println("planted kprobe at", kp.Addr)
	<-s.Done() // the process has exited, or a signal has come
	fmt.Println("hits:", kp.Hits())
}
