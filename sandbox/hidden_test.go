package sandbox

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clairun/clai-sandbox/profile"
)

// hiddenHost is a host whose home has a secret in each way that one may lie there.
func hiddenHost(t *testing.T) *host {
	h := newHost(t)
	at := func(name string) string { return filepath.Join(h.profile.Home, name) }
	h.write(at(".ssh/id_ed25519"), "secret")
	h.write(at(".ssh/id_ed25519.pub"), "public")
	h.write(at(".ssh/config"), "Host example")
	h.write(at(".ssh/config.d/work"), "Host work")
	h.write(at(".aws/credentials"), "secret")
	h.write(at(".netrc"), "secret")
	h.write(at("elsewhere/token"), "secret")
	h.symlink(at("elsewhere"), at(".kube"))
	h.symlink("nowhere", at(".pypirc"))
	h.mkdir(at(".config/gh"))
	for _, name := range []string{".ssh", ".aws", ".netrc", ".kube", ".pypirc", ".npmrc", ".config/gh", ".azure/none"} {
		hidden := profile.HiddenPath{Path: at(name), Origin: profile.Origin{Kind: profile.OriginDefault, Source: "hiddenPaths"}}
		if name == ".ssh" {
			hidden.Keep = []string{"config", "config.d/*", "*.pub", "known_hosts"}
		}
		h.profile.Hidden = append(h.profile.Hidden, hidden)
	}
	return h
}

// tree lists all of a directory, with the contents of files.
func tree(t *testing.T, dir string) string {
	t.Helper()
	out, err := exec.Command("sh", "-c", `cd "$1" && find . -printf '%p %y %m %l\n' | sort && find . -type f -exec cat {} +`, "sh", dir).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

func TestHiddenPathsAreAbsentOrEmptyAndTheHostIsAsBefore(t *testing.T) {
	h := hiddenHost(t)
	before := tree(t, h.profile.Home)
	h.refused("grep -r secret ~")
	h.refused("cat ~/.ssh/id_ed25519 ~/.aws/credentials ~/elsewhere/token ~/.kube/token")
	h.refused("test -s ~/.netrc")
	if out := h.sh("cat ~/.ssh/id_ed25519.pub ~/.ssh/config ~/.ssh/config.d/work"); out != "publicHost exampleHost work" {
		t.Errorf("what is no secret of ~/.ssh: %q", out)
	}
	h.refused("echo x > ~/.netrc")
	h.refused("touch ~/.aws/config")
	h.refused("touch ~/.ssh/id_ed25519")
	if after := tree(t, h.profile.Home); after != before {
		t.Errorf("the home has changed:\n%s\nwas:\n%s", after, before)
	}
}

func TestAGrantByNameShowsWhatIsHidden(t *testing.T) {
	for name, c := range map[string]struct {
		path     string
		explicit bool
		shown    bool
	}{
		"the path itself":         {".aws", false, true},
		"something below it":      {".aws/credentials", false, true},
		"above it":                {"", false, false},
		"above it, and explicit":  {"", true, true},
		"another path":            {".config", false, false},
		"another, and explicit":   {".config", true, false},
		"a file by its own name":  {".netrc", false, false},
		"through a symbolic link": {"link", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			h := hiddenHost(t)
			h.symlink(".aws", filepath.Join(h.profile.Home, "link"))
			h.profile.Grants = append(h.profile.Grants, profile.Grant{Path: filepath.Join(h.profile.Home, c.path), Access: profile.ReadOnly,
				Origin: profile.Origin{Kind: profile.OriginConfig}, Explicit: c.explicit})
			r := h.run("/bin/sh", "-c", "cat ~/.aws/credentials")
			if shown := r.Out == "secret"; r.Failure != nil || shown != c.shown {
				t.Errorf("%q, %v", r.Out, r.Failure)
			}
			for i := range h.profile.Hidden {
				h.profile.Hidden[i].Enforced = true
			}
			if r := h.run("/bin/sh", "-c", "cat ~/.aws/credentials"); r.Failure != nil || r.Out != "" {
				t.Errorf("hidden for good: %q, %v", r.Out, r.Failure)
			}
		})
	}
}

