package profile

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestRoomsImportOnlyWhatTheyMay holds the arrows of docs/architecture.md. They go one way.
func TestRoomsImportOnlyWhatTheyMay(t *testing.T) {
	const module = "github.com/clairun/clai-sandbox/"
	for room, may := range map[string][]string{
		"profile/variables":          {}, // one list for all
		"profile":                    {},
		"profile/text":               {},
		"sandbox/egress":             {"profile"},
		"sandbox/trampoline":         {},
		"sandbox/seccomp":            {},
		"sandbox/mounts":             {"sandbox/trampoline"},
		"sandbox/server":             {"sandbox/trampoline"},
		"sandbox/protect":            {},
		"sandbox/repository":         {},
		"sandbox/cow":                {"sandbox/mounts", "sandbox/trampoline"},
		"sandbox":                    {"profile", "sandbox/cow", "sandbox/cow/changes", "sandbox/image", "sandbox/egress", "sandbox/mounts", "sandbox/protect", "sandbox/repository", "sandbox/server", "sandbox/trampoline"},
		"sandbox/image":              {"profile"},
		"sandbox/image/unpack":       {"profile", "sandbox/image"},
		"sandbox/image/store":        {"profile", "sandbox/image", "sandbox/image/unpack"},
		"sandbox/cow/changes":        {"profile", "sandbox/cow", "sandbox/mounts", "sandbox/trampoline"},
		"sandbox/cow/changes/screen": {"profile", "sandbox/cow", "sandbox/cow/changes", "sandbox/mounts", "sandbox/trampoline"},
		"grants":                     {"profile"},
		"grants/store":               {"profile", "grants"},
		"grants/broker":              {"profile", "audit", "grants", "grants/store"},
		"grants/client":              {"profile", "grants"},
		"grants/server":              {"profile", "grants", "wire"},
		"audit":                      {},
		"profile/aside":              {},
		"profile/written":            {},
		"wire":                       {},
		"wire/socket":                {},
		"integration/gateway":        {"profile", "audit", "sandbox", "sandbox/cow", "sandbox/cow/changes", "sandbox/image", "sandbox/egress", "sandbox/mounts", "sandbox/protect", "sandbox/repository", "sandbox/server", "sandbox/trampoline", "grants", "grants/store", "grants/broker", "grants/server", "wire", "integration/notify", "policy", "policy/host", "outside", "outside/container", "outside/door", "outside/runner"},
		"integration/instructions":   {"profile", "sandbox", "sandbox/cow", "sandbox/cow/changes", "sandbox/image", "sandbox/egress", "sandbox/mounts", "sandbox/protect", "sandbox/repository", "sandbox/server", "sandbox/trampoline"},
		"integration/mcp":            {"profile", "sandbox", "sandbox/cow", "sandbox/cow/changes", "sandbox/image", "sandbox/egress", "sandbox/mounts", "sandbox/protect", "sandbox/repository", "sandbox/server", "sandbox/trampoline", "sandbox/lack", "grants", "integration/session", "integration/instructions", "integration/mcp/files", "integration/rooms", "integration/peer"},
		"integration/notify":         {"profile", "grants"},
		"integration/peer":           {},
		"integration/rooms":          {"profile", "sandbox", "sandbox/cow", "sandbox/cow/changes", "sandbox/image", "sandbox/egress", "sandbox/mounts", "sandbox/protect", "sandbox/repository", "sandbox/server", "sandbox/trampoline", "grants", "integration/peer"},
		"grants/review":              {"profile", "grants"},
		"integration/session":        {"profile", "sandbox", "sandbox/cow", "sandbox/cow/changes", "sandbox/image", "sandbox/egress", "sandbox/mounts", "sandbox/protect", "sandbox/repository", "sandbox/server", "sandbox/trampoline", "grants"},
		"cmd/clai-sandbox":           {"profile", "sandbox", "sandbox/lack", "sandbox/cow", "sandbox/cow/changes", "sandbox/image", "sandbox/egress", "sandbox/mounts", "sandbox/protect", "sandbox/repository", "sandbox/server", "sandbox/trampoline", "grants", "grants/client", "integration/session", "integration/instructions", "integration/rooms", "integration/peer", "cmd/hosted"},
		"policy":                     {},
		"policy/host":                {"profile", "policy"},
		"outside/container":          {},
		"outside/door":               {"profile", "audit", "grants", "grants/store", "grants/broker", "policy", "policy/host", "outside", "outside/container", "outside/runner"},
		"outside":                    {"profile", "audit", "grants", "grants/store", "grants/broker", "policy", "policy/host", "outside/runner"},
		"outside/runner":             {"profile", "policy", "policy/host"},
		"cmd/hosted":                 {"profile"},
		// What runs inside a sandbox starts with every call of a file tool.
		"integration/mcp/files": {},
		"sandbox/lack":          {"profile", "sandbox", "sandbox/cow", "sandbox/cow/changes", "sandbox/image", "sandbox/egress", "sandbox/mounts", "sandbox/protect", "sandbox/repository", "sandbox/server", "sandbox/trampoline"},
	} {
		out, err := exec.Command("go", "list", "-tags", "urfave_cli_no_docs", "-deps", module+room).CombinedOutput()
		if err != nil {
			t.Fatalf("go list: %v\n%s", err, out)
		}
		for dependency := range strings.FieldsSeq(string(out)) {
			other, ours := strings.CutPrefix(dependency, module)
			if ours && other != room && other != "profile/text" && other != "wire/socket" && other != "profile/aside" && other != "profile/written" && other != "profile/variables" && other != "sandbox/seccomp" && !slices.Contains(may, other) {
				t.Errorf("%s imports %s", room, other)
			}
			if room == "wire" || room == "grants/server" || room == "grants/store" || room == "grants/broker" || room == "grants/review" || room == "sandbox/cow/changes/screen" || room == "sandbox/image/store" || room == "integration/notify" || room == "integration/mcp" || room == "integration/gateway" ||
				room == "policy" || room == "policy/host" || strings.HasPrefix(room, "outside") {
				continue // the daemon's
			}
			// What a start of the command does not need is not linked into it.
			for _, heavy := range []string{"net/http", "crypto/tls", "github.com/google/jsonschema-go", "github.com/cpuguy83/go-md2man", "github.com/containers/storage", "go.etcd.io/bbolt", "charm.land", "github.com/godbus", "mvdan.cc/sh"} {
				if strings.HasPrefix(dependency, heavy) {
					t.Errorf("%s links %s", room, dependency)
				}
			}
		}
	}
}
