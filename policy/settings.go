package policy

import "strings"

// A Host is where a command runs.
type Host uint8

const (
	HostSandbox Host = iota // in a sandbox of this machine
	HostGateway             // on this machine, outside of a sandbox
	HostNode                // on another machine
	HostAuto                // only in a configuration: whatever a request names, else the sandbox
)

// A Security is how much may run without an answer of a person. The order is that of trust.
type Security uint8

const (
	SecurityDeny      Security = iota // nothing runs
	SecurityAllowlist                 // what the allowlist names runs
	SecurityFull                      // everything runs
)

// An Ask is when a person is asked. The order is that of trust: the zero value asks always.
type Ask uint8

const (
	AskAlways Ask = iota
	AskOnMiss     // where the allowlist does not answer
	AskOff
)

var (
	hostNames     = [...]string{"sandbox", "gateway", "node", "auto"}
	securityNames = [...]string{"deny", "allowlist", "full"}
	askNames      = [...]string{"always", "on-miss", "off"}
)

func nameOf(names []string, i uint8) string {
	if int(i) < len(names) {
		return names[i]
	}
	return "unknown"
}

func (h Host) String() string     { return nameOf(hostNames[:], uint8(h)) }
func (s Security) String() string { return nameOf(securityNames[:], uint8(s)) }
func (a Ask) String() string      { return nameOf(askNames[:], uint8(a)) }

func (h Host) MarshalText() ([]byte, error)     { return []byte(h.String()), nil }
func (s Security) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
func (a Ask) MarshalText() ([]byte, error)      { return []byte(a.String()), nil }

// ParseHost reads a host that a request names. Auto is no host to run on, and is not accepted.
func ParseHost(text string) (Host, bool) {
	i, ok := indexFold(hostNames[:HostAuto], text)
	return Host(i), ok
}

// ParseSecurity reads a word; without ok the strictest is returned.
func ParseSecurity(text string) (Security, bool) {
	i, ok := indexFold(securityNames[:], text)
	return Security(i), ok
}

// ParseAsk reads a word; without ok the strictest is returned.
func ParseAsk(text string) (Ask, bool) {
	i, ok := indexFold(askNames[:], text)
	return Ask(i), ok
}

func indexFold(names []string, text string) (uint8, bool) {
	text = strings.ToLower(strings.TrimSpace(text))
	for i, name := range names {
		if name == text {
			return uint8(i), true
		}
	}
	return 0, false
}

// Stricter joins two layers: each can only tighten the other.
func (s Security) Stricter(other Security) Security { return min(s, other) }

// Stricter joins two layers: whoever wants a person asked more often is followed.
func (a Ask) Stricter(other Ask) Ask { return min(a, other) }
