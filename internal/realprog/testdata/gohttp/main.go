// Gohttp is a small HTTP server: it prints its address, and ends with its input. Each line of it is a question that is answered once no connection is open.
package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"sort"
	"strconv"
	"sync"
)

type answer struct {
	N      int               `json:"n"`
	Primes []int             `json:"primes"`
	Sum    string            `json:"sum"`
	Deep   int               `json:"deep"`
	Names  map[string]string `json:"names"`
}

func handler(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.Atoi(r.URL.Query().Get("n"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	body, _ := io.ReadAll(r.Body)
	a := answer{N: n, Primes: primes(n), Deep: deep(n/8, [128]int{}), Names: map[string]string{}}
	a.Sum = fmt.Sprintf("%x", sha256.Sum256(body))
	for _, p := range a.Primes {
		a.Names[strconv.Itoa(p)] = strconv.FormatInt(int64(p), 2)
	}
	if n%50 == 0 {
		runtime.GC()
	}
	if n%97 == 96 {
		panic(http.ErrAbortHandler) // the server recovers; the client sees a closed connection
	}
	_ = json.NewEncoder(w).Encode(a)
}

//go:noinline
func primes(n int) []int {
	var found []int
	for c := 2; c < n; c++ {
		i := sort.Search(len(found), func(i int) bool { return found[i]*found[i] > c })
		prime := true
		for _, p := range found[:i] {
			prime = prime && c%p != 0
		}
		if prime {
			found = append(found, c)
		}
	}
	return found
}

// deep makes the stack grow, and so be copied.
//
//go:noinline
func deep(n int, pad [128]int) int {
	if n == 0 {
		return pad[0]
	}
	pad[n%128]++
	return deep(n-1, pad) + pad[n%128]
}

// counter counts the connections that are open. The server closes one some time after its client has seen the answer: 500 ms, where it has not read all of the request.
type counter struct {
	net.Listener
	open sync.WaitGroup
}

func (c *counter) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c.open.Add(1)
	return &counted{TCPConn: conn.(*net.TCPConn), closed: sync.OnceFunc(c.open.Done)}, nil
}

type counted struct {
	*net.TCPConn
	closed func()
}

func (c *counted) Close() error {
	defer c.closed()
	return c.TCPConn.Close()
}

func main() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/work", handler)
	counted := &counter{Listener: l}
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			counted.open.Wait()
			fmt.Println("idle")
		}
		os.Exit(0)
	}()
	fmt.Println("ready")
	fmt.Println("listens", l.Addr())
	_ = http.Serve(counted, mux)
}
