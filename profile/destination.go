package profile

import (
	"net/netip"
	"strconv"
	"strings"
)

// A Destination is what a connection is asked for: a name or an address, and a port.
type Destination struct {
	Name    string     // as ParseHost returns it; empty where it is an address
	Address netip.Addr // invalid where it is a name
	Port    uint16
}

// ParseDestination reads "host:port", with an IPv6 address in brackets. Without a port it is the
// given one; 0 is none, so that there must be one. The error is a *DomainError.
func ParseDestination(text string, port uint16) (Destination, error) {
	host, typed, err := text, uint16(0), error(nil)
	if len(text) <= maxRuleBytes {
		host, typed, err = splitPort(text)
	}
	switch {
	case err != nil:
		return Destination{}, &DomainError{Text: text, Why: err.Error()}
	case typed != 0:
		port = typed
	case port == 0:
		return Destination{}, &DomainError{Text: text, Why: "has no port"}
	}
	return NewDestination(host, port)
}

// NewDestination reads a host, of which ParseHost says what it may be. The error is a *DomainError.
func NewDestination(host string, port uint16) (Destination, error) {
	name, address, err := ParseHost(host)
	return Destination{name, address, port}, err
}

// Host is the name or the address.
func (d Destination) Host() string {
	if d.Name != "" {
		return d.Name
	}
	return d.Address.String()
}

// String is host:port, as a rule for this destination alone is typed.
func (d Destination) String() string {
	host := d.Host()
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return host + ":" + strconv.Itoa(int(d.Port))
}
