package sandbox

import (
	"io/fs"
	"strings"

	"github.com/clairun/clai-sandbox/sandbox/links"
)

// The types of package links under short names, since nearly every file here uses them.
type (
	Tree   = links.Tree
	Host   = links.Host
	Object = links.Object
	Entry  = links.Entry
	Link   = links.Link
	walk   = links.Walk
)

const maxLinks = links.MaxLinks

func follow(tree Tree, path string) (walk, error) { return links.Follow(tree, path) }
func join(dir, name string) string                { return links.Join(dir, name) }
func parent(path string) string                   { return links.Parent(path) }
func within(path, dir string) bool                { return links.Within(path, dir) }
func depth(path string) int                       { return links.Depth(path) }
func fileMode(mode uint32) fs.FileMode            { return links.FileMode(mode) }

// baseName is the last component of a path.
func baseName(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }
