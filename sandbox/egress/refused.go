package egress

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/clairun/clai-sandbox/profile"
)

// A RefusedError is a destination that may not be connected to. Its text is one line, says why and
// what to do about it, and is the same for the program inside and the person outside.
type RefusedError struct {
	To   string `json:"destination"` // as it was judged, or quoted where it could not be read
	Why  string `json:"why"`
	Hint string `json:"hint,omitempty"` // what to do, and what not to
	Rule string `json:"rule,omitempty"` // that denies it
}

func (e *RefusedError) Error() string {
	text := e.To + " is refused: " + e.Why
	if e.Hint != "" {
		text += "; " + e.Hint
	}
	return text
}

// refused words a judgement that does not allow: of what was asked for, or of an address that it
// leads to.
func refused(to profile.Destination, address netip.Addr, j profile.Judgement) *RefusedError {
	at, name := "", to
	if to.Name != "" && address.IsValid() {
		at, name = fmt.Sprintf("it leads to %s, and ", address), profile.Destination{Address: address, Port: to.Port}
	}
	switch j.Verdict {
	case profile.DomainDenied:
		return &RefusedError{to.String(), fmt.Sprintf("%sthe rule %s denies it", at, j.Rule), "a person can take that out of deniedDomains or --deny-domain", j.Rule.String()}
	case profile.DomainSpecial:
		return &RefusedError{to.String(), fmt.Sprintf("%sthat is %s, which only a rule of its own allows", at, j.Range), "a person can allow it with --allow-domain " + name.String(), ""}
	}
	return &RefusedError{to.String(), "no rule allows it", fmt.Sprintf("a person can allow it with --allow-domain %s, or with allowedDomains in the configuration", to), ""}
}

// quoted is text from inside for a message: on one line, with nothing that a terminal would obey.
func quoted(text string) string {
	if len(text) > 80 {
		return strconv.QuoteToASCII(text[:80]) + "…"
	}
	return strconv.QuoteToASCII(text)
}

// maxRefusals bounds what is kept of them: a program inside can ask for as many names as it likes.
const maxRefusals = 20

// refusals are the destinations that were refused, each once, the first ones.
type refusals struct {
	mu    sync.Mutex
	first []RefusedError
	more  int
}

func (r *refusals) add(e *RefusedError) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case slices.Contains(r.first, *e):
	case len(r.first) < maxRefusals:
		r.first = append(r.first, *e)
	default:
		r.more++
	}
}

// Refusals are the destinations that were refused, each once, and how often others were refused
// after the first of them.
func (p *Proxy) Refusals() (first []RefusedError, more int) {
	p.refusals.mu.Lock()
	defer p.refusals.mu.Unlock()
	return slices.Clone(p.refusals.first), p.refusals.more
}

// sentence bounds a message that holds another program's words, for a line of a protocol.
func sentence(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, text[:min(len(text), 500)])
}
