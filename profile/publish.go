package profile

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A PublishedPort leads from a port of the host's loopback interface to one of the sandbox's own
// network.
type PublishedPort struct {
	Host   uint16 `json:"host" jsonschema:"the port at 127.0.0.1 of the host"`
	Inside uint16 `json:"inside" jsonschema:"the port in the sandbox that it leads to"`
	Origin Origin `json:"origin" jsonschema:"what says so"`
}

// MaxPublished bounds the ports of one sandbox.
const MaxPublished = 32

// ParsePublished reads PORT, which is the same on both sides, or HOST:INSIDE.
func ParsePublished(text string) (PublishedPort, error) {
	host, inside, both := strings.Cut(text, ":")
	if !both {
		inside = host
	}
	p := PublishedPort{}
	var err error
	if p.Host, err = ParsePort(host); err == nil {
		p.Inside, err = ParsePort(inside)
	}
	if err != nil && strings.Count(text, ":") > 1 {
		err = fmt.Errorf("%s is not a port: write 3000, or 8080:3000 for the host's port 8080; the host's is always at 127.0.0.1", shorten(text))
	}
	return p, err
}

// String is the port as it would be typed.
func (p PublishedPort) String() string {
	if p.Host == p.Inside {
		return strconv.Itoa(int(p.Host))
	}
	return strconv.Itoa(int(p.Host)) + ":" + strconv.Itoa(int(p.Inside))
}

// UnmarshalText reads a port of the configuration.
func (p *PublishedPort) UnmarshalText(text []byte) error {
	port, err := ParsePublished(string(text))
	port.Origin = p.Origin
	*p = port
	return err
}

func (p *PublishedPort) setPlace(o Origin) { p.Origin = o }

// resolvePublished lists the ports that are published: the configuration's, and the command line's
// behind them.
func (p *Profile) resolvePublished(settings executionConfig, r Request) error {
	if ports := settings.Sandbox.Publish; ports != nil {
		p.Published = slices.Clone(*ports)
	}
	for _, text := range r.Publish {
		port, err := ParsePublished(text)
		if err != nil {
			return fmt.Errorf("--publish: %w", err)
		}
		port.Origin = Origin{OriginFlag, "--publish " + port.String()}
		p.Published = slices.DeleteFunc(p.Published, func(other PublishedPort) bool { return other.Host == port.Host })
		p.Published = append(p.Published, port)
	}
	if len(p.Published) > MaxPublished {
		return fmt.Errorf("--publish: %d ports: at most %d", len(p.Published), MaxPublished)
	}
	return nil
}

// settlePublished comes when it is known which network there is. The host's own needs nothing.
func (p *Profile) settlePublished(r Request) error {
	if p.Network != NetworkEnabled {
		return nil
	}
	if len(r.Publish) > 0 {
		return fmt.Errorf("--publish %s: the command has the host's own network, where its ports are reached as they are; leave it out, or add --network disabled or --network filtered",
			shortText(r.Publish[0]))
	}
	p.Published = nil
	return nil
}
