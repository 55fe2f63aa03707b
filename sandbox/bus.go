package sandbox

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/profile/text"
	"github.com/clairun/clai-sandbox/sandbox/bus"
	"github.com/clairun/clai-sandbox/sandbox/descriptor"
	"github.com/clairun/clai-sandbox/sandbox/process"
)

// The session bus is how a desktop's programs speak to one another, and it starts programs: whoever
// speaks to it freely is not in a sandbox. A command gets a socket of the launcher's in its place,
// and xdg-dbus-proxy behind that lets through a few calls to a few names. Nothing is started before
// something inside connects.
//
// What answers is as it is: org.freedesktop.secrets hands out every unlocked secret.

const (
	// busPlace is where the socket stands inside: on the sandbox's own root, since no grant shows
	// anything of /run.
	busPlace = "/run/clai-sandbox/bus"

	busVariable = "DBUS_SESSION_BUS_ADDRESS"

	whyNoBus       = "this host has no session bus"
	whyBusWithheld = "withheld"
	whyNoBusProxy  = "xdg-dbus-proxy, which filters it, is not installed"
	whyNoBusPlace  = "/run is a symbolic link here"
	whyNoBusNames  = "no name is let through"
	hintProxy      = "install xdg-dbus-proxy: apt, dnf, pacman, zypper and apk all call it so"
	noticeBusOpen  = "the session bus is open to the command: it can start programs outside the sandbox"
)

// sessionBus decides what the command reaches of the caller's session bus. It comes after the
// grants.
func (b *builder) sessionBus() bus.Bus {
	servers, err := b.busServers()
	reached := b.chooseBus(servers, err)
	if reached.Place == "" || reached.Proxy != "" {
		b.coverBus(servers)
	}
	if reached.Place != "" {
		step := Step{Kind: Socket, Path: reached.Place, Access: profile.ReadOnly, Origin: baseline}
		if reached.Direct() {
			step.Source, step.Pinned = reached.Servers[0].Path, true
		}
		b.layers.put(step)
	}
	return reached
}

// chooseBus joins what the profile allows with what the host has.
func (b *builder) chooseBus(servers []bus.Server, err error) bus.Bus {
	mode := b.profile.SessionBus
	reached := bus.Bus{Servers: servers, Place: busPlace}
	tell := func(why, hint string) bus.Bus {
		b.busNotice("", "no session bus for the command: "+why+hint)
		return bus.Bus{Why: why}
	}
	switch {
	case mode != profile.SessionBusFiltered && mode != profile.SessionBusAllow:
		return bus.Bus{Why: whyBusWithheld}
	case err != nil:
		return tell(err.Error(), "")
	case len(servers) == 0:
		return bus.Bus{Why: whyNoBus}
	case slices.ContainsFunc(b.links, func(link Link) bool { return within(busPlace, link.Path) }):
		return tell(whyNoBusPlace, "")
	}
	reached.Directories = b.busDirectories()
	if mode == profile.SessionBusAllow {
		b.busNotice("", noticeBusOpen)
		return reached
	}
	if reached.Names = b.busNames(); len(reached.Names) == 0 {
		return bus.Bus{Why: whyNoBusNames}
	}
	if reached.Proxy = b.findProxy(); reached.Proxy == "" {
		return tell(whyNoBusProxy, "; "+hintProxy)
	}
	return reached
}

func (b *builder) busNotice(path, text string) {
	b.notices = append(b.notices, Notice{Kind: NoticeSessionBus, Path: path, Text: text})
}

// busDirectories are where the launcher's socket may stand on the host: places that no sandbox
// shows. The first two are in memory, where it costs a fifth of what it does on a disk.
func (b *builder) busDirectories() []string {
	var list []string
	for _, own := range b.own {
		if run := b.profile.RuntimeDirectory; run != "" && within(own, filepath.Clean(run)) {
			list = append(list, own)
		}
	}
	return append(append(list, "/dev/shm"), b.own...)
}

// busServers are the sockets that the caller's address leads to, as far as they are there and the
// caller's: another user's would be that user's bus, who could answer for the secret service. The
// error says why an address leads nowhere; that there simply is no bus is none.
func (b *builder) busServers() ([]bus.Server, error) {
	candidates, failure := b.busCandidates()
	var servers []bus.Server
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
			servers = append(servers, bus.Server{Path: w.Real})
		}
	}
	if len(servers) > 0 {
		failure = nil
	}
	return servers, failure
}

