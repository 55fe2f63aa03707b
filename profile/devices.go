package profile

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// GPU is the name of all devices of this host that compute for graphics.
const GPU = "gpu"

// maxDevices bounds the names of devices of one profile.
const maxDevices = 32

// A Device is one of the host's that the command may have. Whether it may is decided by what the
// kernel says that it is: see sandbox/device.
type Device struct {
	Name   string // GPU, or a path below /dev
	Origin Origin
}

// ParseDevice reads gpu, kvm or /dev/NAME.
func ParseDevice(text string) (string, error) {
	switch clean := path.Clean(text); {
	case text == GPU:
		return GPU, nil
	case text == "kvm":
		return "/dev/kvm", nil
	case strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) || len(text) > 255:
	case strings.HasPrefix(clean, "/dev/"):
		return clean, nil
	}
	return "", fmt.Errorf("%s is not a device: write gpu, kvm, or its path, as /dev/fuse", shorten(text))
}

// deviceName is one that ParseDevice takes.
type deviceName struct {
	name   string
	origin Origin
}

func (n *deviceName) setPlace(o Origin) { n.origin = o }

func (n *deviceName) UnmarshalText(text []byte) (err error) {
	n.name, err = ParseDevice(string(text))
	return err
}

// resolveDevices lists the devices that the command may have: the configuration's, and the command
// line's behind them.
func (p *Profile) resolveDevices(settings executionConfig, r Request) error {
	add := func(d Device) {
		if !slices.ContainsFunc(p.Devices, func(have Device) bool { return have.Name == d.Name }) {
			p.Devices = append(p.Devices, d)
		}
	}
	for _, text := range r.Devices {
		name, err := ParseDevice(text)
		if err != nil {
			return fmt.Errorf("--device: %w", err)
		}
		add(Device{name, Origin{OriginFlag, "--device " + printable(text)}})
	}
	if list := settings.Sandbox.Devices; list != nil {
		for _, d := range *list {
			add(Device{d.name, d.origin})
		}
	}
	if len(p.Devices) > maxDevices {
		return errors.New("more than " + fmt.Sprint(maxDevices) + " devices")
	}
	return nil
}

// deviceList is for a person.
func deviceList(list []Device) string {
	var names []string
	for _, d := range list {
		names = append(names, d.Name)
	}
	if names == nil {
		return "none"
	}
	return strings.Join(names, ", ")
}

// narrowDevices leaves those that are in a list.
func (p *Profile) narrowDevices(list []deviceName) (took bool) {
	have := len(p.Devices)
	p.Devices = slices.DeleteFunc(p.Devices, func(d Device) bool {
		return !slices.ContainsFunc(list, func(n deviceName) bool { return n.name == d.Name })
	})
	return len(p.Devices) < have
}
