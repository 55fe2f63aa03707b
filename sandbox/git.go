package sandbox

import (
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/cow"
	"github.com/clairun/clai-sandbox/sandbox/repository"
)

// git executes what a repository's settings and hooks say, in whatever directory a person next
// types "git status". So of a repository that the command may write, these stay as they are: config
// and what it includes, hooks, and the files that tell git to look elsewhere (commondir, gitdir).
// All else is writable, so that the command can commit. Of config the command has a copy, which it
// may write (see settings.go).

var gitOrigin = profile.Origin{Kind: profile.OriginDefault, Source: "git"}

const (
	maxGitFile = 1 << 20
	// maxModules is how many submodules or worktrees of one repository are protected each for
	// itself. With more of them, the directory that holds them is read-only.
	maxModules = 16
)

// repository protects what a .git, or a bare repository, has.
func (b *builder) repository(root string, f find) {
	object, err := b.tree.Lstat(f.path)
	switch {
	case err != nil:
	case f.link != "":
		switch w, err := follow(b.tree, f.path); {
		case err != nil || !w.Object.Mode.IsDir():
			b.lead(f.path, gitOrigin)
		case within(w.Real, root):
			b.gitDirectory(root, w.Real, parent(f.path))
		default:
			b.leadsOf(w.Real, parent(f.path))
		}
		b.anchor(parent(f.path))
	case object.Mode.IsDir() && path.Base(f.path) == ".git":
		b.gitDirectory(root, f.path, parent(f.path))
	case object.Mode.IsDir():
		b.gitDirectory(root, f.path, "")
	case object.Mode.IsRegular():
		b.gitFile(root, f.path)
	}
}

// gitFile protects a .git that is a file: it names the git directory of a worktree or of a
// submodule.
func (b *builder) gitFile(root, file string) {
	b.guardGit(file)
	tree := parent(file)
	w, ok := b.named(file, "gitdir: ", tree)
	if w.Real != "" && (!ok || !w.Object.Mode.IsDir()) {
		b.lead(join(w.Real, strings.Join(w.Rest, "/")), gitOrigin) // no directory is there yet
		b.awaitLinks(w)
	}
	if !ok || !w.Object.Mode.IsDir() {
		return
	}
	if !b.writable(w.Real) && tree == root {
		if common, ok := b.repositoryOf(w.Real, file); ok {
			b.linkWorktree(w.Real, common.Real)
		}
	}
	if !b.writable(w.Real) {
		b.leadsOf(w.Real, tree)
	}
	if b.writable(w.Real) {
		b.gitDirectory(b.rootOf(w.Real), w.Real, tree)
	}
}

// rootOf is the writable directory that a writable path is in.
func (b *builder) rootOf(p string) string {
	step := b.layers.at(p)
	for step.Purpose == Anchors {
		step = b.layers.at(parent(step.Path))
	}
	return step.Path
}

// named follows the path that a file holds behind a prefix, relative to a directory.
func (b *builder) named(file, prefix, dir string) (walk, bool) {
	text, err := b.tree.ReadFile(file, 2*4096)
	name, found := strings.CutPrefix(text, prefix)
	name = strings.TrimRight(name, "\r\n")
	if err != nil || !found || name == "" || strings.IndexByte(name, 0) >= 0 {
		return walk{}, false
	}
	if !path.IsAbs(name) {
		name = dir + "/" + name
	}
	w, err := follow(b.tree, name)
	return w, err == nil
}

