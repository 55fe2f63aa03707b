package sandbox

import (
	"fmt"
	"testing"

	"github.com/clairun/clai-sandbox/profile"
)

// BenchmarkPlan is the launcher's own share of a run that grows with the grants: following,
// ordering, opening.
func BenchmarkPlan(b *testing.B) {
	for _, grants := range []int{0, 20, 200} {
		b.Run(fmt.Sprintf("grants=%d", grants), func(b *testing.B) {
			h := newHost(b)
			for i := range grants {
				h.grant(h.mkdir(fmt.Sprintf("%s/many/%d", h.profile.Home, i)), profile.ReadWrite)
			}
			for b.Loop() {
				plan, err := Build(h.profile, Host{})
				if err != nil {
					b.Fatal(err)
				}
				a, err := h.launcher.prepare(&plan, []string{"/bin/true"})
				if err != nil {
					b.Fatal(err)
				}
				a.close()
			}
		})
	}
}
