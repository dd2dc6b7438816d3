package symbols_test

import (
	"context"
	"fmt"
	"log"

	"github.com/gokprobe/gokprobe/internal/testprog"
	"github.com/gokprobe/gokprobe/symbols"
)

// Names become addresses, and addresses names again. symbols.Open does it for a process, with its libraries.
func ExampleTable_Resolve() {
	t, err := symbols.OpenFile(testprog.MustBuild("shop"))
	if err != nil {
		log.Fatal(err)
	}
	defer t.Close()
	for _, spec := range []string{"deliver", "price+4"} {
		at, err := t.Resolve(context.Background(), spec)
		if err != nil {
			log.Fatal(err)
		}
		l, ok := t.Lookup(at[0].Addr)
		fmt.Println(l.Symbol.Name, l.Offset, ok)
	}
	_, err = t.Resolve(context.Background(), "delivr")
	fmt.Println(err)
	// Output:
	// deliver 0 true
	// price 4 true
	// unknown symbol: "delivr", did you mean deliver
}

// Debug information tells a function's parameters.
func ExampleTable_Params() {
	t, err := symbols.OpenFile(testprog.MustBuild("shop"))
	if err != nil {
		log.Fatal(err)
	}
	defer t.Close()
	at, err := t.Resolve(context.Background(), "price")
	if err != nil {
		log.Fatal(err)
	}
	params, err := t.Params(at[0].Addr)
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range params {
		fmt.Println(p.Name, p.TypeOf().Name())
	}
	// Output:
	// o const order *
	// each double
}
