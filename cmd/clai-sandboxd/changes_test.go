package main

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile/shut"
	"github.com/clairun/clai-sandbox/sandbox/cow"
	"github.com/clairun/clai-sandbox/sandbox/cow/changes"
)

// layered makes a directory one that agent main saw copy on write: what is in the second one was
// changed. The layer stands where a sandbox would make it.
func layered(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: layered DIRECTORY CHANGED")
	}
	dir, err := filepath.EvalSymlinks(ts.MkAbs(args[0]))
	ts.Check(err)
	state := filepath.Join(ts.Getenv("HOME"), ".local/state/clai-sandbox/layers/main", cow.Name(dir))
	settle(ts, dir)
	layer, err := cow.Open(state, cow.About{Path: dir}, 0o755)
	ts.Check(err)
	defer layer.Close()
	ts.Check(os.CopyFS(layer.Upper(), os.DirFS(ts.MkAbs(args[1]))))
	// A name that ends so stands for one that was deleted.
	ts.Check(filepath.WalkDir(layer.Upper()+"/", func(path string, _ os.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".deleted" {
			return err
		}
		ts.Check(os.Remove(path))
		return unix.Mknod(path[:len(path)-len(".deleted")], unix.S_IFCHR, 0)
	}))
}

// kept keeps the originals, as when a command has ended.
func kept(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: kept")
	}
	layers, err := changes.List(filepath.Join(ts.Getenv("HOME"), ".local/state/clai-sandbox"))
	ts.Check(err)
	for _, l := range layers {
		changes.Keep(l.Dir)
	}
	settle(ts, layers[0].Path)
}

// altered has a command change a file in the one layer that there is, to text of the same length,
// and put its times back.
func altered(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: altered PATH TEXT")
	}
	layers, err := changes.List(filepath.Join(ts.Getenv("HOME"), ".local/state/clai-sandbox"))
	ts.Check(err)
	path, done, err := shut.Reach(filepath.Join(shut.In(layers[0].Dir), "upper", args[0]))
	ts.Check(err)
	defer done()
	info, err := os.Stat(path)
	ts.Check(err)
	ts.Check(os.WriteFile(path, []byte(args[1]+"\n"), 0o600))
	ts.Check(os.Chtimes(path, info.ModTime(), info.ModTime()))
}

// digest puts the digest that diff has printed into DIGEST.
func digest(ts *testscript.TestScript, neg bool, args []string) {
	_, rest, is := strings.Cut(ts.ReadFile("stderr"), "--shown ")
	if neg || len(args) != 0 || !is {
		ts.Fatalf("diff printed no digest")
	}
	found, _, _ := strings.Cut(rest, " ")
	ts.Setenv("DIGEST", found)
}

// proposed has the agent propose paths of a layer, with a message that is written as in Go.
func proposed(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: proposed MESSAGE PATH...")
	}
	message, err := strconv.Unquote(`"` + args[0] + `"`)
	ts.Check(err)
	layers, err := changes.List(filepath.Join(ts.Getenv("HOME"), ".local/state/clai-sandbox"))
	ts.Check(err)
	_, _, err = layers[0].Propose(context.Background(), message, args[1:], 0)
	ts.Check(err)
}

// settle waits until what is made next is later than the directory by the kernel's clock.
func settle(ts *testscript.TestScript, dir string) {
	probe := filepath.Join(filepath.Dir(dir), "clock")
	for first := int64(0); ; {
		ts.Check(os.WriteFile(probe, nil, 0o600))
		var s unix.Stat_t
		ts.Check(unix.Lstat(probe, &s))
		if first == 0 {
			first = s.Ctim.Nano()
		}
		if s.Ctim.Nano() > first {
			return
		}
	}
}
