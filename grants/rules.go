package grants

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
)

// Rules say what may be granted on this machine. The zero value knows no home and no directories of
// our own: make them with NewRules.
type Rules struct {
	Home string // what "~" stands for

	home     []string // as it is written, and where it leads
	own      []string // nothing in them is granted, and nothing around them for writing
	programs []string // never for writing
}

// NewRules returns the rules for a person's home. Own are the directories with this program's
// configuration, state and sockets; programs those with bwrap and with this program, which whoever
// can write to them replaces.
func NewRules(home string, own, programs []string) Rules {
	return Rules{Home: home, home: bothWays([]string{home}), own: bothWays(own), programs: bothWays(programs)}
}

// bothWays lists directories as they are written and, where that differs, as they resolve.
func bothWays(dirs []string) []string {
	var list []string
	for _, dir := range dirs {
		if dir == "" {
			continue
		}
		list = append(list, dir)
		if place, err := Resolve(dir); err == nil && place.Resolved != dir {
			list = append(list, place.Resolved)
		}
	}
	return list
}

// Refuse says, by a *NeverError, why nobody may grant a place.
func (r Rules) Refuse(p Place, access profile.Access) error {
	for _, path := range []string{p.Typed, p.Resolved} {
		if why := r.never(path, access); why != "" {
			return &NeverError{Path: path, Why: why}
		}
	}
	if p.Object.Is(unix.S_IFCHR) || p.Object.Is(unix.S_IFBLK) {
		return &NeverError{Path: p.Typed, Why: "a device is never granted: a sandbox mounts none"}
	}
	return nil
}

func (r Rules) never(path string, access profile.Access) string {
	if why, never := profile.NeverGrantable(path); never {
		return why
	}
	for _, own := range r.own {
		if profile.Within(path, own) {
			return "clai-sandbox's own files are never granted"
		}
		if access == profile.ReadWrite && profile.Within(own, path) {
			return fmt.Sprintf("clai-sandbox keeps its own files in it (%s), so it is never granted for writing", profile.Printable(own))
		}
	}
	for _, dir := range r.programs {
		if access == profile.ReadWrite && (profile.Within(path, dir) || profile.Within(dir, path)) {
			return fmt.Sprintf("whoever writes to %s replaces the programs that make the sandbox, so it is never granted for writing", profile.Printable(dir))
		}
	}
	return ""
}
