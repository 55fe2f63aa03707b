package profile

import (
	"slices"
	"testing"
)

// Each name that is protected because a program executes it says which program, what it does, and
// where that is written.
func TestWhatIsExecutedHasASource(t *testing.T) {
	seen := map[string]bool{}
	for _, path := range protectedByDefault(true) {
		if path.Home {
			continue
		}
		if seen[path.Name] {
			t.Errorf("%s twice", path.Name)
		}
		seen[path.Name] = true
		if err := CheckProtectedName(path.Name); err != nil {
			t.Errorf("%s: %v", path.Name, err)
		}
	}
	for _, e := range executedFiles {
		if e.Program == "" || e.Does == "" || e.Source == "" || len(e.Names) == 0 {
			t.Errorf("%+v", e)
		}
		for _, name := range e.Names {
			if !seen[name] || slices.Contains(projectFiles, name) {
				t.Errorf("%s: %v", name, seen[name])
			}
		}
	}
}
