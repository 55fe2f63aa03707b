package sandbox

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

// All other names of what is protected are looked for, however many files that are and however deep
// they lie; past a bound, nothing is run.
func TestOtherNamesOfManyProtectedFilesAreReadOnlyUpToABound(t *testing.T) {
	needMounts(t)
	h := newHost(t)
	work := h.profile.Workspace
	deep := work + "/.vscode/zz" + strings.Repeat("/d", 20) + "/last"
	h.write(deep, "")
	if err := os.Link(deep, work+"/other"); err != nil {
		t.Fatal(err)
	}
	fill := func(i int) {
		if err := os.WriteFile(fmt.Sprintf("%s/.vscode/%d", work, i), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const many = 8192
	for i := range many {
		fill(i)
	}
	h.refused("echo x > other 2>/dev/null")
	// Working trees in an agent's directory may have more files than one's own.
	if most := maxTwinsAsked; most < 1<<18 {
		t.Errorf("only %d files are looked at", most)
	}
	defer func(most int) { maxTwinsAsked = most }(maxTwinsAsked)
	maxTwinsAsked = many
	var setup *SetupError
	if _, err := Build(h.profile, Host{}); !errors.As(err, &setup) || !strings.Contains(setup.Why, "other names") || setup.Hint == "" {
		t.Errorf("%v", err)
	}
	h.profile.Unprotected = append(h.profile.Unprotected, ".vscode")
	if _, err := Build(h.profile, Host{}); err != nil {
		t.Error(err)
	}
}
