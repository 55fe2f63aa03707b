package sandbox

import (
	"path"
	"slices"
	"strings"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/protect"
	"github.com/clairun/clai-sandbox/sandbox/repository"
)

// What a person's programs execute, or obey, is often named somewhere else: git's settings name
// hooks, programs and further settings, a link in the home leads into a directory of dotfiles.
// Whatever leads so into a directory that the command may write is protected there, whether it
// exists or not.

const (
	// maxGitFiles is how many files of settings, with all that they include, are read for one
	// repository.
	maxGitFiles = 256
	// maxHomeDirectories is how many directories of the home are looked through for links, all
	// together.
	maxHomeDirectories = 2048
	// maxLinked is how many symbolic links in protected directories, and in the home, are followed.
	maxLinked = 4096
	// maxTrees is how many working trees one repository may have by its settings.
	maxTrees = 8
	// linkedLevels is how deep they are looked for in a protected directory.
	linkedLevels = 12
)

// lead protects what a path leads to, if a command could write it: it is read-only, or set aside
// when it comes into being. So are the links on the way. isRoot says that it leads to a writable
// directory itself, which stays so.
func (b *builder) lead(name string, origin profile.Origin) (isRoot bool) {
	return b.leadOn(name, origin, false)
}

// leadFile is lead for what is a file, if it is protected: a directory is the project's own.
func (b *builder) leadFile(name string, origin profile.Origin) {
	if w, err := follow(b.tree, name); err != nil || w.Object.Mode.IsRegular() {
		b.leadOn(name, origin, true)
	} else if w.Object.Mode.IsDir() {
		b.awaitNoDirectory(w)
	}
}

func (b *builder) leadOn(name string, origin profile.Origin, file bool) (isRoot bool) {
	if !b.protects(name) {
		return false
	}
	for range maxLinks { // as many as the kernel follows
		w, err := follow(b.tree, name)
		b.awaitLinks(w)
		b.holdLeft(w)
		switch {
		case err == nil && b.isRoot(w.Real):
			return true
		case err == nil && b.writable(w.Real) && b.protects(w.Real):
			b.guard(w.Real, origin)
			if w.Object.Mode.IsRegular() {
				b.protection.names.AddNew(protect.Name{Path: baseName(w.Real), In: parent(w.Real), Rule: baseName(w.Real), Made: true})
			}
		case err == nil:
			b.linkedOutside(w.Real, w.Object)
		case b.writable(w.Real):
			if name = b.awaitMissing(w, file); name != "" {
				continue
			}
		}
		break
	}
	return false
}

// awaitMissing has what does not exist set aside when it comes into being, and links that would
// lead past it. What is no directory where one would have to be counts as if nothing were there: a
// command may replace it. It returns where the way goes on behind "..", if it does.
func (b *builder) awaitMissing(w walk, file bool) (next string) {
	b.holdWay(w.Real)
	at := w.Real
	for i, name := range w.Rest {
		switch {
		case name == "..":
			return join(parent(at), strings.Join(w.Rest[i+1:], "/"))
		case i < len(w.Rest)-1:
			b.awaitLinkAt(join(at, name))
		default:
			b.protection.names.AddNew(protect.Name{Path: name, In: at, Rule: name, Leaf: file})
		}
		at = join(at, name)
	}
	return ""
}

// awaitNoDirectory protects a path at which a directory is, that is the project's own: another
// thing in its place is set aside.
func (b *builder) awaitNoDirectory(w walk) {
	if b.writable(w.Real) && !b.isRoot(w.Real) {
		b.protection.names.AddNew(protect.Name{Path: baseName(w.Real), In: parent(w.Real), Rule: baseName(w.Real), Leaf: true})
		b.holdWay(parent(w.Real))
	}
	b.awaitLinks(w)
	b.holdLeft(w)
}

// holdWay keeps directories on the way to what does not exist from being replaced: by renaming, or
// by a link.
func (b *builder) holdWay(dir string) {
	b.anchor(dir)
	for ; b.writable(dir) && b.writable(parent(dir)) && !b.isRoot(dir); dir = parent(dir) {
		b.awaitLinkAt(dir)
	}
}

// holdLeft has links set aside in the place of directories that a path leaves by "..": they would
// lead to another one's parent.
func (b *builder) holdLeft(w walk) {
	for _, dir := range w.Left {
		if b.writable(dir) && !b.isRoot(dir) {
			b.awaitLinkAt(dir)
		}
	}
}

