// Command fprobe is the kernel's samples/fprobe/fprobe_example.c for a process: entries and
// returns of all functions that match a pattern, with the stack that led there, and how many
// were seen and missed.
package main

import (
	"flag"
	"fmt"
	"log"
	"path"

	"github.com/gokprobe/gokprobe/kprobes"
)

const frames = 3

// probe follows one of the functions.
func probe(name string, addr kprobes.Ptr) *kprobes.Kretprobe {
	return &kprobes.Kretprobe{
		KP: kprobes.Kprobe{Addr: addr},
		EntryHandler: func(_ *kprobes.KretprobeInstance, regs *kprobes.Regs) int {
			arg, _ := regs.Arg(0)
			fmt.Printf("enter %s(%d)\n", name, arg)
			for _, f := range regs.Backtrace(frames) {
				fmt.Println("   ", f.Symbol.Name)
			}
			return 0
		},
		Handler: func(ri *kprobes.KretprobeInstance, regs *kprobes.Regs) int {
			fmt.Printf("return from %s to %v: %d\n", name, ri.RetAddr, regs.ReturnValue())
			return 0
		},
	}
}

func main() {
	kprobes.GuardianMain() // should this process be killed, another one puts the target right
	pid := flag.Int("p", 0, "process to probe")
	symbols := flag.String("symbol", "vfs_*", "functions to probe")
	except := flag.String("nosymbol", "*_close", "functions not to probe")
	flag.Parse()

	ctx, stop := kprobes.Context() // ends on SIGINT and its like
	defer stop()                   // detaches, also in a panic
	s, err := kprobes.Attach(ctx, *pid, kprobes.Options{})
	if err != nil {
		log.Print(err)
		return
	}
	found, err := s.Symbols().Resolve(ctx, *symbols)
	if err != nil {
		log.Print(err)
		return
	}
	var rps []*kprobes.Kretprobe
	for _, l := range found {
		if no, err := path.Match(*except, l.Symbol.Name); !no && err == nil {
			rps = append(rps, probe(l.Symbol.Name, l.Addr))
		}
	}
	if err := s.RegisterKretprobes(ctx, rps); err != nil {
		log.Print("register_fprobe failed: ", err)
		return
	}
	fmt.Println("planted fprobe in", len(rps), "functions")
	<-s.Done() // the process has exited, or a signal has come
	var hits, missed uint64
	for _, rp := range rps {
		hits += rp.Hits()
		missed += rp.NMissed()
	}
	fmt.Printf("%d times hit, %d times missed\n", hits, missed)
}
