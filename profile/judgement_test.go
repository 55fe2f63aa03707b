package profile

import (
	"net/netip"
	"strings"
	"testing"
)

// rules reads lists as a configuration would.
func rules(t *testing.T, allowed, denied string) *Domains {
	t.Helper()
	d := &Domains{}
	for _, list := range []struct {
		text string
		into *[]DomainRule
	}{{allowed, &d.Allowed}, {denied, &d.Denied}} {
		for word := range strings.FieldsSeq(list.text) {
			r, err := ParseDomainRule(word)
			if err != nil {
				t.Fatal(err)
			}
			*list.into = append(*list.into, r)
		}
	}
	return d
}

var verdictNames = []string{"unlisted", "allowed", "denied", "special"}

func TestNamesAreJudged(t *testing.T) {
	for _, c := range []struct {
		allowed, denied, name string
		port                  uint16
		want                  string
	}{
		{"", "", "example.com", 443, "unlisted"},
		{"example.com", "", "example.com", 443, "allowed"},
		{"example.com", "", "example.com", 22, "allowed"},
		{"example.com:443", "", "example.com", 443, "allowed"},
		{"example.com:443", "", "example.com", 80, "unlisted"},
		{"example.com", "", "www.example.com", 443, "unlisted"},
		{"example.com", "", "notexample.com", 443, "unlisted"},
		{"example.com", "", "example.com.evil.example", 443, "unlisted"},
		{"*.example.com", "", "example.com", 443, "unlisted"},
		{"*.example.com", "", "www.example.com", 443, "allowed"},
		{"*.example.com", "", "a.b.c.example.com", 443, "allowed"},
		{"*.example.com", "", "wwwexample.com", 443, "unlisted"},
		{"*.example.com:22", "", "www.example.com", 443, "unlisted"},
		{"*", "", "anything.example", 1, "allowed"},
		{"*:443", "", "anything.example", 80, "unlisted"},
		{"*", "", "localhost", 80, "unlisted"},
		{"localhost", "", "localhost", 80, "allowed"},
		{"*", "evil.example", "evil.example", 443, "denied"},
		{"*", "evil.example", "www.evil.example", 443, "allowed"},
		{"*", "*.evil.example", "www.evil.example", 443, "denied"},
		{"evil.example", "evil.example", "evil.example", 443, "denied"},
		{"evil.example:443", "evil.example:22", "evil.example", 443, "allowed"},
		{"evil.example", "evil.example:22", "evil.example", 22, "denied"},
		{"", "evil.example", "evil.example", 22, "denied"},
		{"0.0.0.0/0 ::/0", "", "example.com", 443, "unlisted"},
	} {
		if got := verdictNames[rules(t, c.allowed, c.denied).Judge(Destination{Name: c.name, Port: c.port}).Verdict]; got != c.want {
			t.Errorf("allowed %q, denied %q: %s:%d is %s, want %s", c.allowed, c.denied, c.name, c.port, got, c.want)
		}
	}
}