func (b *builder) awaitLinkAt(dir string) {
	b.protection.names.AddNew(protect.Name{Path: baseName(dir), In: parent(dir), Rule: baseName(dir), Link: true})
}

// isRoot reports whether a path is what a grant makes writable, and not only below that.
func (b *builder) isRoot(path string) bool {
	step := b.layers[path]
	return step != nil && step.Kind == Bind && step.Access == profile.ReadWrite && step.Purpose != Anchors
}

// leadAll is lead for all links in a directory, some levels deep. What a link to a directory leads
// to is the project's own, unless directories count.
func (b *builder) leadAll(dir string, origin profile.Origin, levels int, directories bool) {
	entries, err := b.tree.ReadDir(dir)
	if err != nil {
		return
	}
	for _, entry := range entries {
		name := join(dir, entry.Name)
		switch {
		case entry.Dir && levels > 1 && !b.protection.names.InPackages(entry.Name):
			b.leadAll(name, origin, levels-1, directories)
		case entry.Link:
			b.leadLink(name, origin, directories)
		}
	}
}

func (b *builder) leadLink(name string, origin profile.Origin, directories bool) {
	if b.linked++; b.linked > maxLinked {
		b.refused = &SetupError{Path: parent(name), Why: "has more symbolic links than are followed, and what they lead to could not be protected",
			Hint: "leave it unprotected with --unprotect " + Quote(baseName(parent(name)))}
		return
	}
	if w, err := follow(b.tree, name); !directories && err == nil && !w.Object.Mode.IsRegular() {
		if w.Object.Mode.IsDir() && b.protects(name) {
			b.awaitNoDirectory(w)
		}
		return
	}
	b.lead(name, origin)
}

// gitLeads protects what the settings of a repository, and those that count in all, name: where the
// hooks are, which files are read as settings, too, and what git executes. tree is the repository's
// working tree, if it has one.
func (b *builder) gitLeads(tree string, files ...string) {
	read := b.readGit(append(files, b.personsGit()...), b.personsSettings()...)
	for _, f := range read.files[len(files):] {
		b.lead(f, gitOrigin) // those that are included, and the person's own
	}
	trees := []string{tree}
	for _, s := range read.settings {
		if s.Key == "core.worktree" && len(files) > 0 {
			if w, err := follow(b.tree, absolute(b.expandHome(s.Value), parent(files[0]))); err == nil && !slices.Contains(trees, w.Real) {
				trees = append(trees, w.Real)
			}
		}
	}
	for _, tree := range trees[:min(len(trees), maxTrees)] {
		for _, s := range read.settings {
			b.gitLead(tree, s)
		}
	}
}

// gitLead protects what one setting names.
func (b *builder) gitLead(tree string, s repository.Setting) {
	switch {
	case s.Key == "core.hookspath" || s.Key == "init.templatedir" || s.Key == "gitflow.path.hooks":
		dir := b.expandHome(s.Value)
		b.addLate(b.relativeTo([]repository.Setting{s}))
		if s.Value == "" || tree == "" && !path.IsAbs(dir) {
			return
		}
		if dir = absolute(dir, tree); b.lead(dir, gitOrigin) {
			b.close(dir, protect.Closed{Path: dir, Why: "git on the host executes hooks in it (" + s.Key + ")"})
		}
		b.leadAll(dir, gitOrigin, linkedLevels, false)
		b.linkedOutsideIn(dir)
		b.hookLeads(dir, tree)
	case isProgram(s):
		words, modules := b.words(s.Value)
		for _, word := range append(words, modules...) {
			if (tree == "" || isAlias(s)) && !path.IsAbs(word) {
				continue
			}
			if w, err := follow(b.tree, absolute(word, tree)); err == nil && w.Object.Mode.IsDir() {
				b.awaitNoDirectory(w)
			} else {
				b.lead(absolute(word, tree), gitOrigin)
			}
		}
		if tree != "" && !isAlias(s) {
			for _, name := range plainNames(s.Value) {
				b.leadFile(join(tree, name), gitOrigin)
			}
			b.tellTree(tree, s)
		}
		b.addLate(b.relativeTo([]repository.Setting{s}))
	case obeyed(s, tree):
		b.leadFile(absolute(b.expandHome(s.Value), tree), gitOrigin)
	}
}

// onlyShown are files that git puts into what the person reads, and no more.
var onlyShown = []string{"commit.template", "blame.ignorerevsfile", "diff.orderfile"}