// repositoryOf is the git directory of the repository that a git directory outside of the workspace
// belongs to, if that repository itself says that the workspace is its worktree, or its submodule.
// The command can write the workspace's .git file; an earlier one, whose workspace lay around,
// could write more, and name there what it would like the next to see. So it must have the form of
// a repository with the worktree in its place. What has that by a name that only repositories have
// shows nothing but a repository; what has another name must be where no command could write. Of
// what the person hid, nothing is.
func (b *builder) repositoryOf(gitdir, file string) (walk, bool) {
	common, err := follow(b.tree, gitdir)
	leadsBack := false
	if w, ok := b.named(join(gitdir, "gitdir"), "", gitdir); ok {
		common, ok = b.named(join(gitdir, "commondir"), "", gitdir)
		leadsBack = ok && w.Real == file && parent(gitdir) == join(common.Real, "worktrees")
	} else if _, err := b.tree.Lstat(join(gitdir, "commondir")); err != nil {
		for _, s := range b.gitSettings(join(gitdir, "config")) {
			if s.Key == "core.worktree" {
				w, err := follow(b.tree, path.Join("/", absolute(s.Value, gitdir)))
				leadsBack = err == nil && w.Real == parent(file)
			}
		}
	}
	hidden := slices.ContainsFunc(b.profile.Hidden, func(h profile.HiddenPath) bool {
		w, err := follow(b.tree, h.Path)
		return err == nil && within(common.Real, w.Real)
	})
	named := strings.HasSuffix(common.Real, ".git") || strings.Contains(common.Real, ".git/modules/")
	return common, err == nil && leadsBack && !hidden && b.isRepository(common.Real) && (named || !b.couldBeWritten(join(common.Real, "HEAD")))
}

// isRepository reports whether a directory has what a repository has, and is not part of another
// one.
func (b *builder) isRepository(dir string) bool {
	has := func(name string, mode fs.FileMode) bool {
		object, err := b.tree.Lstat(join(dir, name))
		return err == nil && object.Mode.Type() == mode
	}
	_, err := b.tree.Lstat(join(dir, "commondir"))
	return err != nil && has("HEAD", 0) && has("objects", fs.ModeDir) && has("refs", fs.ModeDir)
}

// copiedRepository shows the repository of a worktree that is seen copy on write, or of a
// submodule, copy on write as well: else nothing could be committed. What is made in it is in a
// layer of its own.
func (b *builder) copiedRepository(tree string) {
	file := join(tree, ".git")
	w, ok := b.named(file, "gitdir: ", tree)
	if !ok || !w.Object.Mode.IsDir() {
		return
	}
	if w, ok = b.repositoryOf(w.Real, file); !ok {
		return
	}
	above := b.layers.at(w.Real)
	if b.forbidden(w, profile.CopyOnWrite) != "" || above != nil && (above.Path == w.Real || above.Access > profile.ReadOnly) {
		return
	}
	b.layers.put(Step{Kind: Bind, Path: w.Real, Source: w.Real, Access: profile.CopyOnWrite, Origin: gitOrigin, Purpose: Worktree, Pinned: true,
		Layer: join(b.profile.Layers, cow.Name(w.Real))})
}

// linkWorktree shows what git needs to commit in a worktree whose repository is elsewhere: the
// worktree's own part of it, and the objects, branches and logs that all its worktrees share. Of
// the shared settings the command has a copy; the hooks are read-only.
func (b *builder) linkWorktree(gitdir, common string) {
	show := func(path string, access profile.Access) {
		w, err := follow(b.tree, path)
		if err != nil || !w.Object.Mode.IsDir() || w.Real != path || b.forbidden(w, access) != "" || b.layers[path] != nil {
			return
		}
		b.layers.put(Step{Kind: Bind, Path: path, Source: path, Access: access, Origin: gitOrigin, Purpose: Worktree, Pinned: true})
		b.keepBackAt(path)
	}
	if common != gitdir {
		show(common, profile.ReadOnly)
		for _, shared := range []string{"objects", "refs", "logs"} {
			show(join(common, shared), profile.ReadWrite)
		}
		b.copySettings(join(common, "config"))
	}
	show(gitdir, profile.ReadWrite)
}

// copySettings gives the command a copy of settings in a directory that it may only read.
func (b *builder) copySettings(file string) {
	object, err := b.tree.Lstat(file)
	if above := b.layers.at(file); err != nil || !object.Mode.IsRegular() || b.layers[file] != nil || above == nil || above.Kind != Bind || !b.protects(file) {
		return
	}
	b.layers.put(Step{Kind: Bind, Path: file, Source: file, Access: profile.ReadOnly, Origin: gitOrigin, Purpose: Protects, Pinned: true, file: true, Settings: true})
}

