package sandbox

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/cow"
	"github.com/clairun/clai-sandbox/sandbox/image"
)

// anImage makes an image with a few of the host's programs, and has the sandbox use it. It returns
// the image's root.
func (h *host) anImage() string {
	h.t.Helper()
	h.profile.Image, h.profile.Images = "tiny", filepath.Join(h.profile.Home, ".local/state/clai-sandbox/images")
	i := image.Image{Name: "tiny", Layer: strings.Repeat("ab", 32), Path: "/usr/tools:/usr/bin"}
	root := h.mkdir(i.Root(h.profile.Images))
	for _, name := range []string{"sh", "cat", "ls", "touch", "sleep", "rm"} {
		path, err := exec.LookPath(name)
		if err != nil {
			h.t.Fatal(err)
		}
		h.copyTo(path, filepath.Join(root, "usr/bin", name))
		out, _ := exec.Command("ldd", path).Output() // nothing of a static one
		for _, library := range regexp.MustCompile(`/[^\s]+\.so[^\s]*`).FindAllString(string(out), -1) {
			h.copyTo(library, filepath.Join(root, library))
		}
	}
	h.symlink("usr/bin", filepath.Join(root, "bin"))
	for name, text := range map[string]string{"etc/os-release": "tiny", "etc/resolv.conf": "", "var/lib/of-image": "1", "var/tmp/of-image": "2", "opt/tool/of-image": "3", "dev/of-image": "4",
		"proc/of-image": "5", "tmp/of-image": "6", "run/of-image": "7", "file": "8"} {
		h.write(filepath.Join(root, name), text)
	}
	text, err := json.Marshal(i)
	if err != nil {
		h.t.Fatal(err)
	}
	os.Chmod(h.mkdir(h.profile.Images), 0o700)
	h.write(image.File(h.profile.Images, "tiny"), string(text))
	return root
}

func (h *host) copyTo(from, to string) {
	h.t.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		h.t.Fatal(err)
	}
	h.write(to, string(text))
	os.Chmod(to, 0o755)
}

func TestAnImageStandsInPlaceOfTheHostsSystem(t *testing.T) {
	needMounts(t)
	h := newHost(t)
	root := h.anImage()
	h.write(h.profile.Home+"/notes", "of the home")
	out := h.sh(`cat /etc/os-release /var/lib/of-image /var/tmp/of-image /opt/tool/of-image /file; ls -d /dev/of-image /proc/of-image /tmp/of-image /run/of-image 2>&- ; echo; cat ~/notes; echo; pwd; echo x > made; ls`)
	if want := "tiny1238\nof the home\n" + h.profile.Workspace + "\nmade\n"; out != want {
		t.Errorf("%q, want %q", out, want)
	}
	if host, err := os.ReadFile("/etc/resolv.conf"); err == nil && h.sh("cat /etc/resolv.conf") != string(host) {
		t.Error("the resolver's settings are not the host's")
	}
	for _, path := range []string{"/etc/passwd", "/usr/bin/env", "/usr/share"} {
		if _, err := os.Stat(path); err == nil {
			h.refused("cat < " + path)
		}
	}
	for _, path := range []string{"/usr/bin/new", "/etc/new", "/etc/os-release", "/etc/resolv.conf", "/var/tmp/new", "/var/lib/new", "/opt/tool/of-image", "/new", "/file"} {
		h.refused("echo x >> " + path)
	}
	h.refused("ls " + filepath.Dir(root))
	if text, err := os.ReadFile(root + "/etc/os-release"); string(text) != "tiny" {
		t.Error(string(text), err)
	}
	plan := h.build()
	for path, visible := range map[string]bool{"/usr/bin/sh": true, "/bin/sh": true, "/usr/bin/env": false, "/etc/passwd": false, "/var/lib/of-image": true, h.profile.Workspace + "/made": true,
		"/var/tmp/of-image": true, "/run/of-image": false} {
		if sight := plan.Look(Host{}, path); sight.Visible != visible || visible && sight.Access != profile.ReadOnly && !strings.HasPrefix(path, h.profile.Workspace) {
			t.Errorf("%s: %+v", path, sight)
		}
	}
}