// obeyed reports whether a setting may name a file in a working tree that git obeys: whom it
// trusts, what it filters. Where it fetches from is no file, and a submodule no setting.
func obeyed(s repository.Setting, tree string) bool {
	switch {
	case slices.Contains(onlyShown, s.Key), strings.HasSuffix(s.Key, "url"), strings.HasPrefix(s.Key, "submodule."), strings.IndexByte(s.Value, 0) >= 0:
		return false
	case strings.HasPrefix(s.Value, "/"), strings.HasPrefix(s.Value, "~"):
		return true
	}
	name := s.Key[strings.LastIndexByte(s.Key, '.')+1:]
	return tree != "" && s.Value != "" && !slices.Contains([]string{"true", "false", "yes", "no", "on", "off"}, s.Value) &&
		slices.ContainsFunc([]string{"file", "path", "cainfo", "cert", "key"}, func(ending string) bool { return strings.HasSuffix(name, ending) })
}

// isProgram reports whether what a setting has is executed, by git or by one of the programs that
// it is extended with.
func isProgram(s repository.Setting) bool {
	return repository.Judge(s.Key, s.Value) == repository.Executes || strings.HasPrefix(s.Key, "lfs.customtransfer.") || strings.HasPrefix(s.Key, "lfs.extension.")
}

// A gitRead is what was read of git's settings: the files, and those that they include, and all
// that is in them.
type gitRead struct {
	files    []string
	settings []repository.Setting
}

// readGit reads files of settings, and all that they, or settings besides, include.
func (b *builder) readGit(files []string, besides ...repository.Setting) gitRead {
	r := gitRead{files: files}
	include := func(s repository.Setting, dir string) {
		r.settings = append(r.settings, s)
		if s.Key == "include.path" || strings.HasPrefix(s.Key, "includeif.") && strings.HasSuffix(s.Key, ".path") {
			if file := absolute(b.expandHome(s.Value), dir); !slices.Contains(r.files, file) {
				r.files = append(r.files, file)
			}
		}
	}
	for _, s := range besides {
		include(s, "/")
	}
	for i := 0; i < len(r.files); i++ {
		if i > maxGitFiles {
			b.refused = &SetupError{Path: r.files[0], Why: "git's settings there include more files than are read", Hint: "include fewer"}
			return r
		}
		for _, s := range b.gitSettings(r.files[i]) {
			include(s, parent(r.files[i]))
		}
	}
	return r
}

// personsGit are the files of settings that count in all repositories.
func (b *builder) personsGit() []string {
	list := []string{"/etc/gitconfig", join(b.profile.Home, ".gitconfig"), join(b.profile.Home, ".config/git/config")}
	return append(list, b.profile.PersonsGit...)
}

// personsSettings are those that the caller's environment has.
func (b *builder) personsSettings() []repository.Setting {
	var list []repository.Setting
	for _, s := range b.profile.PersonsSettings {
		list = append(list, repository.Parse(s)...)
	}
	return list
}

// personsOwn protects what leads from the person's home, environment and settings into what the
// command may write.
func (b *builder) personsOwn() {
	origin := profile.Origin{Kind: profile.OriginDefault, Source: "protectedPaths"}
	b.gitLeads("")
	for _, file := range b.profile.PersonsFiles {
		b.lead(file, origin)
	}
	for _, file := range b.profile.PersonsNamed {
		b.leadFile(file, origin)
	}
	b.startupLeads(origin)
	for _, root := range slices.Clone(b.protection.Roots) {
		b.repositoryAbove(root)
	}
	b.homeLinks(origin)
}

// repositoryAbove protects what the repository that a writable directory is in names in it.
func (b *builder) repositoryAbove(root string) {
	for tree := root; ; tree = parent(tree) {
		git := join(tree, ".git")
		object, err := b.tree.Lstat(git)
		switch {
		case err != nil || tree == root && b.writable(git):
		case object.Mode.IsRegular():
			if w, ok := b.named(git, "gitdir: ", tree); ok {
				b.leadsOf(w.Real, tree)
			}
		default:
			if w, err := follow(b.tree, git); err == nil {
				b.leadsOf(w.Real, tree)
			}
		}
		if tree == "/" {
			return
		}
	}
}

// leadsOf protects what a git directory's settings and hooks name.
func (b *builder) leadsOf(dir, tree string) {
	common := dir
	if w, ok := b.named(join(dir, "commondir"), "", dir); ok {
		common = w.Real
	}
	files := []string{join(common, "config"), join(dir, "config.worktree"), join(common, "config.worktree")}
	b.gitLeads(tree, files...)
	b.leadAll(join(common, "hooks"), gitOrigin, 1, false)
	for _, file := range files {
		b.linkedOutsideAt(file)
	}
	b.linkedOutsideIn(join(common, "hooks"))
	b.hookLeads(join(common, "hooks"), tree)
}

