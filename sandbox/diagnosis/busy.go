package diagnosis

import (
	"strings"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox"
)

// saysBusy is what is said of a path that is a mount, or has one in it.
var saysBusy = lazily(`(?i)device or resource busy|\bEBUSY\b|os error 16\)|^fatal: could not remove '`)

// busy is what cannot be removed, or renamed, because it is protected, or something in it is: what
// protects it is a mount.
func (d *diagnosis) busy(lines []string, i int) []Missing {
	if !saysBusy.MatchString(lines[i]) {
		return nil
	}
	for _, text := range d.paths(lines, i) {
		if d.candidates++; d.candidates > maxCandidates || text == "" || len(text) > maxLine || strings.ContainsRune(text, 0) {
			return nil
		}
		asked := d.absolute(text)
		for _, s := range d.Plan.Steps {
			if s.Purpose != sandbox.Protects && s.Purpose != sandbox.Anchors && !s.Settings || !profile.Within(s.Path, asked) {
				continue
			}
			return []Missing{{Kind: Path, Path: asked, Access: profile.ReadWrite, Why: ReadOnly, about: aProtectedName,
				Hint: sandbox.Quote(asked) + ", or something in it, is protected, because something outside executes it or does as it says: nothing inside removes or renames what was there before the command; type it outside, without clai-sandbox"}}
		}
	}
	return nil
}
