package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/cow"
	"github.com/clairun/clai-sandbox/sandbox/image"
	"github.com/clairun/clai-sandbox/sandbox/protect"
)

// Build decides what the sandbox of a profile shows. The same profile on the same tree gives the
// same plan.
//
// A grant that leads nowhere is left out with a notice. A workspace that cannot be used, or a grant
// of the command line that leads where none may, is a *SetupError.
func Build(p profile.Profile, tree Tree) (Plan, error) {
	b := builder{profile: p, tree: newMemory(tree)}
	b.own = b.ownDirectories()
	found, err := b.system()
	if err != nil {
		return Plan{}, err
	}
	if err := b.grants(); err != nil {
		return Plan{}, err
	}
	b.caches()
	b.ownHome()
	b.ownWorkspace()
	b.keepBack()
	b.hold()
	b.hide()
	b.made = b.madeBefore()
	b.protect()
	if b.refused != nil {
		return Plan{}, b.refused
	}
	b.home()
	reached := b.sessionBus()
	agent := b.sshAgent()
	if err := b.devices(); err != nil {
		return Plan{}, err
	}
	b.network()
	b.ask()
	if err := b.leadThroughImage(); err != nil {
		return Plan{}, err
	}
	plan := Plan{
		Steps:            b.steps(),
		Rootfs:           b.rootfs,
		Network:          p.Network,
		Domains:          p.Domains,
		Upstream:         p.Upstream,
		Published:        p.Published,
		SessionBus:       p.SessionBus,
		Bus:              reached,
		SSHAgent:         agent,
		NestedNamespaces: p.NestedNamespaces,
		Environment:      asking(&p, agent.environment(proxied(&p, busEnvironment(reached, withPath(b.trusting(p.Environment), found))))),
		WorkingDirectory: p.WorkingDirectory,
		Limits:           p.Limits,
		Hidden:           b.hidden,
		ForGood:          b.forGood,
		Protection:       b.protection,
		Notices:          b.notices,
	}
	for _, n := range p.Narrowed {
		if n.Key == "sandbox.network" {
			plan.NetworkBy = n.Origin.Source
		}
	}
	if p.ReadOnlyWorkspace {
		plan.notice(NoticeWorkspace, p.Workspace, fmt.Sprintf("%s is only read here, because clai-sandbox keeps its own files in it; to write, work in a directory below it, or: --workspace DIR", printable(p.Workspace)))
	}
	if p.NestedNamespaces {
		plan.notice(NoticeUserNamespace, "", "the command may make user namespaces: more of the kernel is within its reach")
	}
	if p.Network == profile.NetworkFiltered {
		for _, rule := range p.Domains.Allowed {
			if wide := rule.Wide(); wide != "" {
				plan.notice(NoticeWide, "", fmt.Sprintf("%s is allowed: %s, so the command can send what it sees to whoever it likes", rule, wide))
			}
		}
	}
	return plan, plan.checkWorkingDirectory(tree)
}

type builder struct {
	profile profile.Profile
	tree    Tree
	own     []string // this program's directories, resolved
	layers  layers
	rootfs  *Rootfs // nil: the host's system
	kept    []Step  // what is shown again of covered directories

	processes []Step // in /proc, besides what all have
	nodes     []Step // in /dev, besides what all have

	hidden     []string
	forGood    []string
	guarded    int // how many paths are protected
	toldStray  bool
	toldTree   bool
	late       []protect.Name     // that were not known when the directories were looked through
	linked     int                // how many names in them were looked at
	homeLinked int                // links in the home that were followed
	outside    map[[2]uint64]bool // files with several names that something outside obeys: device and inode
	unseen     []string           // directories of the home, in which not all links were looked for
	protection *Protection
	again      *Protection     // what a first look found; nil: this is the first
	made       map[string]bool // what is known of repositories that commands made; nil: not asked
	refused    error
	links      []Link
	notices    []Notice
}

// ownDirectories resolves where this program keeps its own files. One that does not exist yet is
// protected all the same: nobody inside may make it.
func (b *builder) ownDirectories() []string {
	var list []string
	for _, dir := range b.profile.OwnDirectories {
		w, err := follow(b.tree, dir)
		if err != nil {
			w.Real = strings.Join(append([]string{strings.TrimSuffix(w.Real, "/")}, w.Rest...), "/")
		}
		list = append(list, w.Real)
	}
	return list
}