// personsRelative is relativeTo of the settings that count in all repositories: also in one that a
// command makes.
func (b *builder) personsRelative() []protect.Name {
	return b.relativeTo(b.readGit(b.personsGit(), b.personsSettings()...).settings)
}

// shadows are the names of programs that a command could put before others: in a directory that it
// may write, and that the caller's PATH has.
func (b *builder) shadows() []protect.Name {
	var before, relative, others []string
	for _, dir := range b.profile.PersonsPath {
		if !path.IsAbs(dir) {
			relative = append(relative, dir)
			continue
		}
		w, err := follow(b.tree, dir)
		if err != nil && b.writable(w.Real) && !slices.Contains(w.Rest, "..") { // it may be made
			before = append(before, join(w.Real, strings.Join(w.Rest, "/")))
		} else if err == nil && b.writable(w.Real) {
			before = append(before, w.Real)
		} else if err == nil && !slices.Contains(others, w.Real) {
			others = append(others, w.Real)
		}
	}
	if len(before)+len(relative) == 0 {
		return nil
	}
	var names []protect.Name
	for _, in := range before { // a link in its place leads elsewhere
		for ; b.writable(in) && b.writable(parent(in)); in = parent(in) {
			names = append(names, protect.Name{Path: baseName(in), In: parent(in), Rule: baseName(in), Link: true})
		}
	}
	for _, dir := range others {
		entries, _ := b.tree.ReadDir(dir)
		for _, entry := range entries {
			for _, in := range before {
				names = append(names, protect.Name{Path: entry.Name, In: in})
			}
			for _, dir := range relative {
				names = append(names, b.relative(dir+"/"+entry.Name, true)...)
			}
		}
	}
	return names
}

// relativeTo is where settings have hooks and programs in a working tree, whichever it is: a
// worktree that a command adds has the same settings, and so has a directory with a file .git that
// leads to their repository.
func (b *builder) relativeTo(settings []repository.Setting) []protect.Name {
	var names []protect.Name
	for _, s := range settings {
		if s.Key == "core.hookspath" {
			names = append(names, b.relative(s.Value, false)...)
		} else if isProgram(s) && !isAlias(s) {
			words, _ := b.words(s.Value) // a module's name, as deep as it may be, is that of many a project's own files
			for _, word := range words {
				names = append(names, b.relative(word, true)...)
			}
		}
	}
	return names
}

// isAlias reports whether a setting is an alias: what it names in a project is executed when the
// person types that name, as any script of the project. What it names in one by its whole path, it
// executes elsewhere, too.
func isAlias(s repository.Setting) bool { return strings.HasPrefix(s.Key, "alias.") }

// relative is the name of what lies in a working tree, or beside it, if a path is relative. A
// program is no directory.
func (b *builder) relative(name string, program bool) []protect.Name {
	if name == "" {
		return nil
	}
	name = path.Clean(b.expandHome(name))
	for strings.HasPrefix(name, "../") {
		name = name[len("../"):]
	}
	if profile.CheckProtectedName(name) != nil || !b.protects(name) || !b.profile.Protects(name) {
		return nil
	}
	return []protect.Name{{Path: name, Anywhere: !program, Leaf: program}}
}

// addLate protects names that were not known when the directories were looked through.
func (b *builder) addLate(names []protect.Name) {
	for _, name := range names {
		if !slices.Contains(b.protection.names.List, name) {
			b.protection.names.Add(name)
			b.late = append(b.late, name)
		}
	}
}

// guardLate makes read-only what there is under such names: programs in other working trees of a
// repository, or where a command of git's goes before it executes them.
func (b *builder) guardLate() {
	if b.again != nil { // what the first look had is protected
		b.late = slices.DeleteFunc(b.late, func(name protect.Name) bool { return b.again.late[name] || slices.Contains(b.again.names.List, name) })
		for _, name := range b.late {
			b.again.late[name] = true
		}
	}
	if len(b.late) == 0 {
		return
	}
	late := protect.NewNames(b.late, profile.PackageDirectories())
	for _, root := range b.protection.Roots {
		for _, f := range b.look(root, late).Found {
			if f.Rule != "" && b.writable(f.Path) && !b.protection.known[f.Path] {
				b.lead(f.Path, gitOrigin)
			}
		}
	}
}
