package main

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/clairun/clai-sandbox/profile/shut"
	"github.com/clairun/clai-sandbox/sandbox/mounts/nomount"
)

// The same attempts where the workspace is seen copy on write. Nothing in it is protected by its
// name there: what is executed later, or made for others, must come to nothing because nothing at
// all reaches the host.

var copying = driver{"clai-sandbox", func(p *place, a attempt, script string) []string {
	argv := ours.argv(p, a, script)
	return slices.Insert(argv, 2, "--workspace-access", "cow")
}}

// ofTheWorkspace are the classes that a workspace of another access may change. make escape makes
// all of them.
var ofTheWorkspace = []string{"files outside", "secrets", "our own files", "executed later", "made for others"}

// byNoChange are those of which nothing at all may reach the host's workspace.
var byNoChange = []string{"executed later", "made for others"}

// byCopied is what stops an attempt there.
func (a attempt) byCopied() string {
	if slices.Contains(byNoChange, a.class) && !a.refused {
		return "the layer"
	}
	return a.by
}

func TestEscapesWithAWorkspaceThatIsCopied(t *testing.T) {
	if os.Getenv(nomount.Variable) != "" {
		t.Skip("nothing is seen copy on write here")
	}
	for i, a := range attempts {
		if !a.applies() || !slices.Contains(ofTheWorkspace, a.class) && os.Getenv("CLAI_SANDBOX_TEST_ESCAPES") != "all" {
			continue
		}
		t.Run(fmt.Sprintf("%02d %s", i+1, a.title), func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			if prepare := a.prepare; prepare != nil {
				prepare(p)
				a.prepare = nil
			}
			p.copied = true
			before := p.tree()
			through, err := a.make(p, copying)
			if err != nil {
				t.Fatal(err)
			}
			if through {
				t.Errorf("it got through; exit status %d:\n%s", p.status, p.out)
			}
			if after := p.tree(); slices.Contains(byNoChange, a.class) && after != before {
				t.Errorf("the host has\n%s\nand had\n%s", after, before)
			}
			if slices.Contains(byNoChange, a.class) && !p.changed() && !a.refused && a.command != "true" {
				t.Errorf("nothing was changed in the layer either, so this shows nothing; exit status %d:\n%s", p.status, p.out)
			}
			user := map[bool]string{true: "root", false: "user"}[os.Getuid() == 0]
			t.Logf("held for %s: %s: %s: by %s (the workspace is copied)", user, a.class, a.title, a.byCopied())
		})
	}
}

// tree is all that the host has in the project: names, types, permissions, targets of links,
// content.
func (p *place) tree() string {
	var out strings.Builder
	err := filepath.WalkDir(p.work, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		content := []byte(nil)
		switch {
		case info.Mode().IsRegular():
			content, err = os.ReadFile(path)
		case info.Mode()&fs.ModeSymlink != 0:
			var target string
			target, err = os.Readlink(path)
			content = []byte(target)
		}
		fmt.Fprintf(&out, "%s %v %x\n", path, info.Mode(), sha256.Sum256(content))
		return err
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return out.String()
}

// changed reports whether something is in the layer of the workspace.
func (p *place) changed() bool {
	return p.layered("work-*", "*") || p.layered("work-*", ".[!.]*") || p.layered(".git-*", "*")
}

// layered reports whether commands have changed something of such a name, in layers of such a name.
func (p *place) layered(layers, changed string) bool {
	dirs, _ := filepath.Glob(p.home + "/.local/state/clai-sandbox/layers/main/" + layers)
	return slices.ContainsFunc(dirs, func(dir string) bool {
		inside, err := shut.Open(dir)
		if err != nil {
			return false
		}
		defer inside.Close()
		found, _ := filepath.Glob(inside.Path() + "/upper/" + changed)
		return len(found) > 0
	})
}

// ready reports whether the command has made the file that says so, wherever that is.
func (p *place) ready() bool {
	if !p.copied {
		return exists(p.work + "/ready")
	}
	return p.layered("work-*", "ready")
}
