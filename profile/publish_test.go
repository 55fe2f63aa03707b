package profile

import (
	"strings"
	"testing"
)

func TestPortsArePublishedByWhoeverSaysSo(t *testing.T) {
	configured := `{"defaults": {"execution": {"sandbox": {"network": "disabled", "publish": ["3000", "8080:3001"]}}}}`
	for _, c := range []struct {
		name, user string
		request    Request
		want       string // the ports, or a part of the error
	}{
		{"nobody", "", Request{Network: "disabled"}, ""},
		{"the configuration", configured, Request{}, "3000 8080:3001"},
		{"the command line adds", configured, Request{Publish: []string{"5000"}}, "3000 8080:3001 5000"},
		{"the command line's is in place of the same port", configured, Request{Publish: []string{"8080:5000"}}, "3000 8080:5000"},
		{"an agent's list replaces", configured[:len(configured)-1] + `, "agents": {"main": {"execution": {"sandbox": {"publish": []}}}}}`, Request{}, ""},
		{"a filtered network", "", Request{AllowDomains: []string{"a.example"}, Publish: []string{"1"}}, "1"},
		{"the host's network, configured", configured, Request{Network: "enabled"}, ""},
		{"the host's network, asked for", "", Request{Publish: []string{"3000"}}, "--publish 3000: the command has the host's own network"},
		{"no port", "", Request{Network: "disabled", Publish: []string{"x"}}, `--publish: port "x" is not a number`},
		{"not inside", "", Request{Network: "disabled", Publish: []string{"80:"}}, `--publish: port "" is not a number`},
		{"too many", "", Request{Network: "disabled", Publish: strings.Split(strings.Repeat("1 ", 33), " ")[:33]}, "1"},
	} {
		config, err := load(t, "", c.user)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		p, err := Resolve(config, caller(), c.request)
		var list []string
		for _, port := range p.Published {
			list = append(list, port.String())
		}
		if got := strings.Join(list, " "); err == nil && got != c.want || err != nil && (c.want == "" || !strings.HasPrefix(err.Error(), c.want)) {
			t.Errorf("%s: %q %v, want %q", c.name, got, err, c.want)
		}
	}
}
