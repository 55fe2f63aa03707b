package profile

import "fmt"

// Home says what stands at the caller's home directory inside. The zero value is what grants show
// of the caller's.
type Home uint8

const (
	HomeReadable  Home = iota // the caller's own, as far as grants show it
	HomePrivate               // one of the agent's own, empty at first, which lasts from run to run
	HomeEphemeral             // one of the sandbox's own, empty, and gone with it
)

var homeNames = []string{"readable", "private", "ephemeral"}

func (h Home) String() string { return nameOf(homeNames, int(h)) }

func (h Home) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

func (h *Home) UnmarshalText(text []byte) error {
	i, err := valueOf(homeNames, text)
	if err == nil {
		*h = Home(i)
	}
	return err
}

// homeConfig is a Home that knows where it was written.
type homeConfig struct {
	home   Home
	origin Origin
}

func (h *homeConfig) setPlace(o Origin) { h.origin = o }

func (h *homeConfig) UnmarshalText(text []byte) error { return h.home.UnmarshalText(text) }

// saidHome is what the command line or the configuration says about the home, or nil.
func saidHome(settings executionConfig, r Request) (*homeConfig, error) {
	if r.Home == "" && settings.Filesystem.Home == nil && settings.Filesystem.ExtraPaths == nil && r.OwnHome {
		return &homeConfig{HomePrivate, Origin{OriginDefault, "home"}}, nil
	}
	if r.Home == "" {
		return settings.Filesystem.Home, nil
	}
	said := &homeConfig{origin: Origin{OriginFlag, "--home " + printable(r.Home)}}
	if err := said.home.UnmarshalText([]byte(r.Home)); err != nil {
		return nil, fmt.Errorf("--home: %w", err)
	}
	return said, nil
}

// resolveHome decides what stands at the home directory, once the grants are known: where none
// shows it, and nobody says otherwise, one of the agent's own.
func (p *Profile) resolveHome(settings executionConfig, r Request) error {
	said, err := saidHome(settings, r)
	if err != nil {
		return err
	}
	var shows *Grant
	for i, g := range p.Grants {
		if Within(p.Home, g.Path) {
			shows = &p.Grants[i]
		}
	}
	switch {
	case said == nil:
		if shows == nil {
			p.HomeIs, p.HomeOrigin = HomePrivate, Origin{OriginDefault, "home"}
		}
	case shows != nil && said.home != HomeReadable && !shows.Origin.approved():
		return fmt.Errorf("the home cannot be %s (%s): %s shows %s (%s); take one of the two away", said.home, said.origin, printable(shows.Path), printable(p.Home), shows.Origin)
	case shows == nil:
		p.HomeIs, p.HomeOrigin = said.home, said.origin
	}
	return nil
}
