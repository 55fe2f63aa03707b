package sandbox

import (
	"slices"
	"strings"

	"github.com/clairun/clai-sandbox/profile"
)

// trusting leaves those variables out that name certificates which the sandbox does not show:
// programs would trust nobody then, where without the variable they trust whom the system does.
// What somebody asked for by name stays.
func (b *builder) trusting(list []profile.Variable) []profile.Variable {
	kept := make([]profile.Variable, 0, len(list))
	for _, v := range list {
		hidden := ""
		if v.Origin.Kind == profile.OriginBaseline && slices.Contains(profile.CertificateVariables, v.Name) {
			hidden = b.firstHidden(strings.Split(v.Value, ":"))
		}
		if hidden == "" {
			kept = append(kept, v)
			continue
		}
		b.notices = append(b.notices, Notice{Kind: NoticePathLeftOut, Path: hidden,
			Text: v.Name + " is left out: the sandbox does not show " + printable(hidden) + "; for one run: clai-sandbox run --grant " + printable(hidden) + ":ro …"})
	}
	return kept
}

// firstHidden is the first of absolute paths that are there, and that no bind shows.
func (b *builder) firstHidden(paths []string) string {
	for _, path := range paths {
		if !strings.HasPrefix(path, "/") {
			continue
		}
		if w, err := follow(b.tree, path); err == nil && !b.layers.shows(w.Real) {
			return path
		}
	}
	return ""
}
