package mcp

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/clairun/clai-sandbox/integration/peer"
)

// checkTCPPeer says why the process at the other end of a connection to this machine's own address
// may not call: it is this user's, and in a sandbox. The kernel tells of a connection whose socket
// is at the other end, and /proc who has it open. Of another user's, the token alone decides: that
// user's files and processes are out of reach.
func checkTCPPeer(ours, theirs netip.AddrPort) error {
	socket, uid, err := peerSocket(ours, theirs)
	if err != nil {
		return err
	}
	if uid != os.Getuid() {
		return nil
	}
	// A program that starts another one has what it has open in two processes, until the new one
	// executes its program: that child may be in a sandbox's namespaces already. One look has to
	// find nobody else.
	for look := 1; ; look++ {
		if err = checkHolders("socket:[" + socket + "]"); err == nil || look == holderLooks {
			return err
		}
		time.Sleep(holderPause)
	}
}

const (
	holderLooks = 20
	holderPause = 10 * time.Millisecond
)

// peerSocket finds the other end of a connection in the tables of this network namespace
// (proc_net(5)).
func peerSocket(ours, theirs netip.AddrPort) (socket string, uid int, err error) {
	name := "/proc/self/net/tcp"
	if ours.Addr().Is6() && !ours.Addr().Is4In6() {
		name += "6"
	}
	table, err := os.Open(name)
	if err != nil {
		return "", 0, err
	}
	defer table.Close()
	local, remote := tableAddress(theirs), tableAddress(ours)
	for lines := bufio.NewScanner(table); lines.Scan(); {
		words := strings.Fields(lines.Text())
		if len(words) < 10 || words[1] != local || words[2] != remote || words[9] == "0" {
			continue
		}
		uid, err := strconv.Atoi(words[7])
		return words[9], uid, err
	}
	return "", 0, errors.New("its end of the connection is gone")
}

// tableAddress is an address as those tables write it: words of 32 bits in the machine's order.
func tableAddress(a netip.AddrPort) string {
	bytes := a.Addr().Unmap().AsSlice()
	text := ""
	for ; len(bytes) > 0; bytes = bytes[4:] {
		text += fmt.Sprintf("%08X", binary.NativeEndian.Uint32(bytes))
	}
	return fmt.Sprintf("%s:%04X", text, a.Port())
}

// checkHolders refuses a socket that nobody of this process's namespaces has open, or somebody else
// as well.
func checkHolders(socket string) error {
	list, err := filepath.Glob("/proc/[0-9]*/fd")
	if err != nil {
		return err
	}
	held := false
	for _, dir := range list {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // another user's, or gone
		}
		for _, entry := range entries {
			if target, err := os.Readlink(dir + "/" + entry.Name()); err != nil || target != socket {
				continue
			}
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(dir)))
			if err == nil {
				err = errors.Join(peer.CheckNamespaces(pid), checkNoProxy(pid))
			}
			if err != nil {
				return err
			}
			held = true
			break
		}
	}
	if !held {
		return errors.New("no process that can be seen has its end of the connection open")
	}
	return nil
}

// checkNoProxy refuses a process of this program: it is the proxy of a sandbox's filtered network,
// by a rule that allows our port, and whoever is behind it is in that sandbox.
func checkNoProxy(pid int) error {
	program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return err
	}
	name := filepath.Base(strings.TrimSuffix(program, " (deleted)"))
	if name == "clai-sandbox" || name == "clai-sandboxd" {
		return fmt.Errorf("process %d is the proxy of a sandbox's network", pid)
	}
	return nil
}
