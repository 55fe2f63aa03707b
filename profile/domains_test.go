package profile

import (
	"net/netip"
	"strings"
	"testing"
)

func TestARuleIsReadAsItIsMeant(t *testing.T) {
	for text, want := range map[string]string{
		"example.com":                   "",
		"Example.COM.":                  "example.com",
		"example.com:443":               "",
		"*.example.com":                 "",
		"*.Example.com.:22":             "*.example.com:22",
		"*":                             "",
		"*:443":                         "",
		"localhost":                     "",
		"_dmarc.example.com":            "",
		"r3---sn-x.example.com":         "",
		"bücher.example":                "xn--bcher-kva.example",
		"*.BÜCHER.example":              "*.xn--bcher-kva.example",
		"bücher。example":                "xn--bcher-kva.example",
		"xn--bcher-kva.example":         "",
		"192.0.2.7":                     "",
		"192.0.2.7:22":                  "",
		"192.0.2.7.":                    "192.0.2.7",
		"１９２.0.2.7":                     "192.0.2.7", // so it is never a name
		"10.0.0.0/8":                    "",
		"10.0.0.0/8:5432":               "",
		"0.0.0.0/0":                     "",
		"2001:db8::1":                   "",
		"[2001:db8::1]":                 "2001:db8::1",
		"[2001:DB8:0::1]:443":           "[2001:db8::1]:443",
		"2001:db8::/32":                 "",
		"[2001:db8::/32]:443":           "",
		"::1":                           "",
		strings.Repeat("a.", 126) + "a": "",
	} {
		if want == "" {
			want = text
		}
		r, err := ParseDomainRule(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if r.String() != want {
			t.Errorf("%s: read as %s, want %s", text, r, want)
		}
	}
}

func TestARuleThatCouldMeanAnotherThingIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                                    "empty",
		".":                                   "empty",
		".example.com":                        "empty",
		"a..example":                          "empty",
		"example.com..":                       "empty",
		"https://example.com/x":               "is a URL, and a rule is a name; write example.com",
		"https://":                            "is a URL",
		"example.com/x":                       "not a range of addresses",
		"a*.example.com":                      "*.example.com",
		"*.*.example.com":                     "*.example.com",
		"**":                                  "*.example.com",
		"*.":                                  "empty",
		"*example.com":                        "*.example.com",
		"example.*":                           "*.example.com",
		"-a.example":                          "-",
		"a-.example":                          "-",
		"a b":                                 "' '",
		" a":                                  "' '",
		"a\n":                                 `'\n'`,
		"a\x00":                               `'\x00'`,
		"user@example.com":                    "'@'",
		"a%2eexample":                         "'%'",
		"\u202eexample":                       "internationalized",
		"a\xff.example":                       "internationalized",
		strings.Repeat("a", 64) + ".b":        "63",
		strings.Repeat("a.", 127) + "a":       "253",
		strings.Repeat("a", 1000):             "300",
		"example.com:":                        "port",
		"example.com:0":                       "port",
		"example.com:65536":                   "port",
		"example.com:0443":                    "port",
		"example.com:+443":                    "port",
		"example.com:http":                    "port",
		"a:b:c":                               "not an IPv6 address",
		"[::1":                                "bracket",
		"[::1]443":                            "behind the bracket",
		"[::1]:":                              "port",
		"[example.com]:443":                   "only an IPv6 address",
		"[127.0.0.1]:443":                     "only an IPv6 address",
		"fe80::1%eth0":                        "zone",
		"::ffff:127.0.0.1":                    "write the IPv4 address",
		"::ffff:127.0.0.0/104":                "write the IPv4 address",
		"*.127.0.0.1":                         "nothing is below an address",
		"10.1.2.3/8":                          "write 10.0.0.0/8",
		"10.0.0.0/33":                         "not a range",
		"10.0.0.0/08":                         "not a range",
		"2001:db8::1/32":                      "write 2001:db8::/32",
		"2130706433":                          "unusual form",
		"0x7f.1":                              "unusual form",
		"0x7f000001":                          "unusual form",
		"127.1":                               "unusual form",
		"127.0.1":                             "unusual form",
		"0177.0.0.1":                          "unusual form",
		"127.0.0.01":                          "unusual form",
		"127.0.0.0x1":                         "unusual form",
		"127.0.0.1.2":                         "unusual form",
		"127.0.0.256":                         "unusual form",
		"example.1":                           "unusual form",
		"example.0x":                          "unusual form",
		"１２７.1":                               "unusual form",
		"①.example." + strings.Repeat("0", 3): "unusual form",
	} {
		r, err := ParseDomainRule(text)
		if err == nil {
			t.Errorf("%q: read as %s", text, r)
			continue
		}
		if _, typed := err.(*DomainError); !typed || !strings.Contains(err.Error(), want) || !oneSafeLine(err.Error()) {
			t.Errorf("%q: %T %q, want %q in it", text, err, err, want)
		}
	}
}

