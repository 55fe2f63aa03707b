package sandbox

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/process"
)

// The session bus is how a desktop's programs speak to one another, and it starts programs: whoever speaks to it freely
// is not in a sandbox. A command gets a socket of the launcher's in its place, and xdg-dbus-proxy behind that lets
// through a few calls to a few names. Nothing is started before something inside connects.
//
// What answers is as it is: org.freedesktop.secrets hands out every unlocked secret.

// A Bus is what a plan lets a command reach of the session bus.
type Bus struct {
	// Place is the socket inside; empty: nothing is reachable, and Why says why.
	Place string
	Why   string

	Servers []BusServer // the host's; the first that answers is used
	Names   []string    // what a filtered bus lets through
	Proxy   string      // xdg-dbus-proxy; empty: nothing is filtered
	// Directories that no sandbox shows: the launcher's socket stands in the first that will do.
	Directories []string
}

const (
	// busPlace is where the socket stands inside: on the sandbox's own root, since no grant shows anything of /run.
	busPlace = "/run/clai-sandbox/bus"

	busVariable = "DBUS_SESSION_BUS_ADDRESS"
	proxyName   = "xdg-dbus-proxy"

	whyNoBus       = "this host has no session bus"
	whyBusWithheld = "withheld"
	whyNoBusProxy  = "xdg-dbus-proxy, which filters it, is not installed"
	whyNoBusPlace  = "/run is a symbolic link here"
	whyNoBusNames  = "no name is let through"
	hintProxy      = "install xdg-dbus-proxy: apt, dnf, pacman, zypper and apk all call it so"
	noticeBusOpen  = "the session bus is open to the command: it can start programs outside the sandbox"
)

// sessionBus decides what the command reaches of the caller's session bus. It comes after the grants.
func (b *builder) sessionBus() Bus {
	servers, err := b.busServers()
	bus := b.chooseBus(servers, err)
	if bus.Place == "" || bus.Proxy != "" {
		b.coverBus(servers)
	}
	if bus.Place != "" {
		step := Step{Kind: Socket, Path: bus.Place, Access: profile.ReadOnly, Origin: baseline}
		if bus.direct() {
			step.Source, step.Pinned = bus.Servers[0].Path, true
		}
		b.layers.put(step)
	}
	return bus
}

// chooseBus joins what the profile allows with what the host has.
func (b *builder) chooseBus(servers []BusServer, err error) Bus {
	mode := b.profile.SessionBus
	bus := Bus{Servers: servers, Place: busPlace}
	tell := func(why, hint string) Bus {
		b.busNotice("", "no session bus for the command: "+why+hint)
		return Bus{Why: why}
	}
	switch {
	case mode != profile.SessionBusFiltered && mode != profile.SessionBusAllow:
		return Bus{Why: whyBusWithheld}
	case err != nil:
		return tell(err.Error(), "")
	case len(servers) == 0:
		return Bus{Why: whyNoBus}
	case slices.ContainsFunc(b.links, func(link Link) bool { return within(busPlace, link.Path) }):
		return tell(whyNoBusPlace, "")
	}
	bus.Directories = b.busDirectories()
	if mode == profile.SessionBusAllow {
		b.busNotice("", noticeBusOpen)
		return bus
	}
	if bus.Names = b.busNames(); len(bus.Names) == 0 {
		return Bus{Why: whyNoBusNames}
	}
	if bus.Proxy = b.findProxy(); bus.Proxy == "" {
		return tell(whyNoBusProxy, "; "+hintProxy)
	}
	return bus
}

func (b *builder) busNotice(path, text string) {
	b.notices = append(b.notices, Notice{Kind: NoticeSessionBus, Path: path, Text: text})
}

// busDirectories are where the launcher's socket may stand on the host: places that no sandbox shows. The first two are in
// memory, where it costs a fifth of what it does on a disk.
func (b *builder) busDirectories() []string {
	var list []string
	for _, own := range b.own {
		if run := b.profile.RuntimeDirectory; run != "" && within(own, filepath.Clean(run)) {
			list = append(list, own)
		}
	}
	return append(append(list, "/dev/shm"), b.own...)
}

// direct reports whether the host's socket itself stands inside. That needs an open bus and one server with a path.
func (bus Bus) direct() bool {
	return bus.Proxy == "" && len(bus.Servers) == 1 && bus.Servers[0].Path != ""
}

