package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clairun/clai-sandbox/profile"
)

// withoutHome takes the grant of the home away.
func (h *host) withoutHome(is profile.Home, dir string) {
	h.profile.Grants = h.profile.Grants[1:]
	h.profile.HomeIs, h.profile.PrivateHome, h.profile.HomeOrigin = is, dir, profile.Origin{Kind: profile.OriginDefault, Source: "home"}
}

func TestAHomeOfTheAgentsOwnLasts(t *testing.T) {
	needMounts(t)
	h := newHost(t)
	secret := h.write(filepath.Join(h.profile.Home, "secret"), "a person's")
	own := h.mkdir(filepath.Join(h.outside(), "own"))
	h.withoutHome(profile.HomePrivate, own)
	h.sh(`test "$(ls -A ~)" = work && echo kept > ~/.toolrc && mkdir -p ~/.cache/go && echo done > ~/work/file`)
	if got := h.sh("cat ~/.toolrc ~/work/file"); got != "kept\ndone\n" {
		t.Errorf("%q", got)
	}
	h.refused("cat " + secret)
	h.refused("mv ~/work ~/elsewhere")
	for name, want := range map[string]bool{".toolrc": false, ".cache": false, "work/file": true} {
		if _, err := os.Stat(filepath.Join(h.profile.Home, name)); (err == nil) != want {
			t.Errorf("%s on the host: %v", name, err)
		}
	}
	h.profile.PrivateHome = h.mkdir(filepath.Join(h.outside(), "another"))
	h.refused("cat ~/.toolrc")
}

func TestAnEphemeralHomeIsGoneWithTheSandbox(t *testing.T) {
	h := newHost(t)
	h.withoutHome(profile.HomeEphemeral, h.mkdir(filepath.Join(h.outside(), "own")))
	h.sh("echo x > ~/file && cat ~/file")
	h.refused("cat ~/file")
	if left, _ := os.ReadDir(filepath.Join(h.outside(), "own")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// What an earlier command put into the home leads no mount out of the sandbox, and keeps no grant
// from being seen.
func TestALinkInAHomeOfTheAgentsOwnLeadsNoMountOutside(t *testing.T) {
	needMounts(t)
	h := newHost(t)
	outside := h.mkdir(filepath.Join(h.outside(), "target"))
	h.withoutHome(profile.HomePrivate, h.mkdir(filepath.Join(h.outside(), "own")))
	work := h.profile.Workspace
	h.profile.Workspace, h.profile.WorkingDirectory = h.mkdir(filepath.Join(h.outside(), "w")), filepath.Join(h.outside(), "w")
	h.profile.Grants[0].Path = h.profile.Workspace
	h.sh("ln -s " + outside + " ~/work; echo mine > ~/data")
	deep := h.write(filepath.Join(h.profile.Home, "data", "deep", "file"), "granted")
	h.profile.Grants = append(h.profile.Grants,
		profile.Grant{Path: work, Access: profile.ReadWrite, Origin: profile.Origin{Kind: profile.OriginFlag}},
		profile.Grant{Path: filepath.Dir(deep), Access: profile.ReadOnly, Origin: profile.Origin{Kind: profile.OriginFlag}})
	h.sh("echo x > ~/work/made; grep -q granted " + deep)
	if _, err := os.Stat(filepath.Join(work, "made")); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(outside); len(left) > 0 {
		t.Errorf("made outside: %v", left)
	}
	if got := h.sh("cat ~/data.set-aside-*"); strings.TrimSpace(got) != "mine" {
		t.Errorf("%q", got)
	}
}

// bwrap by itself mounts by names, and would follow what an earlier command left in a home that
// lasts.
func TestWithoutAMounterNoHomeLasts(t *testing.T) {
	h := newHost(t)
	h.launcher.byBwrap = true
	own, outside := h.mkdir(filepath.Join(h.outside(), "own")), h.mkdir(filepath.Join(h.outside(), "target"))
	h.withoutHome(profile.HomePrivate, own)
	h.symlink(outside, filepath.Join(own, "work"))
	r := h.run("/bin/sh", "-c", "touch ~/here ~/work/made && ls ~")
	if r.Failure != nil || r.Out != "here\nwork\n" {
		t.Errorf("%v: %s%s", r.Failure, r.Out, r.Err)
	}
	if _, err := os.Stat(filepath.Join(h.profile.Workspace, "made")); err != nil {
		t.Error(err)
	}
	for _, dir := range []string{outside, own} {
		if left, _ := os.ReadDir(dir); len(left) > 0 && dir == outside || len(left) > 1 {
			t.Errorf("%s: %v", dir, left)
		}
	}
	if !strings.Contains(fmt.Sprint(r.Result.Notices), "is empty and gone with the sandbox") {
		t.Errorf("%v", r.Result.Notices)
	}
}
