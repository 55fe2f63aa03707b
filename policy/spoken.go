package policy

import (
	"fmt"
	"strings"
)

// Overrides are what an operator has set for one session, as the words that were typed. The zero
// value sets nothing.
type Overrides struct {
	Host     string `json:"host,omitempty"`
	Security string `json:"security,omitempty"`
	Ask      string `json:"ask,omitempty"`
	Node     string `json:"node,omitempty"`
	Elevated bool   `json:"elevated,omitempty"`
}

// Preference is the session's layer. A word that cannot be read is the strictest.
func (o Overrides) Preference() Preference {
	w := Preference{Node: o.Node, Source: "as an operator said for the session"}
	if o.Host != "" {
		host, _ := ParseHost(o.Host)
		w.Host = &host
	}
	if o.Security != "" {
		security, _ := ParseSecurity(o.Security)
		w.Security = &security
	}
	if o.Ask != "" {
		ask, _ := ParseAsk(o.Ask)
		w.Ask = &ask
	}
	return w
}

// With is what holds when more was said: what that leaves out stays.
func (o Overrides) With(more Overrides) Overrides {
	for _, pair := range [...]struct{ old, said *string }{{&o.Host, &more.Host}, {&o.Security, &more.Security}, {&o.Ask, &more.Ask}, {&o.Node, &more.Node}} {
		if *pair.said != "" {
			*pair.old = *pair.said
		}
	}
	return o
}

// Spoken is a line that somebody typed in a chat for this program, and not for the agent. One
// of its members is set.
type Spoken struct {
	Approve  *ApproveCommand
	Exec     *Overrides // /exec with what it names; empty: it asks what holds
	Reset    bool       // /exec reset
	Elevated *bool
}

// A SpokenUsageError says how a line is typed.
type SpokenUsageError struct{ Usage string }

func (e *SpokenUsageError) Error() string { return "Usage: " + e.Usage }

const (
	execUsage     = "/exec [host=sandbox|gateway|node] [security=deny|allowlist|full] [ask=off|on-miss|always] [node=ID], or /exec reset"
	elevatedUsage = "/elevated on|off"
	maxNode       = 128 // bytes
)

// ParseSpoken reads a chat's line. Without ok it is for the agent. Whether whoever typed it may say
// so is for the caller: an agent may not.
func ParseSpoken(text string) (_ Spoken, ok bool, _ error) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return Spoken{}, false, nil
	}
	name, to, elsewhere := strings.Cut(strings.ToLower(words[0]), "@")
	switch {
	case name != "/exec" && name != "/elevated":
		approve, ok, err := ParseApprove(text)
		return Spoken{Approve: &approve}, ok, err
	case elsewhere && to != "":
		return Spoken{}, true, ForeignError{name}
	case name == "/elevated":
		on := len(words) == 2 && strings.EqualFold(words[1], "on")
		if !on && (len(words) != 2 || !strings.EqualFold(words[1], "off")) {
			return Spoken{}, true, &SpokenUsageError{elevatedUsage}
		}
		return Spoken{Elevated: &on}, true, nil
	case len(words) == 2 && strings.EqualFold(words[1], "reset"):
		return Spoken{Reset: true}, true, nil
	}
	said, err := parseOverrides(words[1:])
	return Spoken{Exec: &said}, true, err
}

// parseOverrides reads what /exec names. A word that nobody knows is an error, and none of the line
// counts.
func parseOverrides(words []string) (o Overrides, _ error) {
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		var into *string
		known := true
		switch strings.ToLower(name) {
		case "host":
			host, ok := ParseHost(value)
			into, value, known = &o.Host, host.String(), ok
		case "security":
			security, ok := ParseSecurity(value)
			into, value, known = &o.Security, security.String(), ok
		case "ask":
			ask, ok := ParseAsk(value)
			into, value, known = &o.Ask, ask.String(), ok
		case "node":
			into, known = &o.Node, value != "" && len(value) <= maxNode && !hasHidden(value)
		}
		if into == nil || !known || *into != "" {
			return Overrides{}, fmt.Errorf("%s: %w", quote(DisplayText(word)), &SpokenUsageError{execUsage})
		}
		*into = value
	}
	return o, nil
}
