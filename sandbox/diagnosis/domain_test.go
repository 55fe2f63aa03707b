package diagnosis

import (
	"os"
	"slices"
	"testing"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox"
)

// goCache is what Go's commands keep of one case for the next ones.
var goCache string

// TestMain makes the test binary what ssh reaches the proxy of a filtered network with.
func TestMain(m *testing.M) {
	sandbox.InsideMain()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if goCache, err = os.MkdirTemp("/var/tmp", "clai-sandbox-test-go-"); err != nil {
		panic(err)
	}
	defer os.RemoveAll(goCache)
	return m.Run()
}

const refusedExample = "example.com:443 domain_refused"

// The network of these lets nothing through but allowed.invalid, which no name server knows.
var filteredCases = []failing{
	{"curl", "curl -sS https://example.com/", []string{refusedExample}},
	{"curl", "curl -sSf http://example.com/x", []string{"example.com:80 domain_refused"}},
	{"curl", "curl -fsSL https://example.com/install.sh | sh -s && curl -fsSL https://example.com/", []string{refusedExample}},
	{"wget", "wget -q -O- https://example.com/", nil}, // says nothing
	{"wget", "wget -O- https://example.com/", []string{refusedExample}},
	{"wget", "wget -O- http://example.com/", []string{"example.com:80 domain_refused"}},
	{"git", "git clone https://example.com/a.git", []string{refusedExample}},
	{"git", "git clone ssh://git@example.com/a.git", []string{"example.com:22 domain_refused"}},
	{"git", "git ls-remote https://example.com/a.git", []string{refusedExample}},
	{"python3", "/usr/bin/python3 -c \"import urllib.request; urllib.request.urlopen('https://example.com/')\"", []string{refusedExample}},
	{"python3", "/usr/bin/python3 -c \"import urllib.request; urllib.request.urlopen('http://example.com/')\"", []string{"example.com:80 domain_refused"}},
	{"python3", "/usr/bin/python3 -c \"import socket; socket.create_connection(('example.com', 443))\"", []string{" not_by_proxy"}}, // names no host
	{"python3", "/usr/bin/python3 -c \"import socket; socket.create_connection(('192.0.2.1', 443))\"", []string{" not_by_proxy"}},
	{"bash", "exec 3<>/dev/tcp/example.com/443", []string{"example.com domain_refused"}},
	{"psql", "psql -h example.com -U x -c ''", []string{"example.com domain_refused"}},
	{"node", "node -e \"require('dns').lookup('allowed.invalid', (e) => { throw e })\"", []string{"allowed.invalid not_by_proxy"}},
	{"node", "node -e \"require('dns').lookup('example.com', (e) => { throw e })\"", []string{"example.com domain_refused"}},
	{"go", "GOPROXY=https://example.com GOFLAGS=-mod=mod go run example.com/x@latest", []string{refusedExample}},
	{"ssh", "ssh -o BatchMode=yes example.com true", []string{"example.com domain_refused"}},
	{"pip", "/usr/bin/python3 -m pip download --retries 0 --index-url https://example.com/simple nothing", []string{refusedExample}},
	{"pip", "/usr/bin/python3 -m pip download --retries 0 nothing", []string{"pypi.org:443 domain_refused"}},
	{"npm", "npm view --registry https://example.com/ --fetch-retries 0 nothing", []string{refusedExample}},

	{"curl", "curl -sS https://allowed.invalid/", nil},
	{"curl", "curl -s https://example.com/ >/dev/null; ls nothing", nil},
	{"curl", "curl -sS https://example.com/; ls nothing", nil},
	{"curl", "curl -sS https://example.com/ || cat nothing", nil},
	{"curl", "curl -s https://example.com/ >/dev/null; /usr/bin/python3 -c 'assert False'", nil},
	{"curl", "curl -sS http://127.0.0.1:9/", nil},
	{"curl", "curl -sS http://localhost:9/", nil},
	{"curl", "curl -sS 'http://[/'", nil},
	{"python3", "/usr/bin/python3 -m http.server 8099 --bind 127.0.0.1 >/dev/null 2>&1 & until curl -s http://127.0.0.1:8099/ >/dev/null; do :; done; curl -sSf http://127.0.0.1:8099/nothing", nil},
	{"ssh", "ssh -p 9 127.0.0.1 true", nil},
	{"cat", "cat {other}/f.txt", []string{file}},
}

