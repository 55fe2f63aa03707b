package store

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/clairun/clai-sandbox/grants"
)

// crowd stores ten thousand grants of five hundred agents.
func crowd(b *testing.B) (*Store, string) {
	b.Helper()
	dir := b.TempDir()
	s := open(b, dir)
	var list []grants.Grant
	for agent := range 500 {
		for n := range 20 {
			list = append(list, newGrant(fmt.Sprint("agent-", agent), fmt.Sprint("g-", agent, "-", n), fmt.Sprint("/home/user/projects/", agent, "/some/directory/", n)))
		}
	}
	apply(b, s, Change{Put: list})
	return s, dir
}

func BenchmarkReadSnapshotOfTenThousand(b *testing.B) {
	_, dir := crowd(b)
	for b.Loop() {
		if list, err := grants.ReadSnapshot(dir, "agent-499"); err != nil || len(list) != 20 {
			b.Fatal(len(list), err)
		}
	}
}

// What a run of an agent with twenty stored grants pays, with the look at each and the word that it
// leaves.
func BenchmarkRunWithTwentyOfTenThousand(b *testing.B) {
	s, dir := crowd(b)
	home := b.TempDir()
	var list []grants.Grant
	for n := range 20 {
		path := fmt.Sprint(home, "/some/directory/", n)
		if err := os.MkdirAll(path, 0o700); err != nil {
			b.Fatal(err)
		}
		place, err := grants.Resolve(path)
		if err != nil {
			b.Fatal(err)
		}
		g := newGrant("agent-7", fmt.Sprint("g-7-", n), path)
		g.Resolved, g.Object = place.Resolved, place.Object
		list = append(list, g)
	}
	apply(b, s, Change{Put: list})
	for b.Loop() {
		if shown, notices := grants.Current(dir, "agent-7", time.Now()); len(shown) != 20 {
			b.Fatal(len(shown), notices)
		}
	}
}

func BenchmarkReadSnapshotWithNothingStored(b *testing.B) {
	dir := b.TempDir()
	for b.Loop() {
		if _, err := grants.ReadSnapshot(dir, "main"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkStoreOneMoreThanTenThousand(b *testing.B) {
	s, _ := crowd(b)
	n := 0
	for b.Loop() {
		n++
		apply(b, s, Change{Put: []grants.Grant{newGrant("agent-7", fmt.Sprint("more-", n%20), "/a")}})
	}
}

func BenchmarkListTenThousand(b *testing.B) {
	s, _ := crowd(b)
	for b.Loop() {
		if all, err := s.Grants(); err != nil || len(all) != 10000 {
			b.Fatal(len(all), err)
		}
	}
}