// What is the host's is granted as ever, wherever the image has something, and hidden and protected
// as ever.
func TestGrantsStandInAnImage(t *testing.T) {
	needMounts(t)
	h := newHost(t)
	h.write(h.anImage()+"/etc/passwd", "of the image")
	outside := h.mkdir(newDirectory(t) + "/granted")
	h.write(outside+"/file", "of the host")
	h.grant(outside, profile.ReadWrite)
	h.grant("/usr/share", profile.ReadOnly)
	h.write(h.profile.Home+"/.ssh/id", "secret")
	h.profile.Hidden = []profile.HiddenPath{{Path: h.profile.Home + "/.ssh"}, {Path: "/etc/passwd"}}
	h.write(h.profile.Workspace+"/.git/hooks/pre-commit", "hook")
	share, err := os.ReadDir("/usr/share")
	if err != nil || len(share) == 0 {
		t.Fatal(err)
	}
	out := h.sh("cat " + outside + "/file; echo; ls -d /usr/share/" + share[0].Name() + " /usr/bin/sh; cat /etc/passwd; echo new > " + outside + "/new")
	if want := "of the host\n/usr/bin/sh\n/usr/share/" + share[0].Name() + "\nof the image"; out != want {
		t.Errorf("%q, want %q", out, want)
	}
	h.refused("cat ~/.ssh/id")
	h.refused("echo evil > .git/hooks/pre-commit")
	h.refused("echo x > /usr/share/new")
	h.setAside("echo evil > .envrc", ".envrc")
}

