package sandbox

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/descriptor"
	"github.com/clairun/clai-sandbox/sandbox/device"
)

// devices shows the host's devices that the profile names, where the kernel says that they are
// harmless enough.
func (b *builder) devices() error {
	for _, d := range b.profile.Devices {
		found, err := device.Find(b.tree, d.Name)
		switch {
		case err != nil && d.Origin.Kind == profile.OriginFlag:
			return &SetupError{Path: d.Name, Why: "cannot be had in a sandbox: " + reason(err), Hint: "leave --device out; docs/security.md says which devices can"}
		case err != nil:
			b.notices = append(b.notices, Notice{Kind: NoticeDevice, Path: d.Name,
				Text: fmt.Sprintf("left out: the device %s (%s): %s", printable(d.Name), printable(d.Origin.String()), reason(err))})
		}
		for _, node := range found {
			if slices.ContainsFunc(b.nodes, func(step Step) bool { return step.Path == node.Walk.Real }) {
				continue
			}
			b.nodes = append(b.nodes, Step{Kind: Device, Path: node.Walk.Real, Source: node.Walk.Real, Access: profile.ReadWrite, Origin: d.Origin, number: node.Number})
			b.links = append(b.links, node.Walk.Links...)
		}
	}
	return nil
}

// openDevice opens the very device that was judged, and not what has been put in its place since.
func (a *attempt) openDevice(step Step) (descriptor.File, error) {
	file, err := descriptor.Pin(step.Source)
	var stat unix.Stat_t
	if err == nil {
		if err = unix.Fstat(int(file), &stat); err == nil && (stat.Mode&unix.S_IFMT != unix.S_IFCHR || stat.Rdev != step.number) {
			err = errors.New("another device stands there now")
		}
	}
	if err != nil {
		file.Close()
		return 0, &SetupError{Path: step.Source, Why: "changed while the sandbox was made: " + reason(err), Hint: "try again"}
	}
	if unix.Access(fmt.Sprintf("/proc/self/fd/%d", file), unix.R_OK) != nil {
		a.plan.notice(NoticeDevice, step.Path, fmt.Sprintf("you may not open %s, with or without a sandbox (it belongs to user %d and group %d, mode %03o); often this mends it: sudo usermod -aG GROUP $USER, and a new login",
			printable(step.Path), stat.Uid, stat.Gid, stat.Mode&0o777))
	}
	return file, nil
}

// OffersDevice reports whether a person may let a command have a device of this machine's.
func OffersDevice(host Tree, path string) bool {
	_, err := device.Find(host, path)
	return err == nil
}
