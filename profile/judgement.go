package profile

import (
	"net/netip"
	"slices"
	"strings"
)

// localhost is the one name that always stands for the loopback interface (RFC 6761). No wildcard
// covers it.
const localhost = "localhost"

func (r *DomainRule) names(name string, port uint16) bool {
	switch {
	case r.Prefix.IsValid() || r.Port != 0 && r.Port != port:
		return false
	case !r.Below:
		return r.Name == name
	case r.Name == "":
		return name != localhost
	}
	return strings.HasSuffix(name, "."+r.Name)
}

func (r *DomainRule) holds(address netip.Addr, port uint16) bool {
	return r.Prefix.IsValid() && (r.Port == 0 || r.Port == port) && r.Prefix.Contains(address)
}

// A DomainVerdict is what the rules say of a destination. The zero value refuses.
type DomainVerdict uint8

const (
	DomainUnlisted DomainVerdict = iota // no rule names it: refused, unless a person who is asked allows it
	DomainAllowed
	DomainDenied  // a rule denies it
	DomainSpecial // an address that is not the public network's, which no rule names
)

// A Judgement is a verdict with its reason.
type Judgement struct {
	Verdict DomainVerdict
	Rule    *DomainRule // that decided, of those that allow or deny
	Range   string      // of a special address: what it is
}

// Judge judges what a connection is asked for. Where that is a name and it is allowed, each address
// that the name stands for is still to be judged, by JudgeResolved.
func (d *Domains) Judge(to Destination) Judgement {
	if to.Name == "" {
		j := d.JudgeResolved(to, to.Address, nil)
		if j.Verdict == DomainAllowed && j.Rule == nil {
			return Judgement{} // it may be reached by a name, but nobody named it
		}
		return j
	}
	for i := range d.Denied {
		if d.Denied[i].names(to.Name, to.Port) {
			return Judgement{Verdict: DomainDenied, Rule: &d.Denied[i]}
		}
	}
	for i := range d.Allowed {
		if d.Allowed[i].names(to.Name, to.Port) {
			return Judgement{Verdict: DomainAllowed, Rule: &d.Allowed[i]}
		}
	}
	return Judgement{}
}

// JudgeResolved judges an address of a destination that is allowed itself. A name that somebody
// else may point anywhere must not lead to what only this machine can reach (DNS rebinding): an
// address outside the public network has to be named by a rule of its own. own are the addresses of
// this machine's interfaces, which is the same machine as the loopback interface, whatever the
// address.
func (d *Domains) JudgeResolved(to Destination, address netip.Addr, own []netip.Addr) Judgement {
	forms := []netip.Addr{address}
	if v4, ok := translated(address); ok {
		forms = append(forms, v4) // what the connection will come to
	}
	rule := func(list []DomainRule, lie netip.Prefix) *DomainRule {
		for i := range list {
			for _, form := range forms {
				if list[i].holds(form, to.Port) && (!lie.IsValid() || lie.Overlaps(list[i].Prefix) && lie.Bits() <= list[i].Prefix.Bits()) {
					return &list[i]
				}
			}
		}
		return nil
	}
	if r := rule(d.Denied, netip.Prefix{}); r != nil {
		return Judgement{Verdict: DomainDenied, Rule: r}
	}
	end := forms[len(forms)-1]
	special, what := specialRange(end)
	if !special.IsValid() && slices.Contains(own, end) {
		special, what = netip.PrefixFrom(end, end.BitLen()), ownAddress
	}
	if !special.IsValid() {
		return Judgement{Verdict: DomainAllowed, Rule: rule(d.Allowed, special)}
	}
	// A rule that allows "everything" (0.0.0.0/0) does not name the loopback interface.
	if r := rule(d.Allowed, special); r != nil {
		return Judgement{Verdict: DomainAllowed, Rule: r}
	}
	if to.Name == localhost && address.IsLoopback() {
		return Judgement{Verdict: DomainAllowed}
	}
	return Judgement{Verdict: DomainSpecial, Range: what}
}

// Public reports whether a destination is one that a person may be asked about. A name counts as
// public here: where it leads is judged once more, when it is resolved. The names of this machine
// itself, and addresses that are not the public network's, are opened by what the person wrote down
// themselves, and never by an answer to a question.
func (to Destination) Public() bool {
	if to.Name != "" {
		return to.Name != localhost && !strings.HasSuffix(to.Name, "."+localhost)
	}
	none := Domains{}
	return none.JudgeResolved(to, to.Address, nil).Verdict == DomainAllowed
}

// Public reports whether a rule is one that can be granted: neither this machine itself, nor
// addresses that are not the public network's.
func (r DomainRule) Public() bool {
	if !r.Prefix.IsValid() {
		return r.Name == "" || Destination{Name: r.Name}.Public()
	}
	special, _ := specialRange(r.Prefix.Addr())
	return !special.IsValid() || special.Bits() > r.Prefix.Bits() // a wide rule opens no special range in it
}

// Allows reports whether a rule for connections allows one.
func (r DomainRule) Allows(to Destination) bool {
	d := Domains{Allowed: []DomainRule{r}}
	return d.Judge(to).Verdict == DomainAllowed
}

// Covers reports whether a rule allows all that another one does.
func (r DomainRule) Covers(other DomainRule) bool {
	switch {
	case r.Port != 0 && r.Port != other.Port || r.Prefix.IsValid() != other.Prefix.IsValid():
		return false
	case r.Prefix.IsValid():
		return r.Prefix.Bits() <= other.Prefix.Bits() && r.Prefix.Contains(other.Prefix.Addr())
	case other.Below:
		return r.Below && (r.Name == "" || other.Name == r.Name || strings.HasSuffix(other.Name, "."+r.Name))
	}
	return r.names(other.Name, other.Port)
}

// Loopback reports whether a rule allows the host's own loopback interface, or a part of it.
func (d *Domains) Loopback() bool {
	for _, r := range d.Allowed {
		if r.Name == localhost && !r.Below || r.Prefix.IsValid() && r.Prefix.Addr().IsLoopback() {
			return true
		}
	}
	return false
}
