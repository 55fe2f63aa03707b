package device

import (
	"errors"
	"strings"
	"testing"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/links/linkstest"
)

// kernel is what /sys and /proc say of some devices.
var kernel = []string{
	"/sys/dev/char/10:232 -> ../../devices/virtual/misc/kvm", "/sys/devices/virtual/misc/kvm/subsystem -> ../../../../class/misc",
	"/sys/devices/virtual/misc/kvm/uevent = MAJOR=10\nMINOR=232\nDEVNAME=kvm\n",
	"/sys/dev/char/10:200 -> ../../devices/virtual/misc/tun", "/sys/devices/virtual/misc/tun/subsystem -> ../../../../class/misc",
	"/sys/devices/virtual/misc/tun/uevent = DEVNAME=net/tun\n",
	"/sys/dev/char/10:237 -> ../../devices/virtual/misc/loop-control", "/sys/devices/virtual/misc/loop-control/subsystem -> ../../../../class/misc",
	"/sys/devices/virtual/misc/loop-control/uevent = DEVNAME=loop-control\n",
	"/sys/dev/char/10:223 -> ../../devices/virtual/misc/uinput", "/sys/devices/virtual/misc/uinput/subsystem -> ../../../../class/misc",
	"/sys/devices/virtual/misc/uinput/uevent = DEVNAME=uinput\n",
	"/sys/dev/char/1:1 -> ../../devices/virtual/mem/mem", "/sys/devices/virtual/mem/mem/subsystem -> ../../../../class/mem", "/sys/devices/virtual/mem/mem/uevent = DEVNAME=mem\n",
	"/sys/dev/char/226:128 -> ../../devices/pci/drm/renderD128", "/sys/devices/pci/drm/renderD128/subsystem -> ../../../../class/drm",
	"/sys/devices/pci/drm/renderD128/uevent = DEVNAME=dri/renderD128\nDEVTYPE=drm_minor\n",
	"/sys/dev/char/226:0 -> ../../devices/pci/drm/card0", "/sys/devices/pci/drm/card0/subsystem -> ../../../../class/drm", "/sys/devices/pci/drm/card0/uevent = DEVNAME=dri/card0\n",
	"/sys/dev/char/116:2 -> ../../devices/pci/sound/pcm", "/sys/devices/pci/sound/pcm/subsystem -> ../../../../class/sound", "/sys/devices/pci/sound/pcm/uevent = DEVNAME=snd/pcmC0D0c\n",
	"/sys/dev/char/4:1 -> ../../devices/virtual/tty/tty1", "/sys/devices/virtual/tty/tty1/subsystem -> ../../../../class/tty", "/sys/devices/virtual/tty/tty1/uevent = DEVNAME=tty1\n",
	"/sys/dev/char/13:64 -> ../../devices/input/event0", "/sys/devices/input/event0/subsystem -> ../../../../class/input", "/sys/devices/input/event0/uevent = DEVNAME=input/event0\n",
	"/sys/dev/char/10:99 -> ../../devices/silent/", "/sys/devices/silent/",
	"/proc/devices = Character devices:\n  1 mem\n195 nvidia-frontend\n510 nvidia-uvm\n511 nvidia-caps\n\nBlock devices:\n  8 sd\n236 nvidia-uvm\n",
}