func TestALinkInAnImageLeadsNowhereButInside(t *testing.T) {
	needMounts(t)
	h := newHost(t)
	root := h.anImage()
	secret := h.write(newDirectory(t)+"/secret", "secret")
	h.symlink(secret, root+"/etc/link")
	h.symlink(filepath.Dir(secret), root+"/leads")
	h.symlink("../../../../../../../../../../../.."+secret, root+"/opt/up")
	for _, path := range []string{"/etc/link", "/leads/secret", "/opt/up"} {
		h.refused("cat " + path)
		plan := h.build()
		if sight := plan.Look(Host{}, path); sight.Visible {
			t.Errorf("%+v", sight)
		}
	}
	// Nothing of the host's is shown where the image has a link, or a file.
	for _, path := range []string{"/leads/x", "/file/x", "/opt/tool/of-image/x"} {
		p := h.profile
		tree := hostWith{Host{}, path}
		p.Grants = append(slices.Clone(p.Grants), grant(path, profile.ReadOnly, profile.OriginFlag))
		if _, err := Build(p, tree); err == nil || !strings.Contains(err.Error(), "image tiny has no directory at ") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// hostWith is a host that has one more directory, with those above.
type hostWith struct {
	Tree
	path string
}

func (w hostWith) Lstat(path string) (Object, error) {
	if path == w.path || strings.HasPrefix(w.path, path+"/") {
		return Object{Mode: os.ModeDir | 0o755}, nil
	}
	return w.Tree.Lstat(path)
}

func TestAnImageIsHeldWhileASandboxUsesIt(t *testing.T) {
	needMounts(t)
	h := newHost(t)
	h.anImage()
	own := func() error {
		_, hold, err := image.Own(h.profile.Images, "tiny")
		hold.Close()
		return err
	}
	h.whileRunning(func() {
		if err := own(); !errors.Is(err, image.ErrInUse) {
			t.Error("in use:", err)
		}
	})
	if err := own(); err != nil {
		t.Error(err)
	}
	// Nobody runs what was planned for an image that is another one by now, or is being removed.
	plan := h.build()
	file := image.File(h.profile.Images, "tiny")
	text, _ := os.ReadFile(file)
	_, hold, err := image.Own(h.profile.Images, "tiny")
	if err != nil {
		t.Fatal(err)
	}
	fails := func(want string) {
		t.Helper()
		if got := h.runPlan(plan, "/bin/sh", "-c", ":"); got.Failure == nil || !strings.Contains(got.Failure.Error(), want) {
			t.Errorf("%v, want %s", got.Failure, want)
		}
	}
	fails("a sandbox uses it, or it is being removed")
	hold.Close()
	h.write(file, strings.Replace(string(text), "abab", "cdcd", 1))
	fails("it was replaced meanwhile")
	os.Remove(file)
	fails("there is no image tiny")
	if _, err := Build(h.profile, Host{}); err == nil || err.Error() != "there is no image tiny" {
		t.Error(err)
	}
	h.write(file, "{")
	if _, err := Build(h.profile, Host{}); err == nil || !strings.Contains(err.Error(), "image tiny cannot be used") {
		t.Error(err)
	}
}

func TestACommandIsFoundInTheImage(t *testing.T) {
	needMounts(t)
	h := newHost(t)
	root := h.anImage()
	h.profile.Environment[1].Origin = profile.Origin{Kind: profile.OriginBaseline}
	h.write(root+"/usr/tools/tool", "#!/bin/sh\necho of the image\n")
	os.Chmod(root+"/usr/tools/tool", 0o755)
	if got := h.run("tool"); got.Failure != nil || got.Out != "of the image\n" {
		t.Errorf("%+v", got)
	}
	var missing *CommandError
	if got := h.run("env"); !errors.As(got.Failure, &missing) || missing.Found || missing.Hint != "image tiny does not have it in $PATH" {
		t.Errorf("%+v", got.Failure)
	}
	h.profile.Environment[1].Origin = profile.Origin{Kind: profile.OriginFlag} // a person's own $PATH counts
	if got := h.run("tool"); !errors.As(got.Failure, &missing) {
		t.Errorf("%+v", got.Failure)
	}
}

func TestAnImageTakesAMounterWhereSomethingIsGrantedInIt(t *testing.T) {
	h := newHost(t)
	h.anImage()
	h.launcher.byBwrap = true
	var setup *SetupError
	if got := h.run("/bin/sh", "-c", ":"); !errors.As(got.Failure, &setup) || !strings.Contains(setup.Why, "of image tiny cannot be shown with what is granted in it") {
		t.Errorf("%+v", got.Failure)
	}
	if why := CanBeLive(h.profile); why == "" {
		t.Error("it can be live")
	}
}

func TestAnImageIsWrittenCopyOnWrite(t *testing.T) {
	needMounts(t)
	h := newHost(t)
	root := h.anImage()
	h.profile.ImageAccess, h.profile.Layers = profile.CopyOnWrite, filepath.Join(h.profile.Home, ".local/state/clai-sandbox/layers/main")
	h.mkdir(h.profile.Layers)
	before := contentOf(t, root)
	h.sh("echo changed > /etc/os-release; echo '#!/bin/sh\necho new' > /usr/bin/new; rm /usr/bin/rm; : > /opt/tool/more; touch made")
	if after := contentOf(t, root); after != before {
		t.Errorf("the image has\n%s\nafter\n%s", after, before)
	}
	if out := h.sh("cat /etc/os-release /usr/bin/new; ls -d /usr/bin/rm /opt/tool/* made 2>&-; :"); out != "changed\n#!/bin/sh\necho new\n/opt/tool/more\n/opt/tool/of-image\nmade\n" {
		t.Errorf("%q", out)
	}
	plan := h.build()
	if sight := plan.Look(Host{}, "/usr/bin/rm"); sight.Visible {
		t.Errorf("%+v", sight)
	}
	if sight := plan.Look(Host{}, "/usr/bin/new"); !sight.Visible || sight.Access != profile.CopyOnWrite {
		t.Errorf("%+v", sight)
	}
	h.refused("echo x > /var/tmp/new") // it leads to the workspace
	h.refused("echo x > /new")
	h.profile.Layers = filepath.Dir(h.profile.Layers) + "/other"
	if out := h.sh("cat /etc/os-release"); out != "tiny" {
		t.Errorf("another agent sees %q", out)
	}
	list, err := filepath.Glob(filepath.Dir(h.profile.Layers) + "/main/*/layer.json")
	if err != nil || len(list) < 3 {
		t.Fatal(list, err)
	}
	for _, file := range list { // the directories of an image are nobody's to bring changes to
		if about, err := cow.Read(filepath.Dir(file)); err != nil || !about.Cache || about.Object.Inode != 0 || !strings.HasPrefix(about.Path, root+"/") {
			t.Errorf("%+v %v", about, err)
		}
	}
}
