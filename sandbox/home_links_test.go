package sandbox

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What was seen of the home's directories is remembered, and counts as long as a directory has not
// changed.
func TestWhatIsRememberedOfTheHomeIsNoOlderThanItsDirectories(t *testing.T) {
	h := newHost(t)
	deep := h.mkdir(h.profile.Home + "/.config/a/b/c")
	for _, name := range []string{"x", "y", "z"} {
		h.write(h.profile.Workspace+"/"+name, "")
	}
	h.symlink(h.profile.Workspace+"/x", deep+"/x")
	settled := func() {
		var stat unix.Stat_t
		waitUntil(t, "the directory's time of change is past", func() bool {
			return unix.Lstat(deep, &stat) == nil && time.Since(time.Unix(0, stat.Ctim.Nano())) > time.Second
		})
	}
	protected := func() (list []string) {
		plan := h.build()
		for _, name := range []string{"x", "y", "z"} {
			if plan.Protection.guards[h.profile.Workspace+"/"+name] {
				list = append(list, name)
			}
		}
		return list
	}
	settled()
	first, again := protected(), protected()
	if memory, err := os.ReadFile(h.launcher.State + "/" + homeLinksName); err != nil || !strings.Contains(string(memory), deep+"\x00") {
		t.Errorf("nothing is remembered: %v %q", err, memory)
	}
	h.symlink(h.profile.Workspace+"/y", deep+"/y")
	added := protected()
	settled()
	protected()
	h.mkdir(h.profile.Home + "/other/c")
	h.symlink(h.profile.Workspace+"/z", h.profile.Home+"/other/c/z")
	os.Remove(deep + "/x")
	os.Remove(deep + "/y")
	os.Remove(deep)
	if err := os.Rename(h.profile.Home+"/other/c", deep); err != nil {
		t.Fatal(err)
	}
	replaced := protected()
	for i, got := range [][]string{first, again, added, replaced} {
		if want := [][]string{{"x"}, {"x"}, {"x", "y"}, {"z"}}[i]; !slices.Equal(got, want) {
			t.Errorf("%d: %q, wanted %q", i, got, want)
		}
	}
	for _, broken := range []string{"", "1\x00", "1\x00" + deep + "\x00", "1\x00" + deep + "\x00x\x00-1", "1\x00" + deep + "\x00x\x0099999999\x00", "2\x00x"} {
		h.write(h.launcher.State+"/"+homeLinksName, broken)
		if got := protected(); !slices.Equal(got, []string{"z"}) {
			t.Errorf("%q: %q", broken, got)
		}
	}
}

// Of each program so many directories are looked through, the shallow ones first, and what is not
// is said.
func TestTheHomeIsLookedThroughUpToABound(t *testing.T) {
	h := newHost(t)
	for i := range maxHomeUnit + 5 {
		h.mkdir(fmt.Sprintf("%s/.large/a/%03d", h.profile.Home, i))
	}
	for path, name := range map[string]string{".large/link": "x", ".zsh/a/b/link": "y", "bin/link": "z", ".local/bin/link": "z", ".nvm/node_modules/link": "z"} {
		h.symlink(h.write(h.profile.Workspace+"/"+name, ""), h.profile.Home+"/"+path)
	}
	plan := h.build()
	for name, want := range map[string]bool{"x": true, "y": true, "z": false} {
		if plan.Protection.guards[h.profile.Workspace+"/"+name] != want {
			t.Errorf("%s: %v", name, !want)
		}
	}
	if len(plan.Protection.unseen) != 7 || !strings.Contains(strings.Join(Protections(&plan), "\n"), "/.large/a/") {
		t.Errorf("%q %q", plan.Protection.unseen, Protections(&plan))
	}
}
