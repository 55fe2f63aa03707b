package profile

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/idna"
)

// A DomainRule names destinations on the network: one name, all names below one, or a range of
// addresses; on one port or on all. As a person writes it: example.com, *.example.com, *,
// 192.0.2.7, 2001:db8::/32, and each with a port behind it: example.com:443, [2001:db8::1]:443.
type DomainRule struct {
	Name   string       // lower case ASCII, no dot at its end; empty for "*" and for addresses
	Below  bool         // the names below Name, at any depth, and not Name itself; below an empty Name are all
	Prefix netip.Prefix // addresses; invalid in a rule about names
	Port   uint16       // 0 is any
	Origin Origin
}

// Domains are the rules of one profile. The zero value allows nothing.
type Domains struct {
	Allowed, Denied []DomainRule
}

// MaxDomains bounds each of a profile's two lists.
const MaxDomains = 1000

// maxRuleBytes is more than the longest name (253) with a wildcard and a port.
const maxRuleBytes = 300

// A DomainError is a rule, or a destination, that is not written as one.
type DomainError struct {
	Text string
	Why  string
	Hint string
}

func (e *DomainError) Error() string {
	text := "domain " + shorten(e.Text) + ": " + e.Why
	if e.Hint != "" {
		text += "; " + e.Hint
	}
	return text
}

// ParseDomainRule reads a rule. The error is a *DomainError.
func ParseDomainRule(text string) (DomainRule, error) {
	var r DomainRule
	refuse := func(why, hint string) (DomainRule, error) { return DomainRule{}, &DomainError{text, why, hint} }
	if len(text) > maxRuleBytes {
		return refuse(fmt.Sprintf("longer than %d bytes", maxRuleBytes), "")
	}
	if _, behind, isURL := strings.Cut(text, "://"); isURL {
		hint := ""
		if host, _, _ := strings.Cut(behind, "/"); host != "" {
			if _, err := ParseDomainRule(host); err == nil {
				hint = "write " + host
			}
		}
		return refuse("is a URL, and a rule is a name", hint)
	}
	host, port, err := splitPort(text)
	if err != nil {
		return refuse(err.Error(), "")
	}
	r.Port = port
	switch below, wildcard := strings.CutPrefix(host, "*."); {
	case host == "*":
		r.Below = true
		return r, nil
	case strings.Contains(host, "/"):
		if r.Prefix, err = parseRange(host); err != nil {
			return refuse(err.Error(), "")
		}
		return r, nil
	case wildcard:
		r.Below, host = true, below
	}
	if strings.Contains(host, "*") {
		return refuse("a * stands first and for whole labels", "write *.example.com for all names below example.com")
	}
	name, address, err := ParseHost(host)
	switch {
	case err != nil:
		var refused *DomainError
		if errors.As(err, &refused) {
			return refuse(refused.Why, refused.Hint)
		}
		return refuse(err.Error(), "")
	case address.IsValid() && r.Below:
		return refuse("nothing is below an address", "write a range of addresses, as 192.0.2.0/24")
	case address.IsValid():
		r.Prefix = netip.PrefixFrom(address, address.BitLen())
	default:
		r.Name = name
	}
	return r, nil
}

// splitPort takes the port off. An IPv6 address with a port stands in brackets.
func splitPort(text string) (host string, port uint16, err error) {
	digits, hasPort := "", false
	switch {
	case strings.HasPrefix(text, "["):
		var closed bool
		if host, digits, closed = strings.Cut(text[1:], "]"); !closed {
			return "", 0, errors.New("the bracket is not closed")
		}
		if !strings.Contains(host, ":") {
			return "", 0, errors.New("only an IPv6 address stands in brackets")
		}
		if digits == "" {
			return host, 0, nil
		}
		if digits, hasPort = strings.CutPrefix(digits, ":"); !hasPort {
			return "", 0, errors.New("behind the bracket there can only be a port, as in [2001:db8::1]:443")
		}
	case strings.Count(text, ":") == 1:
		host, digits, hasPort = strings.Cut(text, ":")
	default:
		host = text
	}
	if hasPort {
		port, err = ParsePort(digits)
	}
	return host, port, err
}

