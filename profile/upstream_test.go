package profile

import (
	"net/netip"
	"strings"
	"testing"
)

func TestTheProxyUpstreamIsWhatSomebodyNamed(t *testing.T) {
	filtered := func(rest string) string {
		return `{"defaults": {"execution": {"sandbox": {"network": "filtered"` + rest + `}}}}`
	}
	environment := []string{"HTTPS_PROXY=http://me:pass%40word@proxy.example:3128", "http_proxy=plain.example:8080", "HTTP_PROXY=http://other.example", "NO_PROXY=localhost,.inner.example, outer.example,10.0.0.0/8,,*.wild.example,[bad"}
	for _, c := range []struct {
		name, user, want string
		environ          []string
		request          Request
	}{
		{name: "nobody", user: filtered(""), want: "- -"},
		{name: "nobody, and the environment does", user: filtered(""), environ: environment, want: "- - unused"},
		{name: "the configuration", user: filtered(`, "upstreamProxy": "http://me:secret@proxy.example:3128", "upstreamDirect": ["*.inner.example"]`),
			want: "http://proxy.example:3128 http://proxy.example:3128 Basic bWU6c2VjcmV0 direct *.inner.example"},
		{name: "by its address", user: filtered(`, "upstreamProxy": "http://[2001:db8::1]"`), want: "http://[2001:db8::1]:80 http://[2001:db8::1]:80"},
		{name: "the environment", user: filtered(`, "upstreamProxy": "environment"`), environ: environment,
			want: "http://plain.example:8080 http://proxy.example:3128 Basic bWU6cGFzc0B3b3Jk direct localhost *.localhost inner.example *.inner.example outer.example *.outer.example 10.0.0.0/8 wild.example *.wild.example"},
		{name: "the environment, by option", user: filtered(""), environ: []string{"all_proxy=http://all.example:1"}, request: Request{UpstreamProxy: "environment"}, want: "http://all.example:1 http://all.example:1"},
		{name: "an environment without any", user: filtered(`, "upstreamProxy": "environment"`), want: "- -"},
		{name: "none, by option", user: filtered(`, "upstreamProxy": "http://proxy.example"`), environ: environment, request: Request{UpstreamProxy: "none"}, want: "- -"},
		{name: "the host's network", user: `{"defaults": {"execution": {"sandbox": {"upstreamProxy": "http://proxy.example"}}}}`, want: "- -"},
		{name: "the host's network, asked for", request: Request{UpstreamProxy: "http://proxy.example"}, want: "--upstream-proxy means nothing with the network enabled: add --network filtered"},
		{name: "a password for all to see", user: filtered(""), request: Request{UpstreamProxy: "http://me:secret@proxy.example"}, want: "--upstream-proxy: a password on the command line is seen by all of this machine"},
		{name: "a proxy of another kind", user: filtered(`, "upstreamProxy": "environment"`), environ: []string{"HTTPS_PROXY=socks5://me:secret@p.example"}, want: `the proxy of the variable HTTPS_PROXY: a proxy is spoken to by http://, and not by socks5://`},
		{name: "no URL", user: filtered(""), request: Request{UpstreamProxy: "proxy"}, want: "--upstream-proxy: is not a proxy's URL, as http://proxy.example:3128"},
		{name: "an odd address", user: filtered(""), request: Request{UpstreamProxy: "http://0x7f.1"}, want: `--upstream-proxy: domain "0x7f.1": an address in an unusual form`},
	} {
		config, err := load(t, "", c.user)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		who := caller()
		who.Environ = c.environ
		p, err := Resolve(config, who, c.request)
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = describeUpstream(p.Upstream)
		}
		if got != c.want && (err == nil || !strings.HasPrefix(got, c.want)) || strings.Contains(got, "secret") {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func describeUpstream(u Upstream) string {
	words := []string{"-", "-"}
	for i, p := range []*UpstreamProxy{u.Plain, u.Tunnel} {
		if p != nil {
			words[i] = p.String()
		}
	}
	if u.Tunnel != nil && u.Tunnel.Authorization != "" {
		words = append(words, u.Tunnel.Authorization)
	}
	if u.Unused {
		words = append(words, "unused")
	}
	for i, rule := range u.Direct {
		if i == 0 {
			words = append(words, "direct")
		}
		words = append(words, rule.String())
	}
	return strings.Join(words, " ")
}

func TestThisMachineIsNeverAnotherProxysToReach(t *testing.T) {
	u := Upstream{Tunnel: &UpstreamProxy{Host: "proxy.example", Port: 1}}
	for _, to := range []Destination{{Name: "localhost", Port: 1}, {Address: netip.MustParseAddr("127.1.2.3"), Port: 1}, {Address: netip.MustParseAddr("::1"), Port: 1}, {Address: netip.MustParseAddr("0.0.0.0"), Port: 1}} {
		if u.For(to, false) != nil {
			t.Errorf("%s", to)
		}
	}
	if u.For(Destination{Name: "a.example", Port: 1}, false) == nil || u.For(Destination{Name: "a.example", Port: 1}, true) != nil {
		t.Error("each kind of connection has its own")
	}
}
