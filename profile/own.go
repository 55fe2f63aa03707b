package profile

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// approvalsName is the name of the approvals file in the user's configuration directory.
const approvalsName = "exec-approvals.json"

// Places are these directories, and where symbolic links take what this program reads in them: what
// it leads to in the end, and every link on the way that lies elsewhere. Whoever may write one of
// them says what agents may do, wherever it is.
func (d Directories) Places() (places, links []string) {
	places = d.list()
	isOwn := func(place string) bool {
		return slices.ContainsFunc(places, func(own string) bool { return Within(place, own) })
	}
	for _, path := range append(slices.Clone(places), filepath.Join(d.SystemConfig, configName), filepath.Join(d.Config, configName), filepath.Join(d.Config, approvalsName)) {
		real, passed := follow(path)
		for _, link := range passed {
			if !isOwn(link) {
				links = append(links, link)
			}
		}
		if len(passed) > 0 && !isOwn(real) {
			places = append(places, real)
		}
	}
	return places, links
}

// maxPlaces is how many symbolic links one path may pass through, as in the kernel
// (path_resolution(7)).
const maxPlaces = 40

// follow says where a path leads, and lists the symbolic links that it passes through.
func follow(path string) (real string, links []string) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &how)
	if err == nil {
		unix.Close(fd)
		return path, nil
	}
	if err == unix.ENOENT {
		return path, nil // nor a link before what is not there
	}
	real = "/"
	rest := path
	for {
		name, after, _ := strings.Cut(strings.TrimLeft(rest, "/"), "/")
		switch name {
		case "":
			return real, links
		case ".", "..":
			real, rest = filepath.Join(real, name), after
			continue
		}
		next := filepath.Join(real, name)
		text, err := os.Readlink(next)
		if err != nil { // no link, or nothing
			real, rest = next, after
			continue
		}
		if links = append(links, next); len(links) > maxPlaces {
			return real, links
		}
		if filepath.IsAbs(text) {
			real = "/"
		}
		rest = text + "/" + after
	}
}
