package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gokprobe/gokprobe/internal/escape"
	"github.com/gokprobe/gokprobe/internal/procfs"
)

// mostClients is how many are served at once.
const mostClients = 16

// listenDAP serves clients at an address until ctx is done.
func listenDAP(ctx context.Context, std stdio, address string) error {
	l, err := openListener(address)
	if err != nil {
		return err
	}
	std.warn("listening at %s", escape.Line(l.Addr().String()))
	std.flush()
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	var all sync.WaitGroup
	defer all.Wait()
	free := make(chan struct{}, mostClients)
	for {
		select {
		case free <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		conn, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("cannot wait for clients: %w", err)
		}
		all.Add(1)
		go func() {
			defer func() { _ = conn.Close(); <-free; all.Done() }()
			if err := admitted(conn); err != nil {
				std.warn("a client was sent away: %v", err)
			} else if err := std.adapter().Serve(ctx, conn); err != nil {
				std.warn("%v", err)
			}
		}()
	}
}

// openListener opens unix:PATH, which only this user may open, or a loopback address.
func openListener(address string) (net.Listener, error) {
	if name, ok := strings.CutPrefix(address, "unix:"); ok {
		if name == "" || name[0] == '@' { // which would be no file, and have no owner
			return nil, usagef("-listen unix: has no path: write unix:PATH")
		}
		defer unix.Umask(unix.Umask(0o177))
		l, err := net.Listen("unix", name)
		if errors.Is(err, unix.EADDRINUSE) {
			return nil, usagef("cannot listen at %s: there is a file of that name; remove it if nobody listens there", escape.Quote(name))
		}
		return l, err
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, usagef("-listen %s is no address: write 127.0.0.1:PORT, or unix:PATH", escape.Quote(address))
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	if ip, err := netip.ParseAddr(host); err != nil || !ip.IsLoopback() {
		return nil, usagef("-listen %s is not a loopback address: everybody who reaches it could look into this user's processes; write 127.0.0.1:PORT, or unix:PATH", escape.Quote(address))
	}
	return net.Listen("tcp", net.JoinHostPort(host, port))
}

// peerOf is the user whose process has connected, as the kernel says.
func peerOf(c net.Conn) (uid int, err error) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return procfs.ConnectionOwner(addrPort(c.RemoteAddr()), addrPort(c.LocalAddr()))
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, err
	}
	if credErr != nil {
		return 0, credErr
	}
	return int(cred.Uid), nil
}

func addrPort(a net.Addr) netip.AddrPort {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	at := t.AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}

// admitted returns an error if another user has connected.
func admitted(c net.Conn) error {
	uid, err := peerOf(c)
	if err != nil {
		return fmt.Errorf("it can't be told whose it is: %w", err)
	}
	if owner := os.Geteuid(); uid != owner {
		return fmt.Errorf("it is of user %d, and only user %d is served", uid, owner)
	}
	return nil
}
