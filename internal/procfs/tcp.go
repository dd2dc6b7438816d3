package procfs

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
)

// ErrNoConnection tells that the kernel lists no such connection as established.
var ErrNoConnection = errors.New("the connection is not established any more")

// ConnectionOwner is the user whose socket, at local, is connected by TCP with remote, on this machine. A socket that its process has closed has no owner, nor has
// one that its process closes for sending: the kernel tells root's number of those.
func ConnectionOwner(local, remote netip.AddrPort) (uid int, err error) {
	file := "/proc/self/net/tcp"
	if local.Addr().Is6() {
		file += "6"
	}
	return load(file, func(r io.Reader) (int, error) { return parseConnections(r, local, remote) })
}

// parseConnections finds a connection in a list of the kernel's (proc_net_tcp.txt).
func parseConnections(r io.Reader, local, remote netip.AddrPort) (uid int, err error) {
	const established = "01"
	want := [][]byte{socketName(local), socketName(remote), []byte(established)}
	for line, err := range shortLines(r) {
		if err != nil {
			return 0, err
		}
		// sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode
		f := bytes.Fields(line)
		if len(f) < 10 || !bytes.Equal(f[1], want[0]) || !bytes.Equal(f[2], want[1]) || !bytes.Equal(f[3], want[2]) || string(f[9]) == "0" {
			continue
		}
		if uid, err := strconv.ParseUint(string(f[7]), 10, 31); err == nil {
			return int(uid), nil
		}
		return 0, fmt.Errorf("a user has the number %q", f[7])
	}
	return 0, ErrNoConnection
}

// socketName is an address and port as the kernel prints them: words of the address in the processor's byte order, which is little-endian here.
func socketName(a netip.AddrPort) []byte {
	raw := a.Addr().AsSlice()
	for i := 0; i+4 <= len(raw); i += 4 {
		binary.BigEndian.PutUint32(raw[i:], binary.NativeEndian.Uint32(raw[i:]))
	}
	return fmt.Appendf(nil, "%s:%04X", bytes.ToUpper([]byte(hex.EncodeToString(raw))), a.Port())
}
