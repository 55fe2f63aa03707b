package cow

import (
	"path/filepath"
	"testing"

	"github.com/clairun/clai-sandbox/profile/shut/shuttest"
)

// What a start pays for a layer; for one of a cache nothing is noted.
func BenchmarkOpen(b *testing.B) {
	for name, cache := range map[string]bool{"workspace": false, "cache": true} {
		b.Run(name, func(b *testing.B) {
			dir, about := filepath.Join(shuttest.Directory(b), "layer"), About{Path: b.TempDir(), Cache: cache}
			for b.Loop() {
				l, err := Open(dir, about, 0o755)
				if err != nil {
					b.Fatal(err)
				}
				l.Close()
			}
		})
	}
}