// system shows what every sandbox has: the host's system, or an image, which it returns.
func (b *builder) system() (found *image.Image, err error) {
	trees, files := systemTrees, systemFiles
	if b.profile.Image != "" {
		if found, err = b.image(); err != nil {
			return nil, err
		}
		trees, files = kernelTrees, nil
	}
	for _, path := range trees {
		b.show(path, profile.ReadOnly, baseline)
	}
	b.temporary("/tmp", b.profile.PrivateTmp)
	if !b.isUsed(varTmp) {
		if found == nil {
			b.temporary(varTmp, "")
		} else {
			b.temporaryInImage()
		}
	}
	if w, err := follow(b.tree, sshDirectory); err == nil && b.layers.shows(w.Real) {
		b.cover(w, 0o555, sshFiles, baseline)
	}
	for _, path := range files {
		b.showFile(path)
	}
	if found == nil {
		b.programs()
	}
	if b.profile.UID == 0 {
		b.closeToRoot()
	}
	return found, nil
}

// temporary makes a directory for anybody's files, whatever the host has there.
func (b *builder) temporary(path, source string) {
	w, err := follow(b.tree, path)
	if err != nil || !w.Object.Mode.IsDir() {
		w = walk{Real: path}
	}
	if step := b.layers.at(w.Real); step == nil || step.Kind != Private { // one of the two may be a link to the other
		b.add(w, Step{Kind: Private, Path: w.Real, Source: source, Mode: sticky, Origin: baseline})
	} else {
		b.links = append(b.links, w.Links...)
	}
}

// isUsed reports whether the profile names something below a directory. What is there is shown
// then, and what is beside it is not.
func (b *builder) isUsed(dir string) bool {
	return within(b.profile.Home, dir) || within(b.profile.Workspace, dir) ||
		slices.ContainsFunc(b.profile.Grants, func(g profile.Grant) bool { return within(g.Path, dir) })
}

// programs shows where the command's PATH leads, of the places beside the system's own where
// programs are installed for all.
func (b *builder) programs() {
	for _, v := range b.profile.Environment {
		if v.Name != "PATH" {
			continue
		}
		for _, dir := range strings.Split(v.Value, ":") {
			if !path.IsAbs(dir) {
				continue
			}
			w, err := follow(b.tree, path.Clean(dir))
			if err != nil || !w.Object.Mode.IsDir() {
				continue
			}
			for _, tree := range programTrees {
				if !within(w.Real, tree) || w.Real == "/opt" {
					continue
				}
				if tree == "/opt" {
					name, _, _ := strings.Cut(w.Real[len("/opt/"):], "/")
					tree = join(tree, name)
				}
				b.show(tree, profile.ReadOnly, baseline)
				b.links = append(b.links, w.Links...)
			}
		}
	}
}

// closeToRoot takes away what only a root caller could do.
func (b *builder) closeToRoot() {
	for _, path := range rootsDirectories {
		if w, err := follow(b.tree, path); err == nil && w.Object.Mode.IsDir() && b.layers.shows(w.Real) {
			b.cover(w, 0o555, nil, baseline)
		}
	}
	for _, path := range rootsFiles {
		if w, err := follow(b.tree, path); err == nil && w.Object.Mode.IsRegular() && b.layers.shows(w.Real) {
			b.layers.put(Step{Kind: Empty, Path: w.Real, Origin: baseline})
		}
	}
	for _, path := range rootsSettings {
		if _, err := b.tree.Lstat(path); err == nil {
			b.processes = append(b.processes, Step{Kind: Bind, Path: path, Source: path, Access: profile.ReadOnly, Origin: baseline})
		}
	}
}

// show adds a tree of the host's, if the host has it.
func (b *builder) show(path string, access profile.Access, origin profile.Origin) {
	if w, err := follow(b.tree, path); err == nil && w.Object.Mode.IsDir() {
		b.add(w, Step{Kind: Bind, Path: w.Real, Source: w.Real, Access: access, Origin: origin})
	}
}

// showFile adds a file of the system's with every link on the way to it. Where the way ends in
// nothing, or in something that is no file, the sandbox has what the host has: a link to nothing.
func (b *builder) showFile(path string) {
	if w, err := follow(b.tree, path); err == nil && w.Object.Mode.IsRegular() {
		b.add(w, Step{Kind: Bind, Path: w.Real, Source: w.Real, Access: profile.ReadOnly, Origin: baseline, file: true})
	}
}