func TestAddressesAreJudged(t *testing.T) {
	for _, c := range []struct {
		allowed, denied, address string
		asked, resolved          string // the verdict on the address itself, and on a name that is allowed and leads there
	}{
		{"", "", "8.8.8.8", "unlisted", "allowed"},
		{"8.8.8.8", "", "8.8.8.8", "allowed", "allowed"},
		{"8.8.8.8:443", "", "8.8.8.8", "unlisted", "allowed"},
		{"8.8.8.0/24", "", "8.8.8.8", "allowed", "allowed"},
		{"0.0.0.0/0", "", "8.8.8.8", "allowed", "allowed"},
		{"::/0", "", "8.8.8.8", "unlisted", "allowed"},
		{"*", "", "8.8.8.8", "unlisted", "allowed"},
		{"0.0.0.0/0", "8.8.8.8", "8.8.8.8", "denied", "denied"},
		{"0.0.0.0/0", "8.8.8.8:443", "8.8.8.8", "allowed", "allowed"},
		{"", "8.8.8.0/24", "8.8.8.8", "denied", "denied"},
		{"", "", "2606:4700::1111", "unlisted", "allowed"},
		{"2606:4700::/32", "", "2606:4700::1111", "allowed", "allowed"},
		{"::/0", "", "2606:4700::1111", "allowed", "allowed"},

		{"", "", "127.0.0.1", "special", "special"},
		{"*", "", "127.0.0.1", "special", "special"},
		{"0.0.0.0/0", "", "127.0.0.1", "special", "special"},
		{"0.0.0.0/1", "", "10.1.2.3", "special", "special"},
		{"127.0.0.1", "", "127.0.0.1", "allowed", "allowed"},
		{"127.0.0.1:80", "", "127.0.0.1", "allowed", "allowed"},
		{"127.0.0.1:443", "", "127.0.0.1", "special", "special"},
		{"127.0.0.1", "", "127.0.0.2", "special", "special"},
		{"127.0.0.0/8", "", "127.9.9.9", "allowed", "allowed"},
		{"127.0.0.0/8", "127.9.9.9", "127.9.9.9", "denied", "denied"},
		{"10.0.0.0/8", "", "10.1.2.3", "allowed", "allowed"},
		{"10.0.0.0/7", "", "10.1.2.3", "special", "special"},
		{"169.254.0.0/16", "", "169.254.1.1", "allowed", "allowed"},
		{"169.254.0.0/16", "", "169.254.169.254", "special", "special"},
		{"169.254.169.254", "", "169.254.169.254", "allowed", "allowed"},
		{"fc00::/7", "", "fd00:ec2::254", "special", "special"},
		{"::/0", "", "::1", "special", "special"},
		{"::1", "", "::1", "allowed", "allowed"},
		{"::/0", "", "fe80::1", "special", "special"},
		{"::/0", "", "fd12::1", "special", "special"},
		{"fd00::/8", "", "fd12::1", "allowed", "allowed"},

		{"127.0.0.1", "", "::ffff:127.0.0.1", "special", "special"},
		{"0.0.0.0/0 ::/0", "", "::ffff:8.8.8.8", "special", "special"},
		{"::/0", "", "::127.0.0.1", "special", "special"},
		{"::/0", "", "2002:7f00:1::", "special", "special"},
		{"::/0", "", "64:ff9b::7f00:1", "special", "special"},
		{"127.0.0.1", "", "64:ff9b::7f00:1", "allowed", "allowed"},
		{"64:ff9b::/96", "", "64:ff9b::a01:203", "special", "special"},
		{"", "", "64:ff9b::808:808", "unlisted", "allowed"},
		{"8.8.8.8", "", "64:ff9b::808:808", "allowed", "allowed"},
		{"::/0", "8.8.8.8", "64:ff9b::808:808", "denied", "denied"},
	} {
		d, address := rules(t, c.allowed, c.denied), netip.MustParseAddr(c.address)
		asked := verdictNames[d.Judge(Destination{Address: address, Port: 80}).Verdict]
		resolved := verdictNames[d.JudgeResolved(Destination{Name: "example.com", Port: 80}, address, nil).Verdict]
		if asked != c.asked || resolved != c.resolved {
			t.Errorf("allowed %q, denied %q: %s is %s and as the address of a name %s; want %s and %s",
				c.allowed, c.denied, c.address, asked, resolved, c.asked, c.resolved)
		}
	}
}

