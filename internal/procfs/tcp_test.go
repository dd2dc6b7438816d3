package procfs

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
)

// TestOnlyEstablishedConnectionsHaveOwners: of others the kernel tells root's number.
func TestOnlyEstablishedConnectionsHaveOwners(t *testing.T) {
	const list = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1267 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 111 1 0000000000000000 100 0 0 10 0
   1: 0100007F:1267 0100007F:0003 01 00000000:00000000 00:00000000 00000000     0        0 112 1 0000000000000000 100 0 0 10 0
   2: 0100007F:0003 0100007F:1267 01 00000000:00000000 00:00000000 00000000  1000        0 113 1 0000000000000000 100 0 0 10 0
   3: 0100007F:0004 0100007F:1267 05 00000000:00000000 00:00000000 00000000     0        0 0 1 0000000000000000 100 0 0 10 0
   4: 0100007F:0005 0100007F:1267 06 00000000:00000000 00:00000000 00000000     0        0 0 3 0000000000000000
   5: 0100007F:0006 0100007F:1267 01 00000000:00000000 00:00000000 00000000     0        0 0 3 0000000000000000
`
	ours := netip.MustParseAddrPort("127.0.0.1:4711")
	for port, want := range map[string]int{"3": 1000, "4": -1, "5": -1, "6": -1, "7": -1} {
		uid, err := parseConnections(strings.NewReader(list), netip.MustParseAddrPort("127.0.0.1:"+port), ours)
		if want < 0 && !errors.Is(err, ErrNoConnection) || want >= 0 && (err != nil || uid != want) {
			t.Errorf("port %s: user %d, %v", port, uid, err)
		}
	}
}

// TestConnectionsOfOursAreOurs, as the kernel lists them.
func TestConnectionsOfOursAreOurs(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		at := func(a net.Addr) netip.AddrPort { return a.(*net.TCPAddr).AddrPort() }
		if uid, err := ConnectionOwner(at(c.LocalAddr()), at(c.RemoteAddr())); err != nil || uid != os.Geteuid() {
			t.Errorf("%s: user %d, %v", address, uid, err)
		}
	}
}
