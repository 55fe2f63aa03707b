package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/clairun/clai-sandbox/profile"
)

// findBus returns the socket of the caller's session bus, resolved: the first address that leads to one of the caller's
// own, else the usual place. The error says why there is none; fs.ErrNotExist if this host has no session bus.
func findBus(tree Tree, p profile.Profile) (string, error) {
	var candidates []string
	var abstract bool
	var addresses []BusAddress
	var err error
	if p.SessionBusAddress != "" {
		if addresses, err = ParseBusAddress(p.SessionBusAddress); err != nil {
			return "", err
		}
	}
	for _, a := range addresses {
		server, _ := a.server(p.RuntimeDirectory)
		if server.Path != "" {
			candidates = append(candidates, server.Path)
		}
		abstract = abstract || server.Abstract != ""
	}
	if p.RuntimeDirectory != "" && p.SessionBusAddress == "" {
		candidates = append(candidates, runtimeBus(p.RuntimeDirectory))
	}
	for _, path := range candidates {
		w, walkErr := follow(tree, path)
		switch {
		case walkErr != nil:
			err = walkErr
		case w.Object.Mode&fs.ModeSocket == 0:
			err = fmt.Errorf("%s: not a socket", printable(path))
		case int(w.Object.UID) != os.Getuid():
			err = fmt.Errorf("%s: belongs to another user", printable(path))
		default:
			return w.Real, nil
		}
	}
	switch {
	case err != nil && !errors.Is(err, syscall.ENOENT):
		return "", err
	case abstract:
		return "", errors.New("it is an abstract socket, which cannot be shown")
	}
	return "", fs.ErrNotExist
}

// insideBus is where the bus is inside, whatever it is called outside.
const insideBus = "/run/clai-sandbox/bus"

const busVariable = "DBUS_SESSION_BUS_ADDRESS"

// sessionBus shows the session bus as far as the profile says.
func (b *builder) sessionBus() {
	if b.profile.SessionBus != profile.SessionBusAllow {
		return // a filtered one needs a filter, and until there is one it shows nothing
	}
	socket, err := findBus(b.tree, b.profile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		b.notice(NoticeSessionBus, "no session bus inside: "+printable(err.Error()))
	default:
		b.layers.put(Step{Kind: Bind, Path: insideBus, Source: socket, Access: profile.ReadOnly, Origin: baseline, Pinned: true})
		b.busAddress = "unix:path=" + insideBus
		b.notice(NoticeSessionBus, "the session bus is open to the command: through it, programs can be started outside the sandbox")
	}
}
