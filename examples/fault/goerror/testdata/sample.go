// Config reads its configuration file three times, and goes on with what it has if that fails.
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

func main() {
	greeting := "the default"
	for range 3 {
		text, err := os.ReadFile(os.Args[1])
		switch {
		case errors.Is(err, fs.ErrNotExist):
			fmt.Println("no configuration:", err)
		case err != nil:
			fmt.Println("the configuration can't be read:", err)
		default:
			greeting = string(text)
		}
		fmt.Println("greeting:", greeting)
	}
}
