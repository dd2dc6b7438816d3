// Command call makes the probed thread call functions of its program: one that knows how to
// describe an object, as a debugger's user would call it, and then free.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"time"

	"github.com/gokprobe/gokprobe/kprobes"
)

// program is the functions that the handler calls.
type program struct{ describe, free kprobes.Ptr }

// call is regs.Call with more patience than its second: both functions are known to return, however busy the machine is.
func call(regs *kprobes.Regs, fn kprobes.Ptr, arg uint64) (uint64, error) {
	res, err := regs.CallFunc(kprobes.FuncCall{Fn: fn, Args: []uint64{arg}, Timeout: time.Minute})
	return res.Int, err
}

// show prints what the program says of the object whose address is the first argument.
func (p program) show(kp *kprobes.Kprobe, regs *kprobes.Regs) int {
	order, _ := regs.Arg(0)
	text, err := call(regs, p.describe, order)
	if err != nil {
		fmt.Println(err)
		return 0
	}
	s, _ := regs.ReadString(kprobes.Ptr(text), 64)
	fmt.Printf("<%s> %s\n", kp.SymbolName, s)
	if _, err := call(regs, p.free, text); err != nil {
		fmt.Println(err)
	}
	return 0
}

func address(ctx context.Context, s *kprobes.Session, symbol string) (kprobes.Ptr, error) {
	found, err := s.Symbols().Resolve(ctx, symbol)
	if err != nil {
		return 0, err
	}
	return found[0].Addr, nil
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
	describe, err := address(ctx, s, "describe")
	if err != nil {
		log.Print(err)
		return
	}
	free, err := address(ctx, s, "libc.so.6:free")
	if err != nil {
		log.Print(err)
		return
	}
	p := program{describe: describe, free: free}
	kp := &kprobes.Kprobe{SymbolName: "handle", PreHandler: p.show}
	if err := s.RegisterKprobe(kp); err != nil {
		log.Print("register_kprobe failed: ", err)
		return
	}
	fmt.Println("planted kprobe at", kp.Addr)
	<-s.Done() // the process has exited, or a signal has come
	fmt.Println("hits:", kp.Hits(), "missed:", kp.NMissed())
}