// grants adds those of the profile. A link that the command may write, or an earlier one could, is
// not followed: where it leads is the command's choice, and no person's. ("mv data/x y; ln -s ~
// data/x", and the next run shows what a grant for data/x/secret never meant.)
func (b *builder) grants() error {
	var writable []string
	for _, g := range b.profile.Grants {
		if g.Access != profile.ReadWrite {
			continue
		}
		if w, err := follow(b.tree, g.Path); err == nil {
			writable = append(writable, w.Real)
		}
	}
	for _, g := range b.profile.Grants {
		if err := b.grant(g, writable); err != nil {
			return err
		}
	}
	for _, path := range b.grantedPaths() {
		if b.layers[path].Access == profile.CopyOnWrite {
			b.copiedRepository(path)
		}
	}
	return nil
}

// grant adds one grant of the profile. writable are the places that grants make so.
func (b *builder) grant(g profile.Grant, writable []string) error {
	w, err := follow(b.tree, g.Path)
	why := ""
	switch {
	case err != nil && g.Origin.Kind == profile.OriginDefault && errors.Is(err, syscall.ENOENT):
		return nil // nobody asked for it
	case err != nil && !errors.Is(err, syscall.ELOOP):
		return b.leaveOut(g, NoticePathLeftOut, reason(err))
	case err != nil: // not gone, but never there
		why = reason(err)
	case g.Expected != nil && w.Real != g.Expected.Path:
		why = fmt.Sprintf("leads to %s now, and %s was allowed", printable(w.Real), printable(g.Expected.Path))
	default:
		why = b.forbidden(w, g.Access)
	}
	for _, link := range w.Links {
		switch {
		case why != "":
		case slices.ContainsFunc(writable, func(root string) bool { return within(link.Path, root) }):
			why = fmt.Sprintf("%s is a symbolic link that the command can change; grant what it leads to: %s", printable(link.Path), printable(w.Real))
		case b.couldBeWritten(link.Path):
			why = fmt.Sprintf("%s is a symbolic link where commands could write, so one of them may have made it; if it is yours, grant what it leads to: %s",
				printable(link.Path), printable(w.Real))
		}
	}
	if why != "" {
		return b.leaveOut(g, NoticePathDenied, why)
	}
	if g.Origin.Kind == profile.OriginWorkspace && !w.Object.Mode.IsDir() {
		return b.leaveOut(g, NoticePathDenied, "not a directory")
	}
	step := Step{Kind: Bind, Path: w.Real, Source: w.Real, Access: g.Access, Origin: g.Origin, Pinned: true, explicit: g.Explicit, expected: g.Expected,
		file: !w.Object.Mode.IsDir()}
	if g.Access == profile.CopyOnWrite {
		if step.file {
			return b.leaveOut(g, NoticePathDenied, "copy on write takes a directory; grant the one that it is in")
		}
		step.Layer = join(b.profile.Layers, cow.Name(w.Real))
	}
	if w.Real != g.Path {
		step.Typed = g.Path
	}
	b.add(w, step)
	return nil
}

// hold keeps the grants where they are, whatever the command does with what it may write. It comes
// after all grants.
func (b *builder) hold() {
	for _, path := range b.grantedPaths() {
		step, above := b.layers[path], b.layers.at(parent(path))
		switch {
		case above == nil:
		case above.Kind == Private:
			// A directory of the command's own leads there: it could rename it, and make another
			// one. What leads there is a mount.
			b.leadThrough(above, path)
		case step.Access < profile.ReadWrite && above.Kind == Bind && above.Access == profile.ReadWrite:
			// "mv a z" in one run, and in the next what was read-only as a/b could be written as
			// z/b.
			step.narrows = true
			b.anchor(parent(path))
		}
	}
}

// leadThrough leads to a path through what is the command's own. Where the agent's home was
// prepared for it, that home's directories lead there, each a mount, so that the command can write
// in them and rename none; else an empty directory does.
func (b *builder) leadThrough(above *Step, path string) {
	for {
		first, _, _ := strings.Cut(strings.TrimPrefix(path, above.Path+"/"), "/")
		lead := join(above.Path, first)
		switch {
		case lead == path:
			return
		case above.Source == "" || !slices.Contains(b.profile.HomeLeads, lead):
			b.layers.put(Step{Kind: Mask, Path: lead, Mode: 0o755, Origin: baseline, Purpose: Anchors})
			return
		}
		if b.layers[lead] == nil {
			b.layers.put(Step{Kind: Private, Path: lead, Source: join(above.Source, first), Mode: fileMode(0o700), Origin: b.profile.HomeOrigin, Purpose: Anchors})
		}
		above = b.layers[lead]
	}
}

// grantedPaths are those that grants show, the shallow ones first.
func (b *builder) grantedPaths() []string {
	var list []string
	for path, step := range b.layers {
		if step.Kind == Bind && step.Pinned && step.Purpose == "" && !step.Image {
			list = append(list, path)
		}
	}
	slices.SortFunc(list, func(x, y string) int { return cmp.Or(cmp.Compare(depth(x), depth(y)), cmp.Compare(x, y)) })
	return list
}

