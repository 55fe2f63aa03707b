package changes

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// BenchmarkWorkspace lists, compares and applies a workspace of 100,000 files, of which a command
// changed each tenth, and one that it wrote as a whole. It tells each time once: go test -run xxx
// -bench Workspace -benchtime 1x ./sandbox/cow/changes
func BenchmarkWorkspace(b *testing.B) {
	const files = 100_000
	for _, c := range []struct {
		name         string
		host, change int // one of so many
	}{{"ATenthIsChanged", 1, 10}, {"AllIsNew", 0, 1}} {
		b.Run(c.name, func(b *testing.B) {
			for range b.N {
				bench := newBench(b)
				name := func(i int) string { return fmt.Sprintf("d%d/e%d/f%d", i%100, i/100%10, i) }
				for i := range files {
					if c.host > 0 {
						bench.write(bench.host+"/"+name(i), "package main\n\nfunc main() {}\n")
					}
				}
				bench.begin()
				for i := range files {
					if i%c.change == 0 {
						bench.write(bench.upper+"/"+name(i), "package main\n\nfunc main() { println() }\n")
					}
				}
				layer := bench.layer()
				at := time.Now()
				lap := func(unit string) {
					b.ReportMetric(time.Since(at).Seconds(), unit)
					at = time.Now()
				}
				r := bench.review()
				lap("s/list")
				shown := 0
				if err := layer.Diffs(b.Context(), r, nil, func(Change, Difference) bool { shown++; return true }); err != nil {
					b.Fatal(err)
				}
				lap("s/diff")
				if _, err := layer.Apply(b.Context(), Selection{DryRun: true}); err != nil {
					b.Fatal(err)
				}
				lap("s/dry-run")
				result, err := layer.Apply(b.Context(), Selection{})
				if err != nil || len(result.Skipped) > 0 {
					b.Fatal(result, err)
				}
				lap("s/apply")
				b.ReportMetric(float64(len(r.Changes)), "changes")
				os.RemoveAll(bench.host)
			}
		})
	}
}
