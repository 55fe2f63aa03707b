package review

import (
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/profile/text"
)

// Nothing of a request's reaches the screen unseen, or looks like what it is not, wherever it
// stands.
func TestNoTextOfOthersIsHiddenOnTheScreen(t *testing.T) {
	const wide = 400
	for _, odd := range []string{"\u3164", "\u2800", "\ufe0f", "\u202e", "\u05d0\u05d1", "\u0627", "\u00a0", "\u2215", "\x1b[2J", "\u0301\u0302\u0303\u0304\u0305", "\xff", "\ufffd"} {
		r := request("r1", "/data/a"+odd+"b")
		r.Agent, r.Reason, r.Command, r.Workspace = "ma"+odd+"in", "to "+odd+"work", "make "+odd+"x", "/home/"+odd+"you"
		r.ResolvedPath = "/else/a" + odd + "b"
		r.Warnings = []grants.Warning{{Text: "something " + odd + "else"}}
		d := newDesk(t, r)
		d.send(tea.WindowSizeMsg{Width: wide, Height: 60})
		for line := range strings.Lines(d.screen()) {
			line = strings.NewReplacer(bold, "", plain, "", "\n", "").Replace(line)
			if !text.Plain(line) {
				t.Errorf("%q: %q", odd, line)
			}
		}
	}
	// What is typed as an escape is not shown as the character's.
	d := newDesk(t, request("r1", "/data/\u202e"), request("r2", `/data/\u202e`))
	d.send(tea.WindowSizeMsg{Width: wide, Height: 60})
	first := d.screen()
	d.keys("j")
	if second := d.screen(); strings.Contains(first, `"/data/\u202e"`) == strings.Contains(second, `"/data/\u202e"`) {
		t.Errorf("both look the same:\n%s\n%s", first, second)
	}
}