func TestADeviceIsWhatTheKernelSays(t *testing.T) {
	for _, c := range []struct {
		name, asked, want string // want: the paths, or a part of why not
		lines             []string
	}{
		{"as it is called", "/dev/kvm", "/dev/kvm", []string{"/dev/kvm c 10:232"}},
		{"in a directory", "/dev/net/tun", "/dev/net/tun", []string{"/dev/net/tun c 10:200"}},
		{"under another name", "/dev/thing", "/dev/thing", []string{"/dev/thing c 10:232"}},
		{"through a link", "/dev/by-id/vm", "/dev/kvm", []string{"/dev/kvm c 10:232", "/dev/by-id/vm -> ../kvm"}},
		{"another's number under its name", "/dev/kvm", "it leads to the machine's memory", []string{"/dev/kvm c 1:1"}},
		{"a disk under its name", "/dev/kvm", "it is a disk", []string{"/dev/kvm b 10:232"}},
		{"a file under its name", "/dev/kvm", "it is no device", []string{"/dev/kvm"}},
		{"a directory", "/dev/net", "it is a directory", []string{"/dev/net/tun c 10:200"}},
		{"a link out", "/dev/kvm", "it leads out of /dev, to /home/me/node", []string{"/dev/kvm -> /home/me/node", "/home/me/node c 10:232"}},
		{"a link out and in again", "/dev/kvm", "it leads out of /dev, through /home/me/in", []string{"/dev/kvm -> /home/me/in", "/home/me/in -> /dev/x", "/dev/x c 10:232"}},
		{"none", "/dev/kvm", "this machine has none", nil},
		{"no directory", "/dev/net/tun", "this machine has none", nil},
		{"memory", "/dev/mem", "it leads to the machine's memory", []string{"/dev/mem c 1:1"}},
		{"loop devices", "/dev/loop-control", "loop-control (misc), which is not one of", []string{"/dev/loop-control c 10:237"}},
		{"who types", "/dev/uinput", "uinput (misc), which is not one of", []string{"/dev/uinput c 10:223"}},
		{"who listens", "/dev/snd/pcmC0D0c", "it has the microphone", []string{"/dev/snd/pcmC0D0c c 116:2"}},
		{"a terminal", "/dev/tty1", "it is a terminal", []string{"/dev/tty1 c 4:1"}},
		{"a keyboard", "/dev/input/event0", "it tells what is typed", []string{"/dev/input/event0 c 13:64"}},
		{"a screen", "/dev/dri/card0", "it controls the screen", []string{"/dev/dri/card0 c 226:0"}},
		{"without a word in /sys", "/dev/kvm", "the kernel does not say what device 10:98 is", []string{"/dev/kvm c 10:98"}},
		{"with half a word in /sys", "/dev/kvm", "the kernel does not say what device 10:99 is", []string{"/dev/kvm c 10:99"}},
		{"a driver without /sys", "/dev/nvidia0", "/dev/nvidia0", []string{"/dev/nvidia0 c 195:0"}},
		{"another of its", "/dev/nvidia-caps/nvidia-cap1", "the kernel does not say", []string{"/dev/nvidia-caps/nvidia-cap1 c 511:1"}},
		{"its number among disks", "/dev/nvidia9", "the kernel does not say", []string{"/dev/nvidia9 c 236:0"}},
		{"for graphics", profile.GPU, "/dev/nvidia-uvm /dev/nvidia0 /dev/dri/renderD128", []string{"/dev/dri/renderD128 c 226:128", "/dev/dri/card0 c 226:0", "/dev/nvidia0 c 195:0",
			"/dev/nvidia-uvm c 510:0", "/dev/kvm c 10:232", "/dev/dri/by-path -> renderD128"}},
		{"for graphics, where there is none", profile.GPU, "there is no /dev/dri/renderD128", []string{"/dev/dri/card0 c 226:0", "/dev/kvm c 10:232"}},
	} {
		found, err := Find(linkstest.New(append(c.lines, kernel...)...), c.asked)
		var paths []string
		for _, node := range found {
			paths = append(paths, node.Walk.Real)
		}
		got := strings.Join(paths, " ")
		if err == nil && got != c.want || err != nil && (!strings.Contains(err.Error(), c.want) || got != "") {
			t.Errorf("%s: %s, %v, want %s", c.name, got, err, c.want)
		}
		if none := strings.Contains(c.name, "none") || strings.Contains(c.name, "no directory"); errors.Is(err, ErrNone) != none {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
