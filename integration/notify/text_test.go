package notify

import (
	"strings"
	"testing"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/profile/text"
)

// Nothing of a request's is in a notification unseen, and what is escaped there has no button to
// allow it.
func TestNoTextOfOthersIsHiddenInANotification(t *testing.T) {
	for _, odd := range []string{"\u3164", "\u2800", "\ufe0f", "\u202e", "\u05d0\u05d1", "\u0627", "\u00a0", "\u2215", "\x1b[2J", "\xff", "\ufffd", `\u202e`} {
		r := grants.Request{Agent: "main", RequestedPath: "/data/a" + odd, ResolvedPath: "/data/a" + odd}
		if plain(r) {
			t.Errorf("%q: it could be allowed by a button", odd)
		}
		r.Reason, r.ResolvedPath, r.Warnings = odd+" is why", "/else"+odd, []grants.Warning{{Text: "something" + odd}}
		for line := range strings.SplitSeq((&desktop{}).body(r), "\n") {
			if !text.Plain(line) {
				t.Errorf("%q: %q", odd, line)
			}
		}
	}
	command := grants.Request{Outside: &grants.CommandRequest{Text: "rm\x1b -r x"}}
	if text := (&desktop{}).body(command); plain(command) || !strings.Contains(text, `rm\x1b -r x`) || strings.Contains(text, "\x1b") {
		t.Errorf("a command is answered by a button, or not shown: %q", text)
	}
	connection := grants.Request{Domain: &grants.DomainRequest{To: "api.example.org:443", Rules: []grants.DomainChoice{{Rule: "api.example.org:443"}}}}
	if text := (&desktop{}).body(connection); !plain(connection) || !strings.HasPrefix(text, "api.example.org:443\n") {
		t.Errorf("a connection: %q", text)
	}
	if connection.Warnings = []grants.Warning{{Text: "something"}}; plain(connection) {
		t.Error("a connection with a warning is answered by a button")
	}
	if !plain(grants.Request{RequestedPath: "/data/ü", ResolvedPath: "/data/ü"}) {
		t.Error("nor a plain one")
	}
}
