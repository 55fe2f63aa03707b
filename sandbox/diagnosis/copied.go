package diagnosis

import (
	"strings"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox"
)

// What an overlay file system cannot do, by what programs say then, with the way round it.
var overlayCannot = []struct{ said, hint string }{
	{"invalid cross-device link", "there a directory that the host has cannot be renamed, nor a file linked from elsewhere: copy it and remove the old one (mv does so itself; for git mv DIR: mkdir NEW && git mv DIR/* NEW)"},
	{"cross-device link not permitted", "there a directory that the host has cannot be renamed: copy it and remove the old one"},
	{"hardlink different from source", "there a file gets another number when it is linked, which git clone takes for an attack: git clone --no-hardlinks"},
}

// copied is what cannot be done where changes are kept apart.
func (d *diagnosis) copied(line string) []Missing {
	small := strings.ToLower(line)
	for _, c := range overlayCannot {
		if !strings.Contains(small, c.said) {
			continue
		}
		at := ""
		for _, s := range d.Plan.Steps {
			if s.Kind == sandbox.Bind && s.Access == profile.CopyOnWrite && s.Layer != "" && s.Purpose != sandbox.Caches &&
				profile.Within(d.Directory, s.Path) && len(s.Path) > len(at) {
				at = s.Path
			}
		}
		if at != "" {
			return []Missing{{Kind: Path, Path: at, Access: profile.CopyOnWrite, Why: Copied, Hint: sandbox.Quote(at) + " is seen copy on write; " + c.hint}}
		}
	}
	return nil
}