// ParsePort reads the number of a port, in plain digits.
func ParsePort(digits string) (uint16, error) {
	n, err := strconv.ParseUint(digits, 10, 16)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != digits {
		return 0, fmt.Errorf("port %s is not a number from 1 to 65535", shorten(digits))
	}
	return uint16(n), nil
}

// parseRange reads addresses in CIDR notation. One with bits behind its length is refused: it may
// be a slip, and what was meant is not known.
func parseRange(text string) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return prefix, errors.New("not a range of addresses, as 192.0.2.0/24")
	case prefix.Addr().Is4In6():
		return prefix, errIPv4Mapped
	case prefix != prefix.Masked():
		return prefix, fmt.Errorf("has bits behind its length: write %s, or the address alone", prefix.Masked())
	}
	return prefix, nil
}

var errIPv4Mapped = errors.New("an IPv4 address in an IPv6 one: write the IPv4 address")

// ParseHost reads the host of a rule or of a destination: either a name, in lower case ASCII
// without the dot at its end, or an address. Whatever some program would read as an address though
// it is not written as one (0x7f.1, 2130706433, 127.1, 010.0.0.1) is refused: to one reader it is a
// name, and to the next the loopback interface. The error is a *DomainError.
func ParseHost(text string) (name string, address netip.Addr, err error) {
	refuse := func(why, hint string) (string, netip.Addr, error) {
		return "", netip.Addr{}, &DomainError{text, why, hint}
	}
	if len(text) > maxRuleBytes {
		return refuse(fmt.Sprintf("longer than %d bytes", maxRuleBytes), "")
	}
	if strings.Contains(text, ":") {
		address, err = netip.ParseAddr(text)
		switch {
		case err != nil:
			return refuse("not a name, and not an IPv6 address", "")
		case address.Zone() != "":
			return refuse("an address with a zone is a link's own", "")
		case address.Is4In6():
			return refuse(errIPv4Mapped.Error(), "")
		}
		return "", address, nil
	}
	name = strings.ToLower(strings.TrimSuffix(text, "."))
	if !isASCII(name) {
		if name, err = idna.Lookup.ToASCII(name); err != nil {
			return refuse("not an internationalized name", "")
		}
		name = strings.TrimSuffix(name, ".") // it has other dots than this one
	}
	labels := strings.Split(name, ".")
	if isNumber(labels[len(labels)-1]) {
		// Four decimal numbers without zeros in front: any other form is one that readers differ
		// about.
		if address, err = netip.ParseAddr(name); err != nil {
			return refuse("an address in an unusual form", "write four decimal numbers, as 192.0.2.7")
		}
		return "", address, nil
	}
	if len(name) > 253 {
		return refuse("longer than the 253 bytes of a name", "")
	}
	for _, label := range labels {
		if why := checkLabel(label); why != "" {
			return refuse(why, "")
		}
	}
	return name, netip.Addr{}, nil
}

// checkLabel says why one part of a name is none, or nothing.
func checkLabel(label string) string {
	switch {
	case label == "":
		return "a part of the name is empty"
	case len(label) > 63:
		return "a part of the name is longer than 63 bytes"
	case label[0] == '-' || label[len(label)-1] == '-':
		return "a part of the name begins or ends with -"
	}
	for _, c := range []byte(label) {
		if !isWordByte(c) {
			return fmt.Sprintf("holds %q, which no name does", rune(c))
		}
	}
	return ""
}

// isNumber reports whether a program may read the last part of a host as a number, so that the
// whole is an address (the URL standard's "ends in a number").
func isNumber(label string) bool {
	digits, set := label, "0123456789"
	if hex, found := strings.CutPrefix(label, "0x"); found {
		digits, set = hex, "0123456789abcdef"
	}
	return label != "" && strings.Trim(digits, set) == ""
}

