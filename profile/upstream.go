package profile

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// An Upstream is a proxy of somebody else's, a company's for example, through which a filtered
// network connects. The zero value is none.
type Upstream struct {
	Plain  *UpstreamProxy // for requests by http://
	Tunnel *UpstreamProxy // for all else; nil: directly
	Direct []DomainRule   // what is connected to directly
	// Unused says that nobody named one, and that the caller's environment does.
	Unused bool
	Origin Origin
}

// An UpstreamProxy is one proxy, and how to reach it.
type UpstreamProxy struct {
	Host string // a name or an address
	Port uint16
	// Authorization is what the proxy is told of who asks: the value of Proxy-Authorization, or
	// empty. It is a secret.
	Authorization string `json:"-"`
}

// String is host and port, without Authorization.
func (u *UpstreamProxy) String() string {
	if strings.Contains(u.Host, ":") {
		return "http://[" + u.Host + "]:" + strconv.Itoa(int(u.Port))
	}
	return "http://" + u.Host + ":" + strconv.Itoa(int(u.Port))
}

const (
	upstreamNone        = "none"
	upstreamEnvironment = "environment"
)

// parseUpstreamProxy reads http://[USER:PASSWORD@]HOST[:PORT]. No error holds the text: there may
// be a password in it.
func parseUpstreamProxy(text string) (*UpstreamProxy, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || len(text) > 2000 {
		return nil, errors.New("is not a proxy's URL, as http://proxy.example:3128")
	}
	switch {
	case u.Scheme != "http":
		return nil, fmt.Errorf("a proxy is spoken to by http://, and not by %s://", shortText(u.Scheme))
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("a proxy's URL has nothing behind the port")
	}
	p := &UpstreamProxy{Port: 80}
	if digits := u.Port(); digits != "" {
		if p.Port, err = ParsePort(digits); err != nil {
			return nil, err
		}
	}
	name, address, err := ParseHost(u.Hostname())
	if err != nil {
		return nil, err
	}
	if p.Host = name; name == "" {
		p.Host = address.String()
	}
	if u.User != nil {
		password, _ := u.User.Password()
		p.Authorization = "Basic " + base64.StdEncoding.EncodeToString([]byte(u.User.Username()+":"+password))
	}
	return p, nil
}

// upstreamChoice is none, environment, or a proxy's URL.
type upstreamChoice struct {
	text   string
	origin Origin
}

func (c *upstreamChoice) setPlace(o Origin) { c.origin = o }

func (c *upstreamChoice) UnmarshalText(text []byte) error {
	c.text = string(text)
	if c.text == upstreamNone || c.text == upstreamEnvironment {
		return nil
	}
	_, err := parseUpstreamProxy(c.text)
	return err
}

// resolveUpstream finds out through which proxy a filtered network connects.
func (p *Profile) resolveUpstream(settings executionConfig, caller Caller, r Request) error {
	choice := upstreamChoice{upstreamNone, Origin{Kind: OriginDefault}}
	if said := settings.Sandbox.UpstreamProxy; said != nil {
		choice = *said
	}
	if r.UpstreamProxy != "" {
		choice = upstreamChoice{origin: Origin{OriginFlag, "--upstream-proxy"}}
		if err := choice.UnmarshalText([]byte(r.UpstreamProxy)); err != nil {
			return fmt.Errorf("--upstream-proxy: %w", err)
		}
		if strings.Contains(r.UpstreamProxy, "@") {
			return errors.New("--upstream-proxy: a password on the command line is seen by all of this machine: write it into upstreamProxy of the configuration, or into HTTPS_PROXY and give --upstream-proxy environment")
		}
	}
	if direct := settings.Sandbox.UpstreamDirect; direct != nil {
		p.Upstream.Direct = slices.Clone(*direct)
	}
	p.Upstream.Origin = choice.origin
	var err error
	switch choice.text {
	case upstreamNone:
		p.Upstream = Upstream{Origin: choice.origin}
	case upstreamEnvironment:
		err = p.Upstream.read(caller)
	default:
		p.Upstream.Tunnel, err = parseUpstreamProxy(choice.text)
		p.Upstream.Plain = p.Upstream.Tunnel
	}
	return err
}

// read takes the proxy from the variables that other programs take it from: those in lower case
// count before the others, as for curl.
func (u *Upstream) read(caller Caller) error {
	first := func(names ...string) (string, string) {
		for _, name := range names {
			if value := caller.variable(name); value != "" {
				return name, value
			}
		}
		return "", ""
	}
	for _, of := range []struct {
		into  **UpstreamProxy
		names []string
	}{
		{&u.Plain, []string{"http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"}},
		{&u.Tunnel, []string{"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"}},
	} {
		name, value := first(of.names...)
		if value == "" {
			continue
		}
		if !strings.Contains(value, "://") {
			value = "http://" + value // as programs read it
		}
		proxy, err := parseUpstreamProxy(value)
		if err != nil {
			return fmt.Errorf("the proxy of the variable %s: %w", name, err)
		}
		*of.into = proxy
	}
	_, none := first("no_proxy", "NO_PROXY")
	for word := range strings.SplitSeq(none, ",") {
		u.Direct = append(u.Direct, direct(strings.TrimSpace(word))...)
		if len(u.Direct) > MaxDomains {
			return fmt.Errorf("NO_PROXY: more than %d names", MaxDomains)
		}
	}
	return nil
}

// direct are the rules for a word of NO_PROXY: a name stands for itself and all below it. What is
// no such word is left out, as by all who read it.
func direct(word string) (list []DomainRule) {
	host := strings.TrimPrefix(strings.TrimPrefix(word, "*"), ".")
	if word == "*" {
		host = "*"
	}
	rule, err := ParseDomainRule(host)
	if err != nil {
		return nil
	}
	list = append(list, rule)
	if rule.Name != "" && !rule.Below {
		rule.Below = true
		list = append(list, rule)
	}
	return list
}

// For is the proxy through which a destination is reached, or nil. This machine's own is never
// another's to reach.
func (u *Upstream) For(to Destination, plain bool) *UpstreamProxy {
	proxy := u.Tunnel
	if plain {
		proxy = u.Plain
	}
	if proxy == nil || to.Name == "localhost" || to.Address.IsValid() && (to.Address.IsLoopback() || to.Address == netip.IPv4Unspecified()) {
		return nil
	}
	for i := range u.Direct {
		if to.Name != "" && u.Direct[i].names(to.Name, to.Port) || to.Name == "" && u.Direct[i].holds(to.Address, to.Port) {
			return nil
		}
	}
	return proxy
}

// settleUpstream comes when it is known which network there is: only a filtered one has a way out
// that could lead through a proxy.
func (p *Profile) settleUpstream(caller Caller, r Request) error {
	if p.Network != NetworkFiltered {
		if r.UpstreamProxy != "" {
			return fmt.Errorf("--upstream-proxy means nothing with the network %s: add --network filtered", p.Network)
		}
		p.Upstream = Upstream{}
		return nil
	}
	var found Upstream
	if p.Upstream.Origin.Kind != OriginDefault || p.Upstream.Tunnel != nil {
		return nil
	}
	p.Upstream.Unused = found.read(caller) == nil && found.Tunnel != nil
	return nil
}
