package sandbox

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/clairun/clai-sandbox/profile"
)

// fakeProfile is a new agent's profile on a fake host.
func fakeProfile(grants ...profile.Grant) profile.Profile {
	p := profile.Profile{
		Agent: "main", Home: "/home/u", Workspace: "/home/u/work", WorkingDirectory: "/home/u/work", Network: profile.NetworkEnabled,
		OwnDirectories: []string{"/etc/clai-sandbox", "/home/u/.config/clai-sandbox", "/home/u/.local/state/clai-sandbox"},
		Environment:    []profile.Variable{{Name: "HOME", Value: "/home/u"}, {Name: "PATH", Value: "/usr/bin:/bin"}},
	}
	p.Grants = append(p.Grants, grants...)
	p.Grants = append(p.Grants, grant("/home/u/work", profile.ReadWrite, profile.OriginWorkspace))
	return p
}

func grant(path string, access profile.Access, kind profile.OriginKind) profile.Grant {
	return profile.Grant{Path: path, Access: access, Origin: profile.Origin{Kind: kind}}
}

var home = grant("/home/u", profile.ReadOnly, profile.OriginDefault)

// golden compares text with a file of testdata, or writes it with -update.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "plans", name+".golden")
	if *update {
		os.MkdirAll(filepath.Dir(path), 0o755)
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || string(want) != got {
		t.Errorf("%s differs (%v); got:\n%s", path, err, got)
	}
}

const imageRoot = "/state/images/storage/trees/dir/0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a"

func TestPlans(t *testing.T) {
	config := func(path string, access profile.Access) profile.Grant {
		return grant(path, access, profile.OriginConfig)
	}
	for name, c := range map[string]struct {
		tree    []string
		profile profile.Profile
	}{
		"new-agent":       {nil, fakeProfile(home)},
		"nothing-granted": {nil, fakeProfile()},
		"no-network":      {nil, func() profile.Profile { p := fakeProfile(home); p.Network = profile.NetworkDisabled; return p }()},
		"nesting":         {nil, func() profile.Profile { p := fakeProfile(home); p.NestedNamespaces = true; return p }()},
		"own-state":       {[]string{"/home/u/.config/clai-sandbox/config.json", "/home/u/.local/state/clai-sandbox/", "/etc/clai-sandbox/"}, fakeProfile(home)},
		"ssh":             {[]string{"/etc/ssh/ssh_config", "/etc/ssh/ssh_config.d/10.conf", "/etc/ssh/ssh_config.d/vendor.conf -> /usr/lib/ssh.conf", "/usr/lib/ssh.conf", "/etc/ssh/ssh_host_rsa_key", "/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_config.d/README"}, fakeProfile(home)},
		"home-is-a-link":  {[]string{"/var/home/u/work/", "/home -> var/home"}, fakeProfile(home)},
		"tmp-is-a-link":   {[]string{"/var/tmp/w/", "/tmp -> var/tmp"}, fakeProfile(config("/tmp/w", profile.ReadWrite))},
		"unmerged-usr":    {[]string{"/bin/sh", "/bin/", "/lib/"}, fakeProfile(home)},
		"nested-access":   {[]string{"/d/a/b/c/", "/d/x/"}, fakeProfile(config("/d/a/b", profile.ReadOnly), config("/d", profile.ReadOnly), config("/d/a", profile.ReadWrite), config("/d/x", profile.ReadOnly), config("/d/a/b/c", profile.ReadWrite))},
		"linked-grant":    {[]string{"/data/set/", "/home/u/work/data -> /home/u/alias", "/home/u/alias -> ../../data/set"}, fakeProfile(home, config("/home/u/work/data", profile.ReadWrite))},
		"linked-unseen":   {[]string{"/data/set/", "/alias -> data"}, fakeProfile(config("/alias/set", profile.ReadWrite))},
		"home-not-granted": {[]string{"/srv/work/"}, func() profile.Profile {
			p := fakeProfile()
			p.Workspace, p.WorkingDirectory = "/srv/work", "/srv/work"
			p.Grants[0].Path = "/srv/work"
			return p
		}()},
		"programs": {[]string{"/opt/node/bin/", "/opt/node/lib/", "/opt/secret/", "/opt/bin", "/nix/store/abc-go/bin/", "/run/current-system/sw -> /nix/store/abc-go", "/var/lib/dpkg/", "/var/lib/other/"}, func() profile.Profile {
			p := fakeProfile(home)
			p.Environment[1].Value = "/opt/node/bin:/usr/bin:/run/current-system/sw/bin:/opt:/opt/none/bin:relative:"
			return p
		}()},
		"a-file-granted":    {[]string{"/data/file"}, fakeProfile(config("/data/file", profile.ReadOnly))},
		"workspace-only-ro": {nil, fakeProfile(home)},
		"image-with-var": {[]string{"/state/images/names/tiny.json = " + `{"name":"tiny","layer":"` + strings.Repeat("0a", 32) + `"}`, imageRoot + "/usr/bin/sh", imageRoot + "/var/tmp/", imageRoot + "/home/of-image"},
			func() profile.Profile { p := fakeProfile(home); p.Image, p.Images = "tiny", "/state/images"; return p }()},
		"image": {[]string{"/var/tmp/w/", "/state/images/names/tiny.json = " + `{"name":"tiny","layer":"` + strings.Repeat("0a", 32) + `","path":"/opt/bin:/bin"}`,
			imageRoot + "/usr/bin/sh", imageRoot + "/etc/passwd", imageRoot + "/etc/resolv.conf", imageRoot + "/bin -> usr/bin", imageRoot + "/var/lib/", imageRoot + "/var/cache/", imageRoot + "/proc/", imageRoot + "/dev/",
			imageRoot + "/init", "/etc/resolv.conf -> /run/resolver", "/run/resolver"},
			func() profile.Profile {
				p := fakeProfile(home, config("/var/tmp/w", profile.ReadOnly))
				p.Image, p.Images = "tiny", "/state/images"
				return p
			}()},
	} {
		t.Run(name, func(t *testing.T) {
			tree := newFakeTree(append(slices.Clone(usual), c.tree...)...)
			for path := range tree { // a link has nothing below it
				for link, text := range tree {
					if strings.HasPrefix(text, "-> ") && strings.HasPrefix(path, link+"/") {
						delete(tree, path)
					}
				}
			}
			plan, err := Build(c.profile, tree)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name, describe(plan))
		})
	}
}