var disabledCases = []failing{
	{"curl", "curl -sS https://example.com/", []string{"example.com network_disabled"}},
	{"wget", "wget -O- https://example.com/", []string{"example.com network_disabled"}},
	{"git", "git clone https://example.com/a.git", []string{"example.com network_disabled"}},
	{"git", "git clone ssh://git@example.com/a.git", []string{"example.com network_disabled"}},
	{"node", "node -e \"require('https').get('https://example.com/')\"", []string{"example.com network_disabled"}},
	{"ssh", "ssh -o BatchMode=yes example.com true", []string{"example.com network_disabled"}},
	{"go", "GOPROXY=https://example.com GOFLAGS=-mod=mod go run example.com/x@latest", []string{"example.com network_disabled"}},
	{"curl", "curl -sS http://127.0.0.1:9/", nil},
	{"curl", "curl -sS http://localhost:9/", nil},
	{"curl", "curl -s https://example.com/; ls nothing", nil},
}

func TestWhichDomainACommandLacked(t *testing.T) {
	h := newHost(t)
	for i, v := range h.profile.Environment {
		if v.Name == "GOPROXY" || v.Name == "GOFLAGS" {
			h.profile.Environment[i].Value = ""
		}
	}
	h.profile.Network = profile.NetworkFiltered
	rule, err := profile.ParseDomainRule("allowed.invalid")
	if err != nil {
		t.Fatal(err)
	}
	h.profile.Domains.Allowed = []profile.DomainRule{rule}
	t.Run("filtered", func(t *testing.T) { h.try(t, filteredCases) })
	h.profile.Network = profile.NetworkDisabled
	t.Run("disabled", func(t *testing.T) { h.try(t, disabledCases) })
	h.profile.Network = profile.NetworkEnabled
	t.Run("enabled", func(t *testing.T) {
		h.try(t, []failing{{"curl", "curl -sS https://nothing.invalid/", nil}, {"git", "git clone https://nothing.invalid/a.git", nil}})
	})
}

// TestOfWhatMustStayUntoldNothingIsSaid: whoever prints a path must not learn from the answer what
// is there.
func TestOfWhatMustStayUntoldNothingIsSaid(t *testing.T) {
	h := newHost(t)
	plan := h.build()
	asked := func(path string, own ...string) []string {
		return wordsOf(Of(Failure{Plan: &plan, ExitCode: 1, Command: []string{"cat", path}, Own: own, Stderr: []byte("cat: " + path + ": No such file or directory\n")}))
	}
	there, nothing := asked(h.home+"/.ssh/id_ed25519"), asked(h.home+"/.ssh/id_nothing")
	if !slices.Equal(there, nothing) || len(there) != 1 {
		t.Errorf("a key that is there: %q; one that is not: %q", there, nothing)
	}
	there, nothing = asked(h.home+"/.aws/credentials"), asked(h.home+"/.kube/config")
	if len(there) != 1 || len(nothing) != 1 {
		t.Errorf("a store that is there: %q; one that is not: %q", there, nothing)
	}
	if list := asked(h.other+"/f.txt", h.other); list != nil {
		t.Errorf("of our own directories: %q", list)
	}
	if list := asked("/proc/1/environ"); list != nil {
		t.Errorf("of what is never granted: %q", list)
	}
	if list := asked(h.other + "/f.txt"); len(list) != 1 {
		t.Errorf("of what may be asked for: %q", list)
	}
}
