package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Nothing stands in for a program that is a shell by one of its names only: it is all the others as
// well.
func TestAShellThatIsMoreThanAShellHasNoStandIn(t *testing.T) {
	dir := t.TempDir()
	program := func(name string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, nil, 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	dash, bash, busybox := program("dash"), program("bash"), program("busybox")
	link := func(name, to string) string {
		path := filepath.Join(dir, name)
		if err := os.Symlink(to, path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	sh, ash, gone := link("sh", dash), link("ash", busybox), link("zsh", filepath.Join(dir, "nowhere"))
	found, err := shellsAt([]string{sh, gone, dash, bash})
	if err != nil || len(found) != 2 || found[0] != bash || found[1] != dash {
		t.Errorf("%v, %v", found, err)
	}
	var refused *usage
	if found, err := shellsAt([]string{sh, ash, bash}); !errors.As(err, &refused) || !strings.Contains(refused.why, "more than a shell") {
		t.Errorf("%v, %v", found, err)
	}
	if found, err := shellsAt([]string{gone}); !errors.As(err, &refused) {
		t.Errorf("without any shell: %v, %v", found, err)
	}
}
