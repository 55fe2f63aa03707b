package process

import (
	"fmt"
	"os"

	"github.com/syndtr/gocapability/capability"
	"golang.org/x/sys/unix"
)

// Capabilities names what this process may do beyond its user, in the kernel's terms ("sys_admin").
// None of it reaches a command: bwrap drops everything, and DropCapabilities what bwrap would not
// start with.
func Capabilities() ([]string, error) {
	caps, err := capability.NewPid2(0)
	if err == nil {
		err = caps.Load()
	}
	if err != nil {
		return nil, fmt.Errorf("read capabilities: %w", err)
	}
	var names []string
	for _, c := range capability.List() {
		if caps.Get(capability.PERMITTED, c) {
			names = append(names, c.String())
		}
	}
	return names, nil
}

// DropCapabilities takes this thread's capabilities away where its user is not root: bwrap refuses
// to start with any ("Unexpected capabilities but not setuid"). Root needs them to set the sandbox
// up, and bwrap drops them before the command.
func DropCapabilities() error {
	if held, err := Permitted(); os.Getuid() == 0 || err == nil && held == 0 {
		return nil
	}
	caps, err := capability.NewPid2(0)
	if err == nil {
		err = caps.Load()
	}
	if err == nil {
		caps.Clear(capability.CAPS | capability.AMBS)
		err = caps.Apply(capability.CAPS | capability.AMBS)
	}
	if err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	return nil
}

// Permitted asks the kernel directly for this thread's capabilities: most callers have none, and
// this is on every command's way.
func Permitted() (uint64, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return 0, err
	}
	return uint64(data[1].Permitted)<<32 | uint64(data[0].Permitted), nil
}
