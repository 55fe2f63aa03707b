package profile

import "strings"

// neverGrantable are the trees that no sandbox shows, whoever grants them. The sandbox makes its
// own /proc and /dev, has /sys read-only already, and /run holds the sockets of everything that
// runs on the host.
var neverGrantable = []string{"/proc", "/sys", "/dev", "/run"}

// NeverGrantable reports whether no grant may lead to path, and why. The path is absolute and
// clean. It is asked for the path as typed and, by package sandbox, again for what that turned out
// to mean.
func NeverGrantable(path string) (why string, never bool) {
	if path == "/" {
		return "the whole file system is never granted", true
	}
	for _, tree := range neverGrantable {
		if path == tree || strings.HasPrefix(path, tree+"/") {
			why := "nothing of " + tree + " is ever granted"
			if tree == "/dev" && path != tree {
				why += "; for a device: --device " + shorten(path)
			}
			return why, true
		}
	}
	return "", false
}
