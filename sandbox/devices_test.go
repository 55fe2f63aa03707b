package sandbox

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/device"
)

// machine is a virtual machine of one page: it puts 42 out at a port, and halts.
const machine = `import ctypes, fcntl, mmap, os, struct
kvm = os.open("/dev/kvm", os.O_RDWR)
vm = fcntl.ioctl(kvm, 0xAE01, 0)
page = mmap.mmap(-1, 4096)
page[:5] = b"\xb0\x2a\xe6\x10\xf4"
fcntl.ioctl(vm, 0x4020AE46, struct.pack("IIQQQ", 0, 0, 0x1000, 4096, ctypes.addressof(ctypes.c_char.from_buffer(page))))
cpu = fcntl.ioctl(vm, 0xAE41, 0)
run = mmap.mmap(cpu, fcntl.ioctl(kvm, 0xAE04))
segments = bytearray(312)
fcntl.ioctl(cpu, 0x8138AE83, segments)
segments[0:8] = bytes(8)
segments[12:14] = bytes(2)
fcntl.ioctl(cpu, 0x4138AE84, bytes(segments))
fcntl.ioctl(cpu, 0x4090AE82, struct.pack("16QQQ", *([0] * 16), 0x1000, 2))
fcntl.ioctl(cpu, 0xAE80)
print("out of the machine:", run[struct.unpack_from("Q", run, 40)[0]])`

// withDevice has the command have a device, as a flag would.
func (h *host) withDevice(name string, kind profile.OriginKind) {
	h.profile.Devices = []profile.Device{{Name: name, Origin: profile.Origin{Kind: kind, Source: "--device " + name}}}
}

func TestAProgramUsesADeviceThatIsNamed(t *testing.T) {
	needProgram(t, "python3")
	for _, c := range []struct{ name, script, wants string }{
		{"/dev/kvm", machine, "out of the machine: 42"},
		{"/dev/hwrng", `print(len(open("/dev/hwrng", "rb", 0).read(16)) > 0)`, "True"},
		// That of a tunnel is opened, and asked what it can do. To make an interface takes rights
		// that no sandbox has.
		{"/dev/net/tun", `import fcntl, os, struct
tun = os.open("/dev/net/tun", os.O_RDWR)
print("features", struct.unpack("I", fcntl.ioctl(tun, 0x800454cf, bytes(4)))[0] & 3)`, "features 3"},
		{"/dev/fuse", `import os
os.open("/dev/fuse", os.O_RDWR)
print("open")`, "open"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t)
			if h.run("python3", "-c", c.script).ExitCode == 0 {
				t.Fatal("it worked without the device")
			}
			h.withDevice(c.name, profile.OriginFlag)
			out, err := exec.Command("/usr/bin/python3", "-c", c.script).CombinedOutput()
			if failed := new(exec.ExitError); errors.As(err, &failed) {
				if _, missing := os.Stat(c.name); missing != nil {
					t.Skip("this machine has no ", c.name)
				}
				last := lines(string(out))
				if unix.Access(c.name, unix.R_OK) != nil { // so may whoever is in a sandbox, and is told
					r := h.run("python3", "-c", c.script)
					if r.ExitCode == 0 || len(r.Notices) == 0 || r.Notices[0].Kind != NoticeDevice || !strings.HasPrefix(r.Notices[0].Text, "you may not open "+c.name) {
						t.Errorf("%d, %+v", r.ExitCode, r.Notices)
					}
				}
				t.Skip("it does not work on this machine without a sandbox: ", last[len(last)-1])
			}
			if r := h.run("python3", "-c", c.script); r.ExitCode != 0 || !strings.Contains(r.Out, c.wants) || len(r.Notices) > 0 {
				t.Errorf("%d, %q, %q, %+v", r.ExitCode, r.Out, r.Err, r.Notices)
			}
			_, wait := h.openSession().capture(t, Command{Argv: []string{"python3", "-c", c.script}}) // where all is one rule of Landlock's
			if got, r, err := wait(); err != nil || r.ExitCode != 0 || !strings.Contains(got, c.wants) {
				t.Errorf("in a session: %q, %d, %v", got, r.ExitCode, err)
			}
			h.refused("rm " + c.name)
		})
	}
}

func TestATunnelIsNotMadeInASandbox(t *testing.T) {
	needProgram(t, "python3")
	if err := unix.Access("/dev/net/tun", unix.R_OK); err != nil {
		t.Skip("nobody but root may open /dev/net/tun here, or there is none: ", err)
	}
	const script = `import fcntl, os, struct
tun = os.open("/dev/net/tun", os.O_RDWR)
fcntl.ioctl(tun, 0x400454ca, struct.pack("16sH22x", b"clai-test%d", 2))`
	for _, network := range []profile.Network{profile.NetworkEnabled, profile.NetworkDisabled} {
		h := newHost(t)
		h.withDevice("/dev/net/tun", profile.OriginConfig)
		h.profile.Network = network
		if r := h.run("python3", "-c", script); !strings.Contains(r.Err, "Operation not permitted") {
			t.Errorf("%v: %d, %v, %s", network, r.ExitCode, r.Failure, r.Err)
		}
	}
}

func TestADeviceThatIsNotHadIsTold(t *testing.T) {
	h := newHost(t)
	for _, name := range []string{"/dev/null", "/dev/no-such-device", "/dev"} {
		h.withDevice(name, profile.OriginFlag)
		var refused *SetupError
		if _, err := Build(h.profile, h.tree); !errors.As(err, &refused) || !strings.HasPrefix(refused.Why, "cannot be had in a sandbox: ") {
			t.Errorf("%s: %v", name, err)
		}
		h.withDevice(name, profile.OriginConfig)
		plan := h.build()
		if n := len(plan.Notices); n == 0 || plan.Notices[n-1].Kind != NoticeDevice || plan.Notices[n-1].Path != name {
			t.Errorf("%s: %+v", name, plan.Notices)
		}
		for _, step := range plan.Steps {
			if step.Kind == Device {
				t.Errorf("%s: %+v", name, step)
			}
		}
	}
	if _, err := device.Find(Host{}, profile.GPU); err == nil {
		h.withDevice(profile.GPU, profile.OriginFlag)
		if h.sh("ls /dev/dri /dev/nvidia* /dev/kfd /dev/dxg 2>/dev/null; true") == "" {
			t.Error("a graphics device is not shown")
		}
	} else {
		t.Log("no graphics device is tried: ", err)
	}
}

// What was judged is what is shown, whatever stands there meanwhile.
func TestAnotherDeviceInItsPlaceIsNotShown(t *testing.T) {
	a := &attempt{plan: &Plan{}}
	for _, number := range []uint64{unix.Mkdev(1, 5), 0} {
		if file, err := a.openDevice(Step{Kind: Device, Path: os.DevNull, Source: os.DevNull, number: number}); err == nil {
			file.Close()
			t.Errorf("%d: it was opened", number)
		}
	}
	file, err := a.openDevice(Step{Kind: Device, Path: os.DevNull, Source: os.DevNull, number: unix.Mkdev(1, 3)})
	if err != nil {
		t.Fatal(err)
	}
	file.Close()
}

// Bubblewrap alone shows it too, for a script.
func TestADeviceStandsInTheCommandLine(t *testing.T) {
	plan := Plan{Steps: []Step{{Kind: Device, Path: "/dev/kvm", Source: "/dev/kvm", Access: profile.ReadWrite}}, WorkingDirectory: "/"}
	if line := plan.ShellCommand(Bwrap{Path: "bwrap"}, []string{"true"}); !strings.Contains(line, "--dev-bind /dev/kvm /dev/kvm") {
		t.Error(line)
	}
}