// forbidden says why a grant may not lead to where it does, or nothing. The path is the resolved
// one: a link to /proc is /proc.
func (b *builder) forbidden(w walk, access profile.Access) string {
	if why, never := profile.NeverGrantable(w.Real); never {
		return why
	}
	if mode := w.Object.Mode; mode&fs.ModeDevice != 0 {
		return "a device: bubblewrap mounts grants without devices"
	}
	for _, h := range b.profile.Hidden {
		if !h.Enforced {
			continue
		}
		if hidden, err := follow(b.tree, h.Path); err == nil && within(w.Real, hidden.Real) {
			return "hidden for good by " + printable(h.Origin.Source)
		}
	}
	for _, own := range b.own {
		if within(w.Real, own) {
			return "holds clai-sandbox's own files"
		}
		if access > profile.ReadOnly && within(own, w.Real) {
			return fmt.Sprintf("clai-sandbox keeps its own files in it (%s), so it cannot be writable; --workspace-access ro only reads it", printable(own))
		}
	}
	return ""
}

// leaveOut records a grant that is not shown. What the person asked for in this very command is an
// error instead, and so is the workspace: without it the command would do something else than was
// meant.
func (b *builder) leaveOut(g profile.Grant, kind NoticeKind, why string) error {
	switch {
	case g.Origin.Kind == profile.OriginWorkspace:
		return &SetupError{Path: g.Path, Why: "cannot be the workspace: " + why, Hint: "choose another directory with --workspace DIR"}
	case g.Origin.Kind == profile.OriginFlag && kind == NoticePathDenied:
		return &SetupError{Path: g.Path, Why: "cannot be granted: " + why, Hint: "leave the grant out, or grant another path"}
	}
	b.notices = append(b.notices, Notice{Kind: kind, Path: g.Path,
		Text: fmt.Sprintf("left out: %s (%s): %s", printable(g.Path), printable(g.Origin.String()), why)})
	return nil
}

// ownHome puts a home of the agent's or the sandbox's own where no grant shows the caller's. In a
// directory that the command of an earlier run could have written it is not: nothing may be mounted
// by name there.
func (b *builder) ownHome() {
	w, err := follow(b.tree, b.profile.Home)
	if err != nil && !errors.Is(err, syscall.ENOENT) || b.profile.HomeIs == profile.HomeReadable {
		return
	}
	home := strings.Join(append([]string{strings.TrimSuffix(w.Real, "/")}, w.Rest...), "/")
	if _, never := profile.NeverGrantable(home); never || home == "" || b.layers[home] != nil || b.layers.shows(home) {
		return
	}
	step := Step{Kind: Private, Path: home, Source: b.profile.PrivateHome, Mode: fileMode(0o700), Origin: b.profile.HomeOrigin, Purpose: OwnHome}
	if above := b.layers.at(home); above != nil && (above.Kind != Private || above.Source != "") {
		return
	}
	if b.profile.HomeIs == profile.HomeEphemeral {
		step.Source = ""
	}
	b.add(w, step)
}

// home makes sure that the home directory is there, if only as an empty one.
func (b *builder) home() {
	w, err := follow(b.tree, b.profile.Home)
	if err != nil || w.Real == "/" || b.layers.shows(w.Real) || b.layers[w.Real] != nil {
		return
	}
	if _, never := profile.NeverGrantable(w.Real); !never {
		b.add(w, Step{Kind: Dir, Path: w.Real, Mode: 0o700, Origin: baseline})
	}
}

func (b *builder) add(w walk, step Step) {
	b.layers.put(step)
	b.links = append(b.links, w.Links...)
}

// steps puts everything into the order in which it is mounted.
func (b *builder) steps() []Step {
	list := b.layers.needed()
	list = append(list, b.linkSteps()...)
	for _, step := range b.kept {
		if b.layers.at(step.Path).Kind == Mask { // not granted after all
			list = append(list, step)
		}
	}
	list = append(list, b.processSteps()...)
	list = append(list, b.processes...)
	list = append(list, deviceSteps...)
	list = append(list, b.nodes...)
	shallowestFirst(list)
	list = largestLast(list)

	b.executeNothing(list)

	masks := b.maskSteps()
	list = append(list, masks...)
	for _, step := range list {
		if step.Kind == Mask && step.Purpose == Anchors {
			masks = append(masks, step)
		}
	}
	return append(list, seals(masks)...)
}