// busCandidates are the sockets that the caller's address names; without an address, the usual one.
// The error is about those that it does not name.
func (b *builder) busCandidates() ([]bus.Server, error) {
	address, run := b.profile.SessionBusAddress, b.profile.RuntimeDirectory
	if address == "" {
		if !filepath.IsAbs(run) {
			return nil, nil
		}
		return []bus.Server{{Path: bus.RuntimePath(run)}}, nil
	}
	addresses, err := bus.ParseAddress(address)
	var list []bus.Server
	for _, a := range addresses {
		server, why := a.Server(run)
		if why != "" {
			err = errors.New(printable(a.String()) + ": " + why)
			continue
		}
		list = append(list, server)
	}
	return list, err
}

// coverBus keeps a grant that shows the bus's own socket from leading past what was decided about
// the bus, and to the other door of the session's systemd likewise.
func (b *builder) coverBus(servers []bus.Server) {
	servers = slices.Clone(servers)
	if run := b.profile.RuntimeDirectory; filepath.IsAbs(run) {
		servers = append(servers, bus.Server{Path: bus.RuntimePath(run)}, bus.Server{Path: filepath.Join(run, "systemd/private")})
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

// findProxy looks for xdg-dbus-proxy where FindBwrap looks for bwrap, and passes by what the
// command could replace.
func (b *builder) findProxy() string {
	for _, dir := range programDirectories {
		w, err := follow(b.tree, filepath.Join(dir, bus.ProxyName))
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

// busEnvironment adds the variable that leads a command to its bus.
func busEnvironment(reached bus.Bus, variables []profile.Variable) []profile.Variable {
	if reached.Place == "" {
		return variables
	}
	address := bus.Address{Transport: "unix", Keys: map[string]string{"path": reached.Place}}
	list := slices.DeleteFunc(slices.Clone(variables), func(v profile.Variable) bool { return v.Name == busVariable })
	at := slices.IndexFunc(list, func(v profile.Variable) bool { return v.Name > busVariable })
	if at < 0 {
		at = len(list)
	}
	return slices.Insert(list, at, profile.Variable{Name: busVariable, Value: address.String(), Origin: baseline})
}

// busNames are the names that a filtered bus lets through, without those that are none.
func (b *builder) busNames() []string {
	var names []string
	for _, name := range b.profile.SessionBusNames {
		if !bus.IsName(strings.TrimSuffix(name, ".*")) {
			b.busNotice("", "left out: "+printable(name)+" is no name on a bus: two or more words with dots between them, and at the end perhaps .*")
			continue
		}
		if bus.StartsPrograms(name) {
			b.busNotice("", noticeBusOpen+", because "+name+" is let through")
		}
		names = append(names, name)
	}
	return names
}

// busOperand makes the socket for the plan's bus, and gives it to bwrap. Without one, the command
// has no bus and is told.
func (a *attempt) busOperand(step Step, byDescriptor bool) (operand, bool) {
	var err error
	if a.bus == nil {
		a.bus, err = bus.Listen(a.plan.Bus)
	}
	if err == nil {
		var socket descriptor.File
		if socket, err = a.bus.Place(); err == nil {
			return a.bindDescriptor(step, socket, byDescriptor), true
		}
	}
	a.plan.notice(NoticeSessionBus, "", "no session bus for the command: "+err.Error())
	return operand{}, false
}

// DescribeBus says in a line what a command of the plan reaches of the session bus.
func (p *Plan) DescribeBus() string {
	text := p.SessionBus.String()
	switch {
	case p.SessionBus == profile.SessionBusDeny:
		return text
	case p.Bus.Place == "":
		return text + ": " + p.Bus.Why
	case p.Bus.Proxy == "":
		return text + ": all of it, a way out of the sandbox"
	}
	return text + ": " + strings.Join(p.Bus.Names, ", ") + ", through " + p.Bus.Proxy
}

// checkSessionBus examines what a command would find.
func checkSessionBus(plan *Plan) Check {
	reached, c := plan.Bus, Check{Name: "session bus", State: CheckOK, Found: plan.DescribeBus()}
	weak := func(mend string) Check {
		c.State, c.Mend = CheckWeak, mend
		return c
	}
	switch {
	case reached.Why == whyNoBus, reached.Why == whyBusWithheld:
		return c
	case reached.Why == whyNoBusProxy:
		return weak(hintProxy)
	case reached.Place == "":
		return weak("")
	case reached.Proxy == "":
		return weak(`set sessionBus to "filtered"`)
	}
	if err := reached.Examine(); err != nil {
		c.Found += ", but " + err.Error()
		return weak(`start the session's bus, or set sessionBus to "deny"`)
	}
	return c
}

// endBus ends what listens for the command, and tells what became of it after those notices that
// there are.
func (a *attempt) endBus(list []Notice) []Notice {
	err := a.bus.Close()
	if err == nil {
		return list
	}
	return append(slices.Clone(list), Notice{Kind: NoticeSessionBus, Text: "the session bus could not be reached: " + text.Line(err.Error())})
}
