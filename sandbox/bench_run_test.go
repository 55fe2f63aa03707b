package sandbox

import (
	"context"
	"fmt"
	"testing"

	"github.com/clairun/clai-sandbox/profile"
)

// BenchmarkRun is a whole run of /bin/true, with grants that no ancestor covers, and with a home of
// many entries.
func BenchmarkRun(b *testing.B) {
	for _, c := range []struct{ grants, entries int }{{0, 0}, {20, 0}, {200, 0}, {2000, 0}, {0, 250}} {
		b.Run(fmt.Sprintf("grants=%d,entries=%d", c.grants, c.entries), func(b *testing.B) {
			h := newHost(b)
			base := newDirectory(b)
			for i := range c.grants {
				h.grant(h.mkdir(fmt.Sprintf("%s/%d", base, i)), profile.ReadOnly)
			}
			for i := range c.entries {
				h.mkdir(fmt.Sprintf("%s/.config/%d", h.profile.Home, i))
			}
			h.launcher.State = newDirectory(b) // where the records of runs are
			plan := h.build()
			for b.Loop() {
				if _, err := h.launcher.Run(context.Background(), plan, []string{"/bin/true"}, Stdio{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
