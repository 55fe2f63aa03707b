// Package bus stands between a command and the D-Bus session bus: a socket of the launcher's,
// behind it xdg-dbus-proxy, which lets through a few calls to a few names, and a relay of every
// connection, which counts what it holds and passes on of notifications only those of the sandbox's
// own. What a plan lets a command reach is decided elsewhere.
package bus

import "github.com/clairun/clai-sandbox/sandbox/process"

// A Bus is what a plan lets a command reach of the session bus.
type Bus struct {
	// Place is the socket inside; empty: nothing is reachable, and Why says why.
	Place string
	Why   string

	Servers []Server // the host's; the first that answers is used
	Names   []string // what a filtered bus lets through
	Proxy   string   // xdg-dbus-proxy; empty: nothing is filtered
	// Directories that no sandbox shows: the launcher's socket stands in the first that will do.
	Directories []string
}

// ProxyName is the program that filters a bus.
const ProxyName = "xdg-dbus-proxy"

// Direct reports whether the host's socket itself stands inside. That needs an open bus and one
// server with a path.
func (bus Bus) Direct() bool {
	return bus.Proxy == "" && len(bus.Servers) == 1 && bus.Servers[0].Path != ""
}

// Examine tries whether the bus answers and its filter may be executed.
func (bus Bus) Examine() error {
	if err := process.TrustProgram(bus.Proxy); err != nil {
		return err
	}
	var failure error
	for _, server := range bus.Servers {
		d, err := server.connect()
		if err == nil {
			d.Close()
			return nil
		}
		failure = err
	}
	return failure
}
