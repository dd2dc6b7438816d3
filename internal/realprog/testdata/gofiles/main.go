// Gofiles serves the files of the directory that it is started with over HTTP: it prints its address, and ends
// with its input.
package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
)

func serve(w http.ResponseWriter, r *http.Request) {
	f, err := os.Open(filepath.Join(os.Args[1], filepath.Base(r.URL.Path)))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		http.Error(w, err.Error(), http.StatusNotFound)
	case errors.Is(err, fs.ErrPermission):
		http.Error(w, err.Error(), http.StatusForbidden)
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	default:
		_, _ = io.Copy(w, f)
		_ = f.Close()
	}
}

func main() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println("listen:", err)
		os.Exit(1)
	}
	go func() { _ = http.Serve(l, http.HandlerFunc(serve)) }()
	fmt.Println("ready")
	fmt.Println("listens", l.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin)
}