func isASCII(text string) bool {
	for _, c := range []byte(text) {
		if c >= 0x80 {
			return false
		}
	}
	return true
}

// String is the rule as it would be typed.
func (r DomainRule) String() string {
	host := r.Name
	switch {
	case r.Prefix.IsValid() && r.Prefix.IsSingleIP():
		host = r.Prefix.Addr().String()
	case r.Prefix.IsValid():
		host = r.Prefix.String()
	case r.Below && r.Name == "":
		host = "*"
	case r.Below:
		host = "*." + r.Name
	}
	if r.Port == 0 {
		return host
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return host + ":" + strconv.Itoa(int(r.Port))
}

// UnmarshalText reads a rule of the configuration. The error leaves the text to the configuration's
// own message.
func (r *DomainRule) UnmarshalText(text []byte) error {
	rule, err := ParseDomainRule(string(text))
	rule.Origin = r.Origin
	*r = rule
	return err
}

func (r *DomainRule) setPlace(o Origin) { r.Origin = o }

// resolveNetwork says how much of the network there is. Whoever gives a list of domains means it:
// where nobody says which network, that makes it filtered, and a list on the command line that
// would mean nothing is refused.
func (p *Profile) resolveNetwork(settings executionConfig, r Request) error {
	p.Network = NetworkEnabled
	if s := settings.Sandbox; s.Network != nil {
		p.Network = *s.Network
	} else if s.AllowedDomains != nil || s.DeniedDomains != nil || len(r.AllowDomains)+len(r.DenyDomains) > 0 {
		p.Network = NetworkFiltered
	}
	if r.Network != "" {
		if err := p.Network.UnmarshalText([]byte(r.Network)); err != nil {
			return fmt.Errorf("--network: %w", err)
		}
	}
	for _, list := range []struct {
		option     string
		configured *[]DomainRule
		asked      []string
		into       *[]DomainRule
	}{
		{"--allow-domain", settings.Sandbox.AllowedDomains, r.AllowDomains, &p.Domains.Allowed},
		{"--deny-domain", settings.Sandbox.DeniedDomains, r.DenyDomains, &p.Domains.Denied},
	} {
		if list.configured != nil {
			*list.into = slices.Clone(*list.configured)
		}
		for _, text := range list.asked {
			rule, err := ParseDomainRule(text)
			if err != nil {
				return fmt.Errorf("%s: %w", list.option, err)
			}
			rule.Origin = Origin{OriginFlag, list.option + " " + rule.String()}
			*list.into = append(*list.into, rule)
		}
		if len(list.asked) > 0 && p.Network != NetworkFiltered {
			return fmt.Errorf("%s means nothing with the network %s: add --network filtered", list.option, p.Network)
		}
		if n := len(*list.into); n > MaxDomains {
			return fmt.Errorf("%s: %d domains: at most %d; a wildcard such as *.example.com stands for many", list.option, n, MaxDomains)
		}
	}
	if p.Network == NetworkFiltered { // what was granted makes no network filtered, and gives one that is not nothing
		p.Domains.Allowed = append(p.Domains.Allowed, r.StoredDomains...)
	}
	return nil
}

// Wide says what a person should know of a rule that lets a command talk to whoever it likes;
// empty: nothing. Longer suffixes under which anybody can have a name, as github.io, are a list
// that only the gateway has.
func (r DomainRule) Wide() string {
	switch {
	case !r.Below:
		return ""
	case r.Name == "":
		return "every name there is"
	case !strings.Contains(r.Name, "."):
		return "a public suffix: anybody can have a name below it"
	}
	return ""
}

// Closed says in words that a filtered network reaches nothing because nothing is allowed, and what
// to do about it. Empty: it reaches something, or is not filtered.
func (p *Profile) Closed() string {
	if p.Network != NetworkFiltered || len(p.Domains.Allowed) > 0 {
		return ""
	}
	return "the network is filtered and nothing is allowed, so the command reaches nothing: allow what it needs with --allow-domain NAME, or every name with --allow-domain '*'"
}
