package profile

import "net/netip"

// specialRanges are the addresses that are not the public network's. Behind them are this machine,
// the person's own network, and the services that give a cloud's machine its credentials. The first
// row that holds an address names it.
//
// From the IANA special-purpose address registries (RFC 6890), the cloud providers' documentation,
// and RFC 4291: what is outside 2000::/3 is no global unicast address at all.
var specialRanges = []struct{ prefix, what string }{
	{"127.0.0.0/8", "this machine itself"},
	{"::1/128", "this machine itself"},
	{"0.0.0.0/8", "this machine itself"},
	{"::/128", "this machine itself"},
	{"169.254.169.254/32", "a cloud's metadata service, which hands out credentials"},
	{"fd00:ec2::254/128", "a cloud's metadata service, which hands out credentials"},
	{"100.100.100.200/32", "a cloud's metadata service, which hands out credentials"},
	{"168.63.129.16/32", "a cloud's own service to its machines"},
	{"192.0.0.192/32", "a cloud's metadata service, which hands out credentials"},
	{"169.254.0.0/16", "link-local"},
	{"fe80::/10", "link-local"},
	{"10.0.0.0/8", "a private network"},
	{"172.16.0.0/12", "a private network"},
	{"192.168.0.0/16", "a private network"},
	{"fc00::/7", "a private network"},
	{"fec0::/10", "a private network"},
	{"100.64.0.0/10", "a provider's or a VPN's own network"},
	{"192.0.0.0/24", "reserved"},
	{"192.0.2.0/24", "for documentation"},
	{"198.51.100.0/24", "for documentation"},
	{"203.0.113.0/24", "for documentation"},
	{"192.88.99.0/24", "a relay to IPv6"},
	{"198.18.0.0/15", "for benchmarks"},
	{"224.0.0.0/4", "multicast"},
	{"240.0.0.0/4", "reserved"},
	{"::ffff:0:0/96", "an IPv4 address in an IPv6 one"},
	{"::/96", "an IPv4 address in an IPv6 one"},
	{"64:ff9b:1::/48", "a translator's own network"},
	{"2001::/23", "a tunnel or reserved"},
	{"2001:db8::/32", "for documentation"},
	{"2002::/16", "an IPv4 address in an IPv6 one"},
	{"3fff::/20", "for documentation"},
	{"ff00::/8", "multicast"},
	{"::/3", "reserved"},
	{"4000::/2", "reserved"},
	{"8000::/1", "reserved"},
}

// ownAddress is what an address of an interface of this machine's is.
const ownAddress = "an address of this machine itself"

// specialRange finds the range of an address that is not the public network's. The prefix is
// invalid if it is public.
func specialRange(address netip.Addr) (netip.Prefix, string) {
	for _, row := range specialRanges {
		if prefix := netip.MustParsePrefix(row.prefix); prefix.Contains(address) {
			return prefix, row.what
		}
	}
	return netip.Prefix{}, ""
}

// translated is the IPv4 address that an address of the well-known prefix for translators
// (64:ff9b::/96, RFC 6052) leads to. On networks with IPv6 alone all IPv4 hosts have such an
// address.
func translated(address netip.Addr) (netip.Addr, bool) {
	if !netip.MustParsePrefix("64:ff9b::/96").Contains(address) {
		return netip.Addr{}, false
	}
	bytes := address.As16()
	return netip.AddrFrom4([4]byte(bytes[12:])), true
}
