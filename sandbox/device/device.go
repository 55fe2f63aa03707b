// Package device says which devices of the host a person may let a command have. What a node is,
// the kernel says, by its number and by what /sys has for that; what it is called says nothing.
// What is not in the table is refused.
package device

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/profile/text"
	"github.com/clairun/clai-sandbox/sandbox/links"
)

// A Node is one device, as the host has it.
type Node struct {
	Walk   links.Walk
	Number uint64 // which device it is, as in stat(2)'s rdev
}

// ErrNone means that the host has no such device.
var ErrNone = errors.New("this machine has none")

// devices are where people look for them.
const devices = "/dev"

// A class is what the kernel calls devices of one kind.
type class struct {
	subsystem string                // the name of the class or bus in /sys
	name      func() *regexp.Regexp // the kernel's own name for the node, below /dev
	graphics  bool                  // profile.GPU means it
}

// allowed are those that compute, count or connect for who has them, and by which nobody reaches
// what is the machine's or another's. docs/security.md says what each opens up.
var allowed = []class{
	{"misc", named(`^(kvm|fuse|net/tun|vhost-net|vhost-vsock|hwrng)$`), false},
	{"misc", named(`^dxg$`), true}, // the graphics of Windows, in its Linux
	{"drm", named(`^dri/renderD[0-9]+$`), true},
	{"kfd", named(`^kfd$`), true},
	{"accel", named(`^accel/accel[0-9]+$`), false},
}

// named compiles an expression when it is used first: few commands ask for a device.
func named(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}

// proprietary are the drivers, as /proc/devices has them, of devices for which the kernel has
// nothing in /sys.
var proprietary = []string{"nvidia", "nvidia-frontend", "nvidiactl", "nvidia-modeset", "nvidia-uvm"}

// reasons are why others are refused, by their subsystem.
var reasons = map[string]string{
	"mem":          "it leads to the machine's memory, or is one that every sandbox has already",
	"tty":          "it is a terminal, where a command could type for the person or read what is typed",
	"vc":           "it is the machine's screen",
	"vtconsole":    "it is the machine's screen",
	"input":        "it tells what is typed on this machine, or types",
	"hidraw":       "it leads past the kernel to keyboards and security keys",
	"sound":        "it has the microphone",
	"video4linux":  "it has the camera",
	"graphics":     "it is the machine's screen",
	"usb":          "it leads past the kernel to whatever is plugged in",
	"usbmisc":      "it leads past the kernel to whatever is plugged in",
	"vfio":         "it hands over the machine's hardware",
	"iommu":        "it hands over the machine's hardware",
	"scsi_generic": "it leads past the file systems to a disk",
	"bsg":          "it leads past the file systems to a disk",
	"nvme":         "it leads past the file systems to a disk",
	"drm":          "it controls the screen; a render node, dri/renderD128, computes without",
	"cpuid":        "it leads to the processor's registers",
	"msr":          "it leads to the processor's registers",
	"tpm":          "it has the machine's keys",
	"tpmrm":        "it has the machine's keys",
	"watchdog":     "it restarts the machine",
}

// Find returns what a name of profile.ParseDevice's means on this host, the graphics devices for
// profile.GPU. The error is, or wraps, ErrNone where there is nothing, and else says what is wrong
// with what is there.
func Find(tree links.Tree, name string) ([]Node, error) {
	if name != profile.GPU {
		node, _, err := judge(tree, name)
		if err != nil {
			return nil, err
		}
		return []Node{node}, nil
	}
	var found []Node
	for _, dir := range []string{devices, devices + "/dri"} {
		entries, err := tree.ReadDir(dir)
		if err != nil {
			continue
		}
		slices.SortFunc(entries, func(a, b links.Entry) int { return strings.Compare(a.Name, b.Name) })
		for _, entry := range entries {
			if entry.Dir || entry.Link {
				continue
			}
			if node, graphics, err := judge(tree, links.Join(dir, entry.Name)); err == nil && graphics {
				found = append(found, node)
			}
		}
	}
	if found == nil {
		return nil, fmt.Errorf("%w: there is no /dev/dri/renderD128, nor one of NVIDIA's, and no /dev/kfd", ErrNone)
	}
	return found, nil
}

// judge looks at what stands at a path below /dev.
func judge(tree links.Tree, name string) (node Node, graphics bool, err error) {
	w, err := links.Follow(tree, name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return node, false, ErrNone
	case err != nil:
		return node, false, err
	}
	for _, link := range w.Links {
		if !links.Within(link.Path, devices) {
			return node, false, fmt.Errorf("it leads out of %s, through %s", devices, text.Name(link.Path))
		}
	}
	mode := w.Object.Mode
	switch {
	case !links.Within(w.Real, devices):
		return node, false, fmt.Errorf("it leads out of %s, to %s", devices, text.Name(w.Real))
	case mode&fs.ModeCharDevice != 0:
	case mode&fs.ModeDevice != 0:
		return node, false, errors.New("it is a disk, or a part of one, and whoever has it has all files on it")
	case mode.IsDir():
		return node, false, errors.New("it is a directory; name a device in it")
	default:
		return node, false, errors.New("it is no device")
	}
	node = Node{w, w.Object.Rdev}
	graphics, why := kernelSays(tree, node.Number)
	if why != "" {
		return node, false, errors.New(why)
	}
	return node, graphics, nil
}

// kernelSays whether the device with a number is one that may be had; if not, why.
func kernelSays(tree links.Tree, number uint64) (graphics bool, why string) {
	major, minor := unix.Major(number), unix.Minor(number)
	place := fmt.Sprintf("/sys/dev/char/%d:%d", major, minor)
	w, err := links.Follow(tree, place)
	if errors.Is(err, fs.ErrNotExist) {
		if slices.Contains(proprietary, driver(tree, major)) {
			return true, ""
		}
		return false, fmt.Sprintf("the kernel does not say what device %d:%d is", major, minor)
	}
	var subsystem, event string
	if err == nil {
		subsystem, err = tree.Readlink(links.Join(w.Real, "subsystem"))
	}
	if err == nil {
		event, err = tree.ReadFile(links.Join(w.Real, "uevent"), 4096)
	}
	if err != nil {
		return false, fmt.Sprintf("the kernel does not say what device %d:%d is: %v", major, minor, err)
	}
	subsystem, called := path.Base(subsystem), ""
	for _, line := range strings.Split(event, "\n") {
		if value, is := strings.CutPrefix(line, "DEVNAME="); is {
			called = strings.TrimPrefix(value, devices+"/")
		}
	}
	for _, c := range allowed {
		if c.subsystem == subsystem && c.name().MatchString(called) {
			return c.graphics, ""
		}
	}
	if why, is := reasons[subsystem]; is {
		return false, fmt.Sprintf("to the kernel it is %s: %s", text.Name(called), why)
	}
	return false, fmt.Sprintf("to the kernel it is %s (%s), which is not one of kvm, fuse, net/tun, vhost-net, vhost-vsock, hwrng, accel, and those for graphics", text.Name(called), text.Name(subsystem))
}

// driver is who has a major number.
func driver(tree links.Tree, major uint32) string {
	list, err := tree.ReadFile("/proc/devices", 16<<10)
	if err != nil {
		return ""
	}
	characters, _, _ := strings.Cut(list, "\nBlock devices:")
	for _, line := range strings.Split(characters, "\n") {
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] == fmt.Sprint(major) {
			return fields[1]
		}
	}
	return ""
}
