package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/cow"
	"github.com/clairun/clai-sandbox/sandbox/image"
)

// An image's files stand where the host's system would. Its directories at the root are shown
// read-only by plain binds; what a person granted, which is the host's, stands in them where it
// stands on the host. A directory of the image's that has such a thing in it is shown entry by
// entry, in one of the sandbox's own, so that there is a place to mount on.
//
// Copy on write, each directory at the root has a layer for each agent. Nobody brings those to the
// image: they count as caches.

// notOfImage are directories at the root that every sandbox has of its own.
var notOfImage = []string{"/proc", "/sys", "/dev", "/tmp", "/run"}

// maxAtRoot bounds what an image may have at its root.
const maxAtRoot = 200

// resolverFile is the host's in every sandbox: an image's import makes sure of a place for it.
const resolverFile = "/etc/resolv.conf"

// A Rootfs is the image of a plan.
type Rootfs struct {
	Name  string
	layer string // the topmost
	dir   string // of all images
}

func (r *Rootfs) origin() profile.Origin {
	return profile.Origin{Kind: profile.OriginImage, Source: r.Name}
}

// image shows an image's files.
func (b *builder) image() (*image.Image, error) {
	name := b.profile.Image
	refuse := func(err error) (*image.Image, error) {
		return nil, &SetupError{Why: "image " + name + " cannot be used: " + reason(err), Hint: "clai-sandbox image list lists those that can"}
	}
	text, err := b.tree.ReadFile(image.File(b.profile.Images, name), image.MaxFile)
	if errors.Is(err, syscall.ENOENT) {
		return nil, &SetupError{Why: "there is no image " + name, Hint: "clai-sandbox image list lists them, and image import makes one"}
	}
	if err != nil {
		return refuse(err)
	}
	found, err := image.Parse(name, text)
	if err != nil {
		return refuse(err)
	}
	root := found.Root(b.profile.Images)
	b.rootfs = &Rootfs{Name: name, layer: found.Layer, dir: b.profile.Images}
	entries, err := b.tree.ReadDir(root)
	if err == nil && len(entries) > maxAtRoot {
		err = fmt.Errorf("more than %d directories at its root", maxAtRoot)
	}
	if err != nil {
		return refuse(err)
	}
	for _, entry := range entries {
		step := Step{Kind: Bind, Path: "/" + entry.Name, Source: join(root, entry.Name), Access: profile.ReadOnly, Origin: b.rootfs.origin(), Image: true}
		if slices.Contains(notOfImage, step.Path) {
			continue
		}
		object, err := b.tree.Lstat(step.Source)
		switch {
		case err != nil:
			return refuse(err)
		case object.Mode&fs.ModeSymlink != 0:
			text, err := b.tree.Readlink(step.Source)
			if err != nil {
				return refuse(err)
			}
			step.Kind, step.Source, step.Access = Symlink, text, profile.NoAccess
		case object.Mode.IsRegular():
			step.file = true
		case !object.Mode.IsDir():
			continue
		case b.profile.ImageAccess == profile.CopyOnWrite:
			step.Access, step.Layer, step.Pinned = profile.CopyOnWrite, join(b.profile.Layers, cow.Name(step.Source)), true
		}
		b.layers.put(step)
	}
	b.resolver(root)
	return found, nil
}

// resolver shows the host's settings of its resolver, for there is one network.
func (b *builder) resolver(root string) {
	host, err := follow(b.tree, resolverFile)
	place, missing := b.tree.Lstat(root + resolverFile)
	if err == nil && missing == nil && host.Object.Mode.IsRegular() && place.Mode.IsRegular() {
		b.layers.put(Step{Kind: Bind, Path: resolverFile, Source: host.Real, Access: profile.ReadOnly, Origin: baseline, Image: true, file: true})
	}
}

// temporaryInImage makes a directory for anybody's files where the image has one.
func (b *builder) temporaryInImage() {
	above := b.layers.at(varTmp)
	if above == nil || above.Kind != Bind {
		return
	}
	for _, dir := range []string{parent(varTmp), varTmp} {
		if object, err := b.tree.Lstat(above.on(dir)); err != nil || !object.Mode.IsDir() {
			return
		}
	}
	b.layers.put(Step{Kind: Private, Path: varTmp, Mode: sticky, Origin: baseline, Image: true})
}

// leadThroughImage makes ways through the image to what is not its own. It comes when all else is
// decided.
func (b *builder) leadThroughImage() error {
	if b.rootfs == nil {
		return nil
	}
	for _, link := range b.links { // the host's, on the way to what was granted
		if above := b.layers.at(link.Path); above != nil && above.Image {
			b.layers.put(Step{Kind: Symlink, Path: link.Path, Source: link.Text, Origin: baseline})
		}
	}
	var paths []string
	for path, step := range b.layers {
		if !step.Image {
			paths = append(paths, path)
		}
	}
	slices.SortFunc(paths, func(x, y string) int { return cmp.Or(cmp.Compare(depth(x), depth(y)), cmp.Compare(x, y)) })
	for _, path := range paths {
		if err := b.leadTo(path); err != nil {
			return err
		}
	}
	return nil
}

// leadTo shows the image's directories above a path entry by entry, as far as the image has them.
func (b *builder) leadTo(path string) error {
	above := b.layers.at(parent(path))
	if above == nil || !above.Image {
		return nil
	}
	top := *above
	dir := top.Path
	for {
		object, err := b.tree.Lstat(top.on(dir))
		if errors.Is(err, syscall.ENOENT) {
			return nil
		}
		if err != nil || top.Kind != Bind || !object.Mode.IsDir() {
			return &SetupError{Path: path, Why: fmt.Sprintf("image %s has no directory at %s, so nothing can be shown in it", b.rootfs.Name, printable(dir)),
				Hint: "leave the grant out, or take another image"}
		}
		b.layers.put(Step{Kind: Bind, Path: dir, Source: top.on(dir), Access: profile.ReadOnly, Origin: top.Origin, Purpose: Leads, Pinned: true, Entries: true, Image: true})
		if dir == parent(path) {
			return nil
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(path, dir+"/"), "/")
		dir = join(dir, name)
	}
}

// on is what a bind shows at a path, on the host.
func (s *Step) on(path string) string {
	if s.Source == s.Path {
		return path
	}
	return s.Source + strings.TrimPrefix(path, s.Path)
}

// withPath gives the command the image's own $PATH, unless somebody said another.
func withPath(variables []profile.Variable, found *image.Image) []profile.Variable {
	i := slices.IndexFunc(variables, func(v profile.Variable) bool { return v.Name == "PATH" })
	if found == nil || found.Path == "" || i < 0 || variables[i].Origin.Kind != profile.OriginBaseline {
		return variables
	}
	variables = slices.Clone(variables)
	variables[i].Value, variables[i].Origin = found.Path, profile.Origin{Kind: profile.OriginImage, Source: found.Name}
	return variables
}

// hold keeps the image of a plan from being removed while the sandbox uses it.
func (r *Rootfs) hold() (*image.Hold, error) {
	if r == nil {
		return nil, nil
	}
	now, hold, err := image.Use(r.dir, r.Name)
	if err == nil && now.Layer != r.layer {
		hold.Close()
		err = errors.New("it was replaced meanwhile")
	}
	if err != nil {
		return nil, &SetupError{Why: "image " + r.Name + " cannot be used: " + err.Error(), Hint: "try again; clai-sandbox image list lists those that can"}
	}
	return hold, nil
}
