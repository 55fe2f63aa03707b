package agents

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clairun/clai-sandbox/profile/preset"
)

// What the sandbox adds to the start of an agent: each round starts it outside and inside, with the
// same arguments, one right after the other. The gateway runs already.
func BenchmarkStartOfClaude(b *testing.B) {
	m := newMachine(b, installed(b, "claude"))
	m.start("clai-sandbox", nil, m.command, "gateway", "--no-notify")
	m.until("the gateway listens", func() bool {
		found, _ := filepath.Glob(m.base + "/run/clai-sandbox/*/gateway.sock")
		return len(found) > 0
	})
	path := filepath.Dir(m.agent) + ":" + m.env["PATH"]
	start := func(argv ...string) time.Duration {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Dir, cmd.Env = m.work, m.environment(map[string]string{"PATH": path})
		began := time.Now()
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("%v: %v: %s", argv, err, out)
		}
		return time.Since(began)
	}
	presets, err := preset.Load("")
	if err == nil {
		presets, err = preset.Find(presets, "claude")
	}
	if err != nil {
		b.Fatal(err)
	}
	// With the preset's arguments: without them, it prints its version before it has started.
	words := append(presets[0].Words(strings.Repeat("about a sandbox ", 100), ""), "--version")
	outside := func() time.Duration {
		return start(slices.Concat([]string{"env", "IS_SANDBOX=1", m.agent}, words)...)
	}
	inside := func() time.Duration { return start(m.command, "agent", "claude", "--", "--version") }
	outside()
	inside() // its home is made
	var alone, more []time.Duration
	for i := 0; b.Loop(); i++ {
		var first, second time.Duration
		if i%2 == 0 {
			first, second = outside(), inside()
		} else {
			second, first = inside(), outside()
		}
		alone, more = append(alone, first), append(more, second-first)
	}
	slices.Sort(alone)
	slices.Sort(more)
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	b.ReportMetric(ms(alone[len(alone)/2]), "ms-outside")
	b.ReportMetric(ms(more[len(more)/2]), "ms-more-by-median")
	b.ReportMetric(ms(more[0]), "ms-more-at-least")
	b.ReportMetric(0, "ns/op")
}
