package mcp

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// A client's child that has the client's connection open until it executes its program does not
// make the client one of a sandbox; one that keeps it does.
func TestAClientThatStartsAnotherProgramIsLetIn(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	address := func(a net.Addr) netip.AddrPort { return netip.MustParseAddrPort(a.String()) }
	file, err := client.(*net.TCPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	for held, refused := range map[string]bool{"0.05": false, "30": true} {
		child := exec.Command("sleep", held)
		child.ExtraFiles = []*os.File{file}
		child.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}
		if err := child.Start(); err != nil {
			t.Skip("no user namespaces: ", err)
		}
		err := checkTCPPeer(address(server.LocalAddr()), address(server.RemoteAddr()))
		child.Process.Kill()
		child.Wait()
		if (err != nil) != refused || refused && !strings.Contains(err.Error(), "another user namespace") {
			t.Errorf("held for %s s: %v", held, err)
		}
	}
}
