package protect

import (
	"fmt"
	"os"
	"testing"
)

// bigTree makes directories with a few files each.
func bigTree(b testing.TB, directories int) string {
	dir := b.TempDir()
	for i := range directories {
		d := fmt.Sprintf("%s/d%d/e%d", dir, i/100, i%100)
		if err := os.MkdirAll(d, 0o755); err != nil {
			b.Fatal(err)
		}
		for j := range 5 {
			os.WriteFile(fmt.Sprintf("%s/f%d", d, j), nil, 0o644)
		}
	}
	return dir
}

var someNames = NewNames([]Name{{Path: ".envrc"}, {Path: ".vscode"}, {Path: ".cargo/config.toml"}}, []string{"node_modules"})

func BenchmarkScan(b *testing.B) {
	for _, n := range []int{10, 5000} {
		dir := bigTree(b, n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				r := someNames.Scan(dir, nil, DefaultLimits, nil)
				if r.Directories < n {
					b.Fatal(r.Directories)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(n), "µs/directory")
		})
	}
}

func BenchmarkPrepare(b *testing.B) {
	for _, n := range []int{10, 5000} {
		dir := bigTree(b, n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				w, err := NewWatch()
				if err != nil {
					b.Fatal(err)
				}
				if _, _, err := w.Prepare(Options{Roots: []string{dir}, Names: someNames}); err != nil || len(w.nodes) < n {
					b.Fatal(err, len(w.nodes))
				}
				b.StopTimer()
				w.Close()
				b.StartTimer()
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(n), "µs/directory")
		})
	}
}