// isWhole reports whether git takes a directory for one of its own as it is. What a command left in
// half, and another one completes, is no repository of the person's: it is looked at when it
// becomes whole, as any that comes into being.
func (b *builder) isWhole(dir string) bool {
	has := func(name string) bool {
		_, err := b.tree.Lstat(join(dir, name))
		return err == nil
	}
	return has("HEAD") && (has("commondir") || has("objects") && has("refs"))
}

// gitDirectory protects one git directory below a writable one. worktree is where its files are
// checked out, if anywhere.
func (b *builder) gitDirectory(root, dir, worktree string) {
	switch {
	case b.again == nil:
		b.ownFiles(dir)
	case !b.again.git[dir] && b.writable(dir): // made since the first look, so perhaps by the command: the watch looks after it
		return
	}
	b.leadsOf(dir, worktree)
	b.gitDirectories(root, join(dir, "modules"), 4)
	b.gitDirectories(root, join(dir, "worktrees"), 1)
}

// ownFiles protects what git believes in a git directory. What comes into being of it later, the
// watch looks after.
func (b *builder) ownFiles(dir string) {
	b.anchor(dir)
	whole := b.isWhole(dir)
	if whole {
		b.protection.git[dir] = true
	}
	for _, name := range []string{"config", "config.worktree", "commondir", "gitdir"} {
		b.guardGit(join(dir, name))
		if step := b.layers[join(dir, name)]; whole && strings.HasPrefix(name, "config") && step != nil && step.Purpose == Protects && step.file {
			step.Settings, step.inLayer = true, false
		}
	}
	b.lead(join(dir, "hooks"), gitOrigin)
	for _, name := range []string{"remotes", "branches"} { // an old way to say where "git push" goes
		b.lead(join(dir, name), gitOrigin)
	}
}

// guardGit protects a path of git's, unless git is told not to be.
func (b *builder) guardGit(file string) {
	if _, err := b.tree.Lstat(file); err == nil && b.protects(file) {
		b.guard(file, gitOrigin)
	}
}

func (b *builder) protects(file string) bool {
	return b.profile.Protects(baseName(file)) && b.profile.Protects(".git/"+baseName(file))
}

// gitDirectories protects the git directories of submodules or worktrees. Their names may have
// slashes.
func (b *builder) gitDirectories(root, dir string, depth int) {
	entries, err := b.tree.ReadDir(dir)
	if err != nil || len(entries) == 0 {
		return
	}
	if len(entries) > maxModules {
		if b.again == nil {
			b.guard(dir, gitOrigin)
		}
		return
	}
	if b.again == nil {
		b.anchor(dir)
	}
	for _, entry := range entries {
		below := join(dir, entry.Name)
		if !entry.Dir {
			continue
		}
		if inner, err := b.tree.ReadDir(below); err == nil && slices.ContainsFunc(inner, func(e Entry) bool { return e.Name == "HEAD" && !e.Dir && !e.Link }) {
			b.gitDirectory(root, below, "")
		} else if depth > 1 {
			b.gitDirectories(root, below, depth-1)
		}
	}
}

func (b *builder) gitSettings(file string) []repository.Setting {
	w, err := follow(b.tree, file)
	if err != nil || !w.Object.Mode.IsRegular() {
		return nil
	}
	text, err := b.tree.ReadFile(w.Real, maxGitFile)
	if err != nil {
		return nil
	}
	return repository.Parse(text)
}

// expandHome is a path in which ~ and ~NAME are what they stand for: the home of the person, or of
// another user that /etc/passwd has.
func (b *builder) expandHome(name string) string {
	if name == "" || name[0] != '~' {
		return name
	}
	user, rest, _ := strings.Cut(name[1:], "/")
	home := b.profile.Home
	if user != "" && user != baseName(home) {
		home = ""
		text, _ := b.tree.ReadFile("/etc/passwd", maxGitFile)
		for line := range strings.Lines(text) {
			if fields := strings.Split(strings.TrimSpace(line), ":"); len(fields) == 7 && fields[0] == user && path.IsAbs(fields[5]) {
				home = path.Clean(fields[5])
			}
		}
	}
	if home == "" {
		return name
	}
	return join(home, rest)
}

func absolute(name, dir string) string {
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	return path.Join(dir, name)
}
