package program_test

import (
	"context"
	"fmt"
	"log"

	"github.com/gokprobe/gokprobe/arch/amd64"
	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/kprobes"
	"github.com/gokprobe/gokprobe/program"
)

// A program that a probe runs in the target: the calls whose first argument is above 2, by that.
func ExampleBuild() {
	order := program.Reg("rdi")
	histogram := program.Map{Kind: program.Log2}
	p, err := program.Build("orders", 0, amd64.Arch{}.NewRegs().Names(), program.Compare(order, program.Greater, program.Const(2)),
		program.AddToHistogram{Map: histogram, Value: order})
	if err != nil {
		log.Fatal(err)
	}
	s, err := kprobes.Launch(context.Background(), kprobes.Command{Path: testprog.MustBuild("shop"), Args: []string{"shop"}}, kprobes.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	kp := &kprobes.Kprobe{SymbolName: "deliver", Program: p}
	if err := s.RegisterKprobe(kp); err != nil {
		log.Fatal(err)
	}
	if err := s.Start(); err != nil {
		log.Fatal(err)
	}
	<-s.Done()
	for cell, n := range kp.Values(0) {
		if n > 0 {
			least, greatest := histogram.Bucket(cell)
			fmt.Println(least, "to", greatest, "-", n)
		}
	}
	// Output:
	// 2 to 3 - 1
	// 4 to 7 - 4
	// 8 to 15 - 2
}
