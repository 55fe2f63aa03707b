package changes

import (
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
)

// What is executed outside of any sandbox, or read as orders, is shown first. The names are a help
// to whoever looks, not a boundary: nothing is applied unseen because a name is not among them.

const (
	rankSome  = 1 // somebody may execute it
	rankBuild = 2 // a build or a server does, as a matter of course
	rankFirst = 3 // it is executed without anybody's doing, or with another user's rights
)

var ciFiles = []string{
	".github", ".gitlab-ci.yml", ".circleci", "Jenkinsfile", "azure-pipelines.yml", ".travis.yml", ".drone.yml", "bitbucket-pipelines.yml",
	".woodpecker.yml", ".woodpecker", "appveyor.yml", ".appveyor.yml", ".buildkite", ".forgejo", ".gitea", ".builds", ".build.yml",
}

var buildFiles = []string{
	"Makefile", "GNUmakefile", "CMakeLists.txt", "meson.build", "configure", "package.json", "setup.py", "setup.cfg", "pyproject.toml",
	"conftest.py", "sitecustomize.py", "tox.ini", "noxfile.py", "build.rs", "Cargo.toml", ".cargo", "build.gradle", "build.gradle.kts",
	"settings.gradle", "settings.gradle.kts", "gradlew", "pom.xml", ".mvn", "mvnw", "Rakefile", "Gemfile", "Justfile", ".justfile", "Taskfile.yml",
	"Dockerfile", "Containerfile", "docker-compose.yml", "compose.yaml", "BUILD", "BUILD.bazel", "WORKSPACE", ".bazelrc", "MODULE.bazel",
	"Vagrantfile", "flake.nix", "shell.nix", "default.nix", ".gitattributes", "composer.json", "deno.json", "Procfile",
}

// mark says of each change who executes it.
func (w *walker) mark(protected []profile.ProtectedPath, veiled []string) (bare map[string]bool) {
	r := w.review
	bare = map[string]bool{} // directories that look like repositories themselves
	for i := range r.Changes {
		if name := path.Base(r.Changes[i].Path); (name == "HEAD" || name == "objects" || name == "refs") && r.Changes[i].Kind != Deleted {
			bare[path.Dir(r.Changes[i].Path)] = true
		}
	}
	for i := range r.Changes {
		dir := path.Dir(r.Changes[i].Path)
		for _, dir := range []string{dir, path.Dir(dir)} {
			if _, known := bare[dir]; !known {
				_, err := lookAt(w.lower, path.Join(dir, "HEAD"))
				bare[dir] = err == nil || isGits(path.Base(dir))
			}
		}
	}
	inGit := w.isGit()
	for i := range r.Changes {
		c := &r.Changes[i]
		if inGit {
			c.Held = "it is in a git directory"
		}
		if isVeiled(veiled, c.Path) || (c.Kind == Deleted || c.Kind == Replaced) && holdsVeiled(veiled, c.Path) {
			c.Held = "commands do not see what you have there, and made something of their own in its place"
			c.Note, c.rank = c.Held, rankFirst
			continue
		}
		if c.Kind != Deleted {
			c.Note, c.rank = runs(c, protected, bare)
		}
		if leads := w.layer.Leads; leads != nil && c.rank < rankFirst {
			if why := leads(*c); why != "" {
				c.Note, c.rank = why, rankFirst
			}
		}
		if c.Kind == Deleted {
			continue
		}
		if c.Type != "file" && c.Type != "directory" && (inGit || isInGit(c.Path, bare)) {
			c.Held = "git makes no " + c.Type + " in its directories, and writes to where one leads"
			c.Note, c.rank = c.Held, rankFirst
			continue
		}
		if inGit && c.rank < rankFirst && gitRuns(append([]string{".git"}, strings.Split(c.Path, "/")...)) {
			c.Note, c.rank = "git executes it, or does as it says", rankFirst
		}
		switch {
		case c.Type != "link" && c.Mode&(unix.S_ISUID|unix.S_ISGID) != 0 && c.Type != "directory":
			c.Held = "it has the setuid or setgid bit"
		case c.Type != "link" && c.Mode&0o002 != 0 && c.OldMode&0o002 == 0 && c.Mode&unix.S_ISVTX == 0:
			c.Held = "anybody may write to it"
			if c.Note == "" {
				c.Note, c.rank = c.Held, rankSome
			}
		}
	}
	return bare
}

// isVeiled reports whether a path is in the place of something that commands do not see, or in it;
// holdsVeiled whether it is above.
func isVeiled(veiled []string, at string) bool { return len(veiled) > 0 && covers(veiled, at) }

func holdsVeiled(veiled []string, at string) bool {
	return slices.ContainsFunc(veiled, func(name string) bool { return covers([]string{at}, name) })
}