// From the registries, without our table: nothing of these is a public host.
func TestSpecialAddressesAreRefusedWhateverTheWildcard(t *testing.T) {
	d := rules(t, "* 0.0.0.0/0 ::/0", "")
	for _, text := range strings.Fields(`0.0.0.0 0.1.2.3 10.0.0.0 10.255.255.255 100.64.0.1 100.100.100.200 100.127.255.255 127.0.0.1
		127.255.255.255 168.63.129.16 169.254.0.1 169.254.169.254 172.16.0.1 172.31.255.255 192.0.0.192 192.0.2.1 192.88.99.1
		192.168.0.1 192.168.255.255 198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.1 224.0.0.1 239.255.255.255 240.0.0.1
		255.255.255.255 :: ::1 ::7f00:1 ::ffff:10.0.0.1 64:ff9b::a00:1 64:ff9b:1::1 100::1 2001::1 2001:20::1 2001:db8::1 2002:a00:1::
		3fff::1 5f00::1 fc00::1 fd00:ec2::254 fe80::1 fec0::1 ff02::1`) {
		if j := d.JudgeResolved(Destination{Name: "example.com", Port: 443}, netip.MustParseAddr(text), nil); j.Verdict != DomainSpecial || j.Range == "" {
			t.Errorf("%s: %+v", text, j)
		}
	}
	for _, text := range strings.Fields("1.1.1.1 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0 169.253.255.255 172.15.255.255 172.32.0.0 192.167.255.255 192.169.0.0 223.255.255.255 2001:4860:4860::8888 2a00::1 2606::1") {
		if j := d.JudgeResolved(Destination{Name: "example.com", Port: 443}, netip.MustParseAddr(text), nil); j.Verdict != DomainAllowed {
			t.Errorf("%s: %+v", text, j)
		}
	}
}

func TestLocalhostIsItsOwnName(t *testing.T) {
	d := rules(t, "localhost:80", "")
	if !d.Loopback() || rules(t, "* *.localhost 10.0.0.0/8", "").Loopback() || !rules(t, "127.0.0.0/8", "").Loopback() || !rules(t, "::1", "").Loopback() {
		t.Error("which rules allow the loopback interface")
	}
	for text, want := range map[string]DomainVerdict{"127.0.0.1": DomainAllowed, "::1": DomainAllowed, "10.0.0.1": DomainSpecial} {
		if j := d.JudgeResolved(Destination{Name: "localhost", Port: 80}, netip.MustParseAddr(text), nil); j.Verdict != want {
			t.Errorf("localhost at %s: %+v", text, j)
		}
	}
	if j := d.JudgeResolved(Destination{Name: "other.example", Port: 80}, netip.MustParseAddr("127.0.0.1"), nil); j.Verdict != DomainSpecial {
		t.Errorf("another name at 127.0.0.1: %+v", j)
	}
	if j := rules(t, "localhost", "127.0.0.0/8").JudgeResolved(Destination{Name: "localhost", Port: 80}, netip.MustParseAddr("127.0.0.1"), nil); j.Verdict != DomainDenied {
		t.Errorf("a denied address: %+v", j)
	}
}

func TestAnAddressOfThisMachineTakesARuleOfItsOwn(t *testing.T) {
	own := []netip.Addr{netip.MustParseAddr("8.8.8.8"), netip.MustParseAddr("2606:4700::1111")}
	for _, c := range []struct {
		allowed, address string
		want             DomainVerdict
	}{
		{"* 0.0.0.0/0 ::/0", "8.8.8.8", DomainSpecial},
		{"* 8.8.8.0/24", "8.8.8.8", DomainSpecial},
		{"* 8.8.8.8:22", "8.8.8.8", DomainSpecial},
		{"* 8.8.8.8", "8.8.8.8", DomainAllowed},
		{"*", "8.8.8.9", DomainAllowed},
		{"* ::/0", "2606:4700::1111", DomainSpecial},
		{"*", "64:ff9b::808:808", DomainSpecial},
	} {
		j := rules(t, c.allowed, "").JudgeResolved(Destination{Name: "example.com", Port: 443}, netip.MustParseAddr(c.address), own)
		if j.Verdict != c.want {
			t.Errorf("allowed %q: %s is %s", c.allowed, c.address, verdictNames[j.Verdict])
		}
	}
}