func describe(plan Plan) string {
	var text strings.Builder
	args := plan.Args()
	for _, word := range args {
		if strings.HasPrefix(word, "--") {
			text.WriteString("\n")
		} else {
			text.WriteString(" ")
		}
		text.WriteString(Quote(word))
	}
	text.WriteString("\n")
	for _, n := range plan.Notices {
		fmt.Fprintf(&text, "notice %s: %s\n", n.Kind, n.Text)
	}
	return strings.TrimPrefix(text.String(), "\n")
}

func TestResolvConfIsShownHoweverItIsLinked(t *testing.T) {
	stub := "/run/systemd/resolve/stub-resolv.conf"
	for name, c := range map[string]struct {
		tree []string
		want string // the steps that are not in every plan
	}{
		"a regular file":               {[]string{"/etc/resolv.conf"}, ""},
		"a relative link to systemd":   {[]string{"/etc/resolv.conf -> ../run/systemd/resolve/stub-resolv.conf", stub}, "bind " + stub},
		"an absolute link to /run":     {[]string{"/etc/resolv.conf -> /run/resolvconf/resolv.conf", "/run/resolvconf/resolv.conf"}, "bind /run/resolvconf/resolv.conf"},
		"WSL":                          {[]string{"/etc/resolv.conf -> /mnt/wsl/resolv.conf", "/mnt/wsl/resolv.conf"}, "bind /mnt/wsl/resolv.conf"},
		"a chain":                      {[]string{"/etc/resolv.conf -> /run/a", "/run/a -> systemd/resolve/stub-resolv.conf", stub}, "symlink /run/a systemd/resolve/stub-resolv.conf, bind " + stub},
		"a chain that begins in /etc":  {[]string{"/etc/resolv.conf -> resolvconf/run/resolv.conf", "/etc/resolvconf/run -> /run/resolvconf", "/run/resolvconf/resolv.conf"}, "bind /run/resolvconf/resolv.conf"},
		"by another name in /etc":      {[]string{"/etc/resolv.conf -> /etc/alt", "/etc/alt -> /run/x", "/run/x"}, "bind /run/x"},
		"a linked parent outside":      {[]string{"/etc/resolv.conf -> /var/run/r/resolv.conf", "/var/run -> /run", "/run/r/resolv.conf"}, "symlink /var/run /run, bind /run/r/resolv.conf"},
		"dangling":                     {[]string{"/etc/resolv.conf -> /run/none"}, ""},
		"a directory":                  {[]string{"/etc/resolv.conf -> /run/dir", "/run/dir/"}, ""},
		"a loop":                       {[]string{"/etc/resolv.conf -> /etc/resolv.conf"}, ""},
		"a device":                     {[]string{"/etc/resolv.conf -> /dev/null"}, ""},
		"localtime into /usr":          {[]string{"/etc/localtime -> ../usr/share/zoneinfo/UTC", "/usr/share/zoneinfo/UTC"}, ""},
		"localtime outside (two hops)": {[]string{"/etc/localtime -> zoneinfo/UTC", "/etc/zoneinfo -> /opt/tz", "/opt/tz/UTC"}, "bind /opt/tz/UTC"},
	} {
		t.Run(name, func(t *testing.T) {
			base, err := Build(fakeProfile(home), newFakeTree(usual...))
			if err != nil {
				t.Fatal(err)
			}
			plan, err := Build(fakeProfile(home), newFakeTree(append(slices.Clone(usual), c.tree...)...))
			if err != nil {
				t.Fatal(err)
			}
			var extra []string
			for _, step := range plan.Steps {
				if !slices.Contains(base.Steps, step) {
					text := step.Kind.String() + " " + step.Path
					if step.Kind == Symlink {
						text += " " + step.Source
					}
					extra = append(extra, text)
				}
			}
			if got := strings.Join(extra, ", "); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestAWorkspaceThatCannotBeUsedIsAnError(t *testing.T) {
	tree := newFakeTree(append(slices.Clone(usual), "/home/u/file", "/home/u/loop -> loop", "/home/u/gone -> /nowhere", "/home/u/p -> /proc", "/proc/", "/home/u/root -> /")...)
	for _, path := range []string{"/home/u/none", "/home/u/file", "/home/u/loop", "/home/u/gone", "/home/u/p", "/home/u/root", "/home/u", "/home/u/.config",
		"/home/u/.config/clai-sandbox", "/dev/null", "/home/" + strings.Repeat("n", 300)} {
		p := fakeProfile(home)
		p.Workspace, p.WorkingDirectory, p.Grants[1].Path = path, path, path
		_, err := Build(p, tree)
		var setup *SetupError
		if !errors.As(err, &setup) || setup.Path != path || setup.Hint == "" {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestAWorkingDirectoryThatIsNotInsideIsAnError(t *testing.T) {
	tree := newFakeTree(append(slices.Clone(usual), "/srv/data/", "/home/u/file")...)
	for _, path := range []string{"/srv/data", "/home/u/file", "/home/u/none"} {
		p := fakeProfile(home)
		p.WorkingDirectory = path
		var setup *SetupError
		if _, err := Build(p, tree); !errors.As(err, &setup) {
			t.Errorf("%s: %v", path, err)
		}
	}
	p := fakeProfile(home)
	p.WorkingDirectory = "/tmp"
	if _, err := Build(p, tree); err != nil {
		t.Error(err)
	}
}

// TestAnySetOfGrantsGivesWhatItSaysAndNothingMore builds plans from random grants on a random tree
// of directories and links, and holds them against the rule in its plainest form.
func TestAnySetOfGrantsGivesWhatItSaysAndNothingMore(t *testing.T) {
	for seed := range uint64(3000) {
		random := rand.New(rand.NewPCG(seed, 1))
		tree, paths := randomTree(random)
		var grants []profile.Grant
		for range random.IntN(8) {
			access := profile.Access(1 + random.IntN(2))
			grants = append(grants, grant(paths[random.IntN(len(paths))], access, profile.OriginConfig))
		}
		p := fakeProfile(grants...)
		plan, err := Build(p, tree)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		checkOrder(t, seed, plan)
		for _, path := range paths {
			granted := slices.ContainsFunc(grants, func(g profile.Grant) bool { return g.Path == path })
			w, _ := follow(tree, path)
			if _, never := profile.NeverGrantable(w.Real); never || len(w.Links) > 0 && (!granted || changeable(p, tree, w.Links)) {
				continue // the sandbox's own, or through a link that nothing shows
			}
			want := ruled(p, tree, path)
			if got := plan.Look(tree, path); got.Access != want {
				t.Fatalf("seed %d: %s is %s, want %s\ngrants %v\n%s", seed, path, got.Access, want, grants, describe(plan))
			}
		}
		shuffled := fakeProfile(grants...)
		again, err := Build(shuffled, tree)
		if err != nil || describe(again) != describe(plan) {
			t.Fatalf("seed %d: the same profile gave another plan", seed)
		}
	}
}

func randomTree(random *rand.Rand) (fakeTree, []string) {
	lines := slices.Clone(usual)
	var paths []string
	for range 12 {
		path := "/d"
		for range 1 + random.IntN(4) {
			path += "/" + string(rune('a'+random.IntN(3)))
		}
		paths = append(paths, path)
		lines = append(lines, path+"/")
	}
	tree := newFakeTree(lines...)
	for range 4 {
		link := "/d/l" + string(rune('a'+random.IntN(4)))
		tree[link] = "-> " + []string{paths[random.IntN(len(paths))], "la", "/d/lb/..", "/proc"}[random.IntN(4)]
		paths = append(paths, link, link+"/a")
	}
	return tree, append(paths, "/d")
}

// ruled is the rule without any cleverness: the deepest grant above what a path means decides, and
// of several for the same place the last one.
func ruled(p profile.Profile, tree Tree, path string) profile.Access {
	w, err := follow(tree, path)
	if err != nil {
		return profile.NoAccess
	}
	access, deepest := profile.NoAccess, -1
	for _, g := range p.Grants {
		target, err := follow(tree, g.Path)
		if _, never := profile.NeverGrantable(target.Real); err != nil || never || changeable(p, tree, target.Links) {
			continue
		}
		if within(w.Real, target.Real) && depth(target.Real) >= deepest {
			access, deepest = g.Access, depth(target.Real)
		}
		if within(target.Real, w.Real) && access == profile.NoAccess {
			access = profile.ReadOnly // an empty directory that leads to the grant
		}
	}
	return access
}

// changeable reports whether a command could change one of some links, by any grant of its profile.
func changeable(p profile.Profile, tree Tree, links []Link) bool {
	for _, g := range p.Grants {
		w, err := follow(tree, g.Path)
		if err == nil && g.Access == profile.ReadWrite && slices.ContainsFunc(links, func(link Link) bool { return within(link.Path, w.Real) }) {
			return true
		}
	}
	return false
}

// checkOrder holds a plan to the order that keeps one mount from hiding another.
func checkOrder(t *testing.T, seed uint64, plan Plan) {
	t.Helper()
	for i, step := range plan.Steps {
		for _, later := range plan.Steps[i+1:] {
			if later.Kind != Seal && later.Kind != Mask && within(step.Path, later.Path) && step.Kind != Seal {
				t.Errorf("seed %d: %s %s hides %s", seed, later.Kind, later.Path, step.Path)
			}
		}
	}
	if last := plan.Steps[len(plan.Steps)-1]; last.Kind != Seal || last.Path != "/" {
		t.Errorf("seed %d: the root is not sealed last", seed)
	}
}

func TestAReadOnlyAncestorDoesNotHoldTheWorkspaceBack(t *testing.T) {
	plan, err := Build(fakeProfile(home, grant("/home", profile.ReadOnly, profile.OriginConfig), grant("/home/u/work", profile.ReadOnly, profile.OriginConfig)), newFakeTree(usual...))
	if err != nil {
		t.Fatal(err)
	}
	if sight := plan.Look(newFakeTree(usual...), "/home/u/work"); sight.Access != profile.ReadWrite {
		t.Errorf("the workspace is %s", sight.Access)
	}
}

func TestWhatAnAncestorCoversIsNotMountedAgain(t *testing.T) {
	h := newHost(t)
	bare := len(h.build().Steps)
	for i := range 200 {
		h.grant(h.mkdir(fmt.Sprintf("%s/many/%d", h.profile.Home, i)), profile.ReadOnly)
	}
	if n := len(h.build().Steps); n != bare {
		t.Errorf("%d steps instead of %d", n, bare)
	}
}
