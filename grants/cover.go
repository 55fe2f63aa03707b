package grants

import "github.com/clairun/clai-sandbox/profile"

// A View is what a session sees without any approval: what its sandbox shows, and what it hides
// below that. Paths are resolved. The deepest statement about a path decides. The zero value sees
// nothing.
type View struct {
	statements map[string]profile.Access
	above      map[string]bool // the directories that lead to what is shown, and the links on the way
}

// NewView makes a view of what is shown, the later one deciding at equal paths, of what is hidden,
// and of the symbolic links that the sandbox has of its own. A path that is both shown and hidden
// is shown: it was named on purpose. One that cannot be resolved is not shown, and is hidden as it
// is written.
func NewView(shown []profile.Grant, hidden, links []string) View {
	v := View{make(map[string]profile.Access, len(shown)+len(hidden)), map[string]bool{}}
	for _, link := range links {
		v.leadsTo(link)
	}
	for _, path := range hidden {
		v.statements[path] = profile.NoAccess
		if place, err := Resolve(path); err == nil {
			v.statements[place.Resolved] = profile.NoAccess
		}
	}
	for _, g := range shown {
		if place, err := Resolve(g.Path); err == nil {
			v.statements[place.Resolved] = g.Access
			v.leadsTo(g.Path)
			v.leadsTo(place.Resolved)
		}
	}
	return v
}

func (v View) leadsTo(path string) {
	for ; path != "/" && !v.above[path]; path = parent(path) {
		v.above[path] = true
	}
}

// Sees reports whether a session sees by itself what stands at a path, with what was granted
// besides. The path's parents are directories and no links. More than it sees is never reported;
// less may be.
func (v View) Sees(path string, granted []Grant) bool {
	if v.above[path] || v.Access(path, Approvals(granted)) > profile.NoAccess {
		return true
	}
	for _, g := range granted {
		if profile.Within(g.Path, path) || profile.Within(g.Resolved, path) {
			return true
		}
	}
	return false
}

// Approvals is the most that was granted, by path.
func Approvals(list []Grant) func(string) profile.Access {
	return func(path string) profile.Access {
		access := profile.NoAccess
		for _, g := range list {
			if g.Resolved == path {
				access = max(access, g.Access)
			}
		}
		return access
	}
}

// Access is what may be done at a resolved path, with what was approved besides: approved returns,
// for one path, the most that was approved at exactly that path. An approval only ever adds. What
// is hidden below a broad approval stays hidden, unless an approval names it or something in it.
func (v View) Access(resolved string, approved func(path string) profile.Access) profile.Access {
	access := profile.NoAccess
	at := func(path string) {
		if stated, found := v.statements[path]; found {
			access = stated
		}
		access = max(access, approved(path))
	}
	at("/")
	for i := 1; i < len(resolved); i++ {
		if resolved[i] == '/' {
			at(resolved[:i])
		}
	}
	if resolved != "/" {
		at(resolved)
	}
	return access
}

// Covers reports whether a question needs no answer. Reading only never covers writing.
func (v View) Covers(q Question, approved func(path string) profile.Access) bool {
	return q.Access != profile.NoAccess && v.Access(q.Known, approved) >= q.Access
}