// isGit reports whether the directory that a layer is of is one of git's own, as that of a
// worktree's repository is.
func (w *walker) isGit() bool {
	has := func(name string) bool {
		_, err := lookAt(w.lower, name)
		return err == nil
	}
	return has("HEAD") && (has("commondir") || has("objects") && has("refs"))
}

func runs(c *Change, protected []profile.ProtectedPath, bare map[string]bool) (string, int) {
	parts := strings.Split(c.Path, "/")
	switch {
	case c.Type != "link" && c.Mode&(unix.S_ISUID|unix.S_ISGID) != 0 && c.Type != "directory":
		return "setuid or setgid: it would run with its owner's rights; the bit is left out unless the path is named", rankFirst
	case gitRuns(parts):
		return "git executes it, or does as it says", rankFirst
	case strings.EqualFold(parts[len(parts)-1], "HEAD") && !isInGit(c.Path, nil):
		return "git takes a directory that has it for a repository, and does as that says", rankFirst
	case len(parts) > 1 && (bare[path.Dir(c.Path)] && parts[len(parts)-1] == "config" || bare[path.Dir(path.Dir(c.Path))] && parts[len(parts)-2] == "hooks"):
		return "git takes the directory for a repository, and does as it says", rankFirst
	}
	for _, p := range protected {
		if at, _ := named(parts, p); at >= 0 {
			return "tools that are started here execute it, or do as it says (" + p.Name + ")", rankFirst
		}
	}
	for _, name := range ciFiles {
		if isIn(parts, name) {
			return "a server that builds executes it (" + name + ")", rankFirst
		}
	}
	base := parts[len(parts)-1]
	for _, name := range buildFiles {
		if isIn(parts, name) || strings.HasSuffix(strings.ToLower(base), ".mk") {
			return "a build executes it (" + base + ")", rankBuild
		}
	}
	switch {
	case c.Type == "link" && leadsOut(c.Path, c.Target):
		return "a link that leads out of the directory", rankSome
	case c.Type == "file" && c.Mode&0o111 != 0 && c.OldMode&0o111 == 0:
		return "it can be executed now", rankSome
	}
	return "", 0
}

// gitRuns reports whether git executes it or does as it says.
func gitRuns(parts []string) bool {
	i := slices.IndexFunc(parts, func(part string) bool { return strings.EqualFold(part, ".git") })
	if i < 0 {
		return false
	}
	if i == len(parts)-1 {
		return true
	}
	return slices.ContainsFunc(parts[i+1:], func(part string) bool { return isIn(gitNames, part) })
}

// isGits reports whether a directory is called as those of git's are: "git init --bare x.git"
// completes what it finds there.
func isGits(name string) bool { return strings.HasSuffix(strings.ToLower(name), ".git") }

// isInGit reports whether a path is in a directory of git's.
func isInGit(at string, bare map[string]bool) bool {
	for at = path.Dir(at); at != "."; at = path.Dir(at) {
		if isGits(path.Base(at)) || bare[at] {
			return true
		}
	}
	return false
}

// isIn reports whether a name is one of a list. Letter case does not matter, as some tools and some
// file systems do not mind it.
func isIn(list []string, name string) bool {
	return slices.ContainsFunc(list, func(other string) bool { return strings.EqualFold(other, name) })
}

// gitNames are what git executes or obeys in its directory, and where more of that may be.
var gitNames = []string{"hooks", "config", "config.worktree", "commondir", "gitdir", "attributes", "alternates", "modules", "worktrees", "MERGE_AUTOSTASH", "MERGE_RR",
	"rebase-merge", "rebase-apply", "sequencer", "BISECT_START", "BISECT_TERMS"}

// named finds the first place of a protected name in a path, and of how many parts it is; -1 if it
// is not there. What counts in a home directory alone is an everyday name elsewhere.
func named(parts []string, p profile.ProtectedPath) (at, n int) {
	want := strings.Split(p.Name, "/")
	if p.Home {
		if len(want) == 1 || len(parts) < len(want) || !slices.EqualFunc(parts[:len(want)], want, strings.EqualFold) {
			return -1, 0
		}
		return 0, len(want)
	}
	for at := 0; at+len(want) <= len(parts); at++ {
		if slices.EqualFunc(parts[at:at+len(want)], want, strings.EqualFold) {
			return at, len(want)
		}
	}
	return -1, 0
}

// leadsOut reports whether a link names something outside of the directory.
func leadsOut(at, target string) bool {
	if path.IsAbs(target) {
		return true
	}
	to := path.Join(path.Dir(at), target)
	return to == ".." || strings.HasPrefix(to, "../")
}