// executeNothing has nothing executed in the sandbox of an agent whose commands run in another one,
// of what they can write or a project brings along: a setting of the project's may name a copy of a
// shell there, a library to be loaded, or a directory in which programs are looked for, and a
// command may have written them.
func (b *builder) executeNothing(list []Step) {
	if b.profile.CommandSocket == "" {
		return
	}
	var roots []string
	for _, step := range list {
		if step.shared() && (step.writes() || step.Origin.Kind == profile.OriginWorkspace) {
			roots = append(roots, step.Path)
		}
	}
	for i := range list {
		step := &list[i]
		own := step.Origin.Kind == profile.OriginPreset && !step.writes() // as the agent's program
		step.noExec = step.shared() && !own && slices.ContainsFunc(roots, func(root string) bool { return within(step.Path, root) })
	}
}

// shared reports whether a step shows what another sandbox may have as well.
func (s *Step) shared() bool { return s.Kind == Bind && s.apart() }

func (s *Step) writes() bool { return s.Access != profile.ReadOnly }

// Writes reports whether a path is in what a command may write of the host's, whatever is read-only
// in that.
func (p *Plan) Writes(path string) bool {
	return slices.ContainsFunc(p.Steps, func(s Step) bool { return s.shared() && s.writes() && within(path, s.Path) })
}

// linkSteps are the symbolic links that the sandbox needs of its own: those that no bind shows
// already.
func (b *builder) linkSteps() []Step {
	var list []Step
	seen := map[string]bool{}
	for _, link := range b.links {
		if seen[link.Path] || b.layers.shows(link.Path) || b.layers[link.Path] != nil {
			continue
		}
		seen[link.Path] = true
		list = append(list, Step{Kind: Symlink, Path: link.Path, Source: link.Text, Origin: baseline})
	}
	return list
}

// maskSteps cover this program's own directories wherever a bind would show them. They stand last.
func (b *builder) maskSteps() []Step {
	var list []Step
	for _, own := range b.own {
		object, err := b.tree.Lstat(own)
		if err == nil && object.Mode.IsDir() && b.layers.shows(own) {
			list = append(list, Step{Kind: Mask, Path: own, Mode: 0o555, Origin: baseline})
		}
	}
	shallowestFirst(list)
	return list
}

// seals end all writing to what only the set-up had to write: the masks over our own directories,
// /dev, and the root, which comes last. What hides a person's files needs none: nobody may write it
// as it is, and what a command that changes this puts there goes with the sandbox.
func seals(masks []Step) []Step {
	list := []Step{{Kind: Seal, Path: "/dev", Origin: baseline}}
	for _, mask := range masks {
		list = append(list, Step{Kind: Seal, Path: mask.Path, Origin: baseline})
	}
	return append(list, Step{Kind: Seal, Path: "/", Origin: baseline})
}

func (p *Plan) notice(kind NoticeKind, path, text string) {
	p.Notices = append(p.Notices, Notice{Kind: kind, Path: path, Text: text})
}

// reason is an errno in words, without the path that the message names already.
func reason(err error) string {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno.Error()
	}
	return err.Error()
}

// memory looks at each object of a tree once: grants share most of their parents, and settings are
// read for several reasons.
type memory struct {
	tree   Tree
	seen   map[string]lstat
	listed map[string]dirEntries
	read   map[fileRead]fileText
}

func newMemory(tree Tree) *memory {
	return &memory{tree: tree, seen: map[string]lstat{}, listed: map[string]dirEntries{}, read: map[fileRead]fileText{}}
}

type fileRead struct {
	path  string
	limit int
}

type fileText struct {
	text string
	err  error
}

type dirEntries struct {
	entries []Entry
	err     error
}

type lstat struct {
	object Object
	err    error
}

func (m *memory) Lstat(path string) (Object, error) {
	found, ok := m.seen[path]
	if !ok {
		found.object, found.err = m.tree.Lstat(path)
		m.seen[path] = found
	}
	return found.object, found.err
}

func (m *memory) Readlink(path string) (string, error) { return m.tree.Readlink(path) }

func (m *memory) ReadDir(path string) ([]Entry, error) {
	found, ok := m.listed[path]
	if !ok {
		found.entries, found.err = m.tree.ReadDir(path)
		m.listed[path] = found
	}
	return slices.Clone(found.entries), found.err
}

func (m *memory) ReadFile(path string, limit int) (string, error) {
	found, ok := m.read[fileRead{path, limit}]
	if !ok {
		found.text, found.err = m.tree.ReadFile(path, limit)
		m.read[fileRead{path, limit}] = found
	}
	return found.text, found.err
}
