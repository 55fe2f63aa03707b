package brokertest

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/clairun/clai-sandbox/grants"
)

// hiddenPlaces makes, in a directory that the session does not see, one of each kind of thing that
// an answer could tell of, and returns the names.
func (b *Bench) hiddenPlaces(t *testing.T) []string {
	t.Helper()
	b.write(t, "hidden/file")
	b.write(t, "hidden/dir/file")
	b.write(t, "work/own")
	for name, target := range map[string]string{
		"to-what-is-seen": b.Home + "/work/own", "to-the-workspace": "../work", "to-nothing": "nowhere", "up-from-nothing": "nowhere/../file", "round": "round",
		"to-a-process": "/proc/self/cwd", "to-a-process-that-is-none": "/proc/999999999/cwd", "to-proc": "/proc", "to-the-root": "/", "to-run": "/run",
		"to-our-own": b.State, "to-a-file": "file", "to-a-device": "/dev/null", "to-the-system": "/etc/passwd",
	} {
		if err := os.Symlink(target, b.Home+"/hidden/"+name); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(b.Home+"/hidden/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	var list []string
	entries, err := os.ReadDir(b.Home + "/hidden")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		list = append(list, entry.Name())
	}
	return append(list, "not-there", "not-there/either", "file/below-a-file", "dir/file", "to-a-file/below-a-file", "to-what-is-seen/below", "to-the-workspace/own",
		"to-a-process/x", "round/x", "to-our-own/"+grants.DatabaseName)
}

// An agent that asks for what it does not see, by its path or by a link of its own, gets the same
// whatever is there: it waits for a person. The person is told what there is to know.
func tellsNothing(t *testing.T, start starter) {
	b := start(t, Limits{MaxPending: 1000, AskEvery: 1})
	places := b.hiddenPlaces(t)
	s := b.open(t, grants.SessionSpec{Shown: []grants.Shown{{Path: b.Home + "/work", Access: rw}}, Hidden: []string{b.Home + "/work/covered"}})
	b.write(t, "work/covered/file")
	if err := os.Symlink(b.Home+"/work/own", b.Home+"/work/covered/to-what-is-seen"); err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, name := range places {
		paths = append(paths, b.Home+"/hidden/"+name)
	}
	paths = append(paths, b.Home+"/work/covered/file", b.Home+"/work/covered/to-what-is-seen", b.Home+"/work/covered/nothing")
	if err := os.MkdirAll(b.Home+"/work/links", 0o700); err != nil {
		t.Fatal(err)
	}
	links := make([]string, len(paths))
	for i, path := range paths {
		links[i] = b.Home + "/work/links/" + string(rune('a'+i%26)) + string(rune('a'+i/26))
		if err := os.Symlink(path, links[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("links", b.Home+"/work/all"); err != nil {
		t.Fatal(err)
	}
	var waiting []asked
	for i, path := range paths {
		waiting = append(waiting, b.ask(t.Context(), s.ID, path, ro))
		b.pending(t, i+1)
	}
	// A link that the agent sees says what it could have asked for itself: these are the same
	// questions.
	var late []asked
	for i, link := range links {
		late = append(late, b.ask(t.Context(), s.ID, link, ro), b.ask(t.Context(), s.ID, b.Home+"/work/all/"+filepath.Base(links[i]), ro))
	}
	for _, r := range b.pending(t, len(paths)) {
		_, err := b.Decide(t.Context(), r.ID, allowAlways(r.ResolvedPath, ro))
		warned := len(r.Warnings) > 0 && r.Warnings[0].Kind == grants.WarnRefused
		if warned && err == nil {
			t.Errorf("%s, of which the person was told that it cannot be granted, was: %+v", r.RequestedPath, r)
		}
		if err != nil {
			if errors.As(err, new(*grants.EndedError)) {
				continue // granted with what was granted before
			}
			if !warned {
				t.Errorf("%s: the person was not told: %v", r.RequestedPath, err)
			}
			b.decide(t, r.ID, grants.Decision{})
		}
	}
	for _, a := range waiting {
		a.wait(t)
	}
	for _, a := range late { // one that came when all was decided is about what is seen by now
		select {
		case <-a.answer:
		case <-a.err:
		case <-time.After(timeout):
			t.Fatal("no answer")
		}
	}
}

// What an agent sees is told at once.
func followsWhatIsSeen(t *testing.T, start starter) {
	b := start(t, Limits{})
	b.write(t, "work/file")
	b.write(t, "lib/file")
	os.Symlink("../lib", b.Home+"/work/link")
	os.Symlink("work", b.Home+"/name")
	os.Symlink("../name/link/file", b.Home+"/work/through")
	os.Symlink("/proc/self/fd", b.Home+"/work/process")
	s := b.open(t, grants.SessionSpec{Shown: []grants.Shown{{Path: b.Home + "/work", Access: rw}, {Path: b.Home + "/lib", Access: ro}}, Links: []string{b.Home + "/name"}})
	for _, path := range []string{"~/work", "~/work/file", "~/work/none", "~/work/link", "~/work/link/file", "~/name/link/file", "~/work/through", "~/lib/none"} {
		if answer := b.must(t, s.ID, path, ro); !answer.Granted || answer.Scope != grants.ScopeAlready {
			t.Errorf("%s: %+v", path, answer)
		}
	}
	if answer := b.must(t, s.ID, "~/work/process/0", ro); answer.Outcome != grants.OutcomeNever {
		t.Errorf("%+v", answer)
	}
	for _, path := range []string{"~/work/file/x"} {
		if _, err := b.Ask(t.Context(), s.ID, grants.Asking{Path: path, Access: ro}); err == nil {
			t.Errorf("%s is no path, and is told to be none by any program", path)
		}
	}
	b.pending(t, 0)
}