// What a cache or the workspace would show is hidden all the same, or nothing runs.
func TestWhatIsHiddenForGoodIsNeitherACacheNorAWorkspace(t *testing.T) {
	h := hiddenHost(t)
	token := h.write(h.profile.Home+"/.cache/token", "secret")
	h.profile.Layers = h.mkdir(h.profile.Home + "/layers")
	h.profile.CachePaths = []profile.CachePath{{Path: h.profile.Home + "/.cache", Made: true}}
	h.grant(h.profile.Home, profile.ReadOnly)
	if plan := h.build(); !plan.Look(Host{}, token).Visible {
		t.Fatal("no cache is seen")
	}
	h.profile.Hidden = append(h.profile.Hidden, profile.HiddenPath{Path: h.profile.Home + "/.cache", Enforced: true})
	if plan := h.build(); plan.Look(Host{}, token).Visible {
		t.Error("a cache shows it")
	}
	h.profile.Hidden = append(h.profile.Hidden, profile.HiddenPath{Path: h.profile.Workspace, Enforced: true, Origin: profile.Origin{Kind: profile.OriginConfig, Source: "config.json: enforced"}})
	if _, err := Build(h.profile, Host{}); err == nil || !strings.Contains(err.Error(), "cannot be the workspace: hidden for good by config.json: enforced") {
		t.Errorf("the workspace: %v", err)
	}
}

func TestTheWorkspaceIsNoGrantForWhatIsHiddenInIt(t *testing.T) {
	h := hiddenHost(t)
	h.profile.OwnDirectories = nil
	h.profile.Workspace, h.profile.WorkingDirectory = h.profile.Home, h.profile.Home
	h.profile.Grants[1].Path = h.profile.Home
	before := tree(t, h.profile.Home)
	h.sh("touch new; rm new")
	h.refused("cat ~/.ssh/id_ed25519 ~/.aws/credentials")
	h.refused("mv ~/.aws ~/aws")
	h.refused("rm ~/.netrc")
	h.refused("ln ~/.netrc ~/copy")
	h.refused("mv ~/.config ~/x")
	if after := tree(t, h.profile.Home); after != before {
		t.Errorf("the home has changed:\n%s\nwas:\n%s", after, before)
	}
}

// What hides it is found again by the next run, because nothing above it can be renamed.
func TestWhatHoldsAHiddenPathStaysWhereItIs(t *testing.T) {
	h := hiddenHost(t)
	store := h.write(h.profile.Home+"/data/keys/store/key", "secret")
	h.profile.Hidden = append(h.profile.Hidden, profile.HiddenPath{Path: filepath.Dir(store)})
	h.grant(h.profile.Home+"/data", profile.ReadWrite)
	h.refused("mv ~/data/keys ~/data/aside 2>/dev/null")
	h.refused("cat ~/data/*/store/key 2>/dev/null")
}

func TestAnUnreadableHiddenPathStopsNothing(t *testing.T) {
	h := hiddenHost(t)
	for _, name := range []string{".aws", ".netrc", ".config"} {
		if err := os.Chmod(filepath.Join(h.profile.Home, name), 0); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { os.Chmod(filepath.Join(h.profile.Home, ".config"), 0o755) })
	h.profile.OwnDirectories = nil
	h.sh("true")
	h.refused("cat ~/.aws/credentials ~/.netrc")
}

func TestLookSaysWhatIsHiddenAndWhatWouldShowIt(t *testing.T) {
	h := hiddenHost(t)
	plan := h.build()
	for path, want := range map[string]string{".aws/credentials": "hidden: only a grant of its own", ".netrc": "hidden: only a grant of its own", ".ssh/config": "the sandbox's own"} {
		sight := plan.Look(h.tree, filepath.Join(h.profile.Home, path))
		hidden := strings.HasPrefix(want, "hidden")
		if !strings.HasPrefix(sight.Why, want) || sight.Visible == hidden || (sight.Access == profile.NoAccess) != hidden {
			t.Errorf("%s: %+v", path, sight)
		}
	}
}

// The sandbox has its own processes, whatever the host has under their numbers.
func TestLookTellsNothingOfTheHostsProcesses(t *testing.T) {
	h := newHost(t)
	plan := h.build()
	h.symlink("/proc/self/cwd", h.profile.Workspace+"/mine")
	h.symlink("/proc/999999999/cwd", h.profile.Workspace+"/nobodys")
	for _, below := range []string{"", "/cwd", "/exe", "/root/etc/passwd", "/fd/0", "/cwd/x", "/no-such-file"} {
		mine, nobodys := plan.Look(h.tree, "/proc/self"+below), plan.Look(h.tree, "/proc/999999999"+below)
		if mine.Visible != nobodys.Visible || mine.Access != nobodys.Access || mine.OnHost != nobodys.OnHost || mine.Resolved != "/proc/self"+below || nobodys.Resolved != "/proc/999999999"+below ||
			mine.Why != nobodys.Why {
			t.Errorf("%s: %+v and %+v", below, mine, nobodys)
		}
	}
	mine, nobodys := plan.Look(h.tree, h.profile.Workspace+"/mine"), plan.Look(h.tree, h.profile.Workspace+"/nobodys")
	if mine.Resolved != "/proc/self/cwd" || nobodys.Resolved != "/proc/999999999/cwd" || mine.Why != nobodys.Why || mine.OnHost || nobodys.OnHost {
		t.Errorf("%+v and %+v", mine, nobodys)
	}
}