func TestTheNetworkThatTheDomainsMean(t *testing.T) {
	domains := `{"defaults": {"execution": {"sandbox": {"allowedDomains": ["a.example"], "deniedDomains": ["d.example"]}}}}`
	for _, c := range []struct {
		name, system, user string
		request            Request
		network            Network
		allowed, denied    string
		want               string // in the error
	}{
		{name: "nobody says", network: NetworkEnabled},
		{name: "a list means filtered", user: domains, network: NetworkFiltered, allowed: "a.example", denied: "d.example"},
		{name: "an empty list, too", user: `{"defaults": {"execution": {"sandbox": {"allowedDomains": []}}}}`, network: NetworkFiltered},
		{name: "who says enabled means it", user: domains, request: Request{Network: "enabled"}, network: NetworkEnabled, allowed: "a.example", denied: "d.example"},
		{name: "a flag means filtered", request: Request{AllowDomains: []string{"B.example:443"}}, network: NetworkFiltered, allowed: "b.example:443"},
		{name: "to deny, too", request: Request{DenyDomains: []string{"b.example"}}, network: NetworkFiltered, denied: "b.example"},
		{name: "flags add", user: domains, request: Request{AllowDomains: []string{"b.example"}, DenyDomains: []string{"e.example"}},
			network: NetworkFiltered, allowed: "a.example b.example", denied: "d.example e.example"},
		{name: "lists replace", system: domains, user: `{"agents": {"main": {"execution": {"sandbox": {"allowedDomains": ["u.example"]}}}}}`,
			network: NetworkFiltered, allowed: "u.example", denied: "d.example"},
		{name: "a flag for nothing", request: Request{Network: "enabled", AllowDomains: []string{"b.example"}}, want: "--allow-domain means nothing with the network enabled: add --network filtered"},
		{name: "a flag for nothing in the configuration", user: `{"defaults": {"execution": {"sandbox": {"network": "disabled"}}}}`,
			request: Request{DenyDomains: []string{"b.example"}}, want: "--deny-domain means nothing with the network disabled"},
		{name: "a flag that is none", request: Request{AllowDomains: []string{"https://b.example"}}, want: `--allow-domain: domain "https://b.example": is a URL, and a rule is a name; write b.example`},
		{name: "too many", request: Request{AllowDomains: make([]string, 0)}, network: NetworkEnabled},
	} {
		config, err := load(t, c.system, c.user)
		if err != nil {
			t.Fatal(err)
		}
		p, err := Resolve(config, caller(), c.request)
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %q", c.name, err, c.want)
			}
			continue
		}
		if err != nil || p.Network != c.network || words(p.Domains.Allowed) != c.allowed || words(p.Domains.Denied) != c.denied {
			t.Errorf("%s: %v %s, allowed %q, denied %q", c.name, err, p.Network, words(p.Domains.Allowed), words(p.Domains.Denied))
		}
		for _, r := range append(p.Domains.Allowed, p.Domains.Denied...) {
			if r.Origin.Kind == "" || r.Origin.Source == "" {
				t.Errorf("%s: %s comes from nowhere", c.name, r)
			}
		}
	}
}

func TestDomainsAreBounded(t *testing.T) {
	config, _ := load(t, "", "")
	many := make([]string, MaxDomains+1)
	for i := range many {
		many[i] = "a.example"
	}
	if _, err := Resolve(config, caller(), Request{AllowDomains: many}); err == nil || !strings.Contains(err.Error(), "at most 1000") {
		t.Error(err)
	}
}

func words(list []DomainRule) string {
	var text []string
	for _, r := range list {
		text = append(text, r.String())
	}
	return strings.Join(text, " ")
}

func FuzzParseDomainRule(f *testing.F) {
	for _, text := range []string{"example.com:443", "*.example.com", "*", "10.0.0.0/8:1", "[2001:db8::/32]:443", "bücher.example", "0x7f.1",
		"::ffff:1.2.3.4", "１２７。0.0.1", "fe80::1%x", "https://a/"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseDomainRule(text)
		if err != nil {
			if !oneSafeLine(err.Error()) {
				t.Errorf("the message is more than a line of text: %q", err)
			}
			return
		}
		again, err := ParseDomainRule(r.String())
		if err != nil || again != r {
			t.Errorf("%q is %s, which is %v, %v", text, r, again, err)
		}
		for _, c := range []byte(r.String()) {
			if c <= ' ' || c >= 0x7f || c >= 'A' && c <= 'Z' {
				t.Errorf("%q has the form %q", text, r)
			}
		}
		// A rule never opens this machine but where it says so.
		d := Domains{Allowed: []DomainRule{r}}
		loopback := d.JudgeResolved(Destination{Name: "example.com", Port: max(r.Port, 1)}, netip.MustParseAddr("127.0.0.1"), nil).Verdict
		if said := r.Prefix.IsValid() && r.Prefix.Addr().IsLoopback(); (loopback == DomainAllowed) && !said {
			t.Errorf("%q opens the loopback interface", text)
		}
	})
}