// busServers are the sockets that the caller's address leads to, as far as they are there and the caller's: another user's
// would be that user's bus, who could answer for the secret service. The error says why an address leads nowhere; that
// there simply is no bus is none.
func (b *builder) busServers() ([]BusServer, error) {
	candidates, failure := b.busCandidates()
	var servers []BusServer
	for _, server := range candidates {
		if server.Path == "" {
			servers = append(servers, server) // whose it is shows when it is connected to
			continue
		}
		w, err := follow(b.tree, server.Path)
		switch {
		case errors.Is(err, syscall.ENOENT):
		case err != nil:
			failure = err
		case w.Object.Mode.Type() != fs.ModeSocket:
			failure = errors.New(printable(server.Path) + ": not a socket")
		case int(w.Object.UID) != os.Getuid():
			failure = errors.New(printable(server.Path) + ": it belongs to another user")
		default:
			servers = append(servers, BusServer{Path: w.Real})
		}
	}
	if len(servers) > 0 {
		failure = nil
	}
	return servers, failure
}

// busCandidates are the sockets that the caller's address names; without an address, the usual one. The error is about
// those that it does not name.
func (b *builder) busCandidates() ([]BusServer, error) {
	address, run := b.profile.SessionBusAddress, b.profile.RuntimeDirectory
	if address == "" {
		if !filepath.IsAbs(run) {
			return nil, nil
		}
		return []BusServer{{Path: runtimeBus(run)}}, nil
	}
	addresses, err := ParseBusAddress(address)
	var list []BusServer
	for _, a := range addresses {
		server, why := a.server(run)
		if why != "" {
			err = errors.New(printable(a.String()) + ": " + why)
			continue
		}
		list = append(list, server)
	}
	return list, err
}

// coverBus keeps a grant that shows the bus's own socket from leading past what was decided about the bus, and to the
// other door of the session's systemd likewise.
func (b *builder) coverBus(servers []BusServer) {
	servers = slices.Clone(servers)
	if run := b.profile.RuntimeDirectory; filepath.IsAbs(run) {
		servers = append(servers, BusServer{Path: runtimeBus(run)}, BusServer{Path: filepath.Join(run, "systemd/private")})
	}
	for _, server := range servers {
		if server.Path == "" {
			continue
		}
		w, err := follow(b.tree, server.Path)
		if err != nil || w.Object.Mode.Type() != fs.ModeSocket || !b.layers.shows(w.Real) {
			continue
		}
		b.anchor(parent(w.Real)) // or the command renames one, and the next finds what was in it, and not covered
		b.layers.put(Step{Kind: Socket, Path: w.Real, Source: os.DevNull, Access: profile.ReadOnly, Origin: baseline})
		b.busNotice(w.Real, "covered: "+printable(w.Real)+", which a grant shows, leads to the session bus; --session-bus allow opens it")
	}
}

// findProxy looks for xdg-dbus-proxy where FindBwrap looks for bwrap, and passes by what the command could replace.
func (b *builder) findProxy() string {
	for _, dir := range programDirectories {
		w, err := follow(b.tree, filepath.Join(dir, proxyName))
		if err == nil && w.Object.Mode.IsRegular() && w.Object.Mode.Perm()&0o111 != 0 && process.RootsOwn(w.Object.UID) && !b.replaceable(w) {
			return w.Real
		}
	}
	return ""
}

// replaceable reports whether the command could put something else where a walk came by.
func (b *builder) replaceable(w walk) bool {
	return slices.ContainsFunc(append(w.Links, Link{Path: w.Real}), func(link Link) bool {
		step := b.layers.at(link.Path)
		return step != nil && step.Kind == Bind && step.Access == profile.ReadWrite
	})
}

// environment adds the variable that leads a command to its bus.
func (bus Bus) environment(variables []profile.Variable) []profile.Variable {
	if bus.Place == "" {
		return variables
	}
	address := BusAddress{Transport: "unix", Keys: map[string]string{"path": bus.Place}}
	list := slices.DeleteFunc(slices.Clone(variables), func(v profile.Variable) bool { return v.Name == busVariable })
	at := slices.IndexFunc(list, func(v profile.Variable) bool { return v.Name > busVariable })
	if at < 0 {
		at = len(list)
	}
	return slices.Insert(list, at, profile.Variable{Name: busVariable, Value: address.String(), Origin: baseline})
}
