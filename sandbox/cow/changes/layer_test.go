package changes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile/shut"
	"github.com/clairun/clai-sandbox/profile/shut/shuttest"
	"github.com/clairun/clai-sandbox/sandbox/cow"
)

// A bench is a directory of the host's and a layer over it, whose upper directory the test writes
// as an overlay would.
type bench struct {
	t           testing.TB
	state       string
	host, upper string
	dir         string // the layer's
}

func newBench(t testing.TB) *bench {
	t.Helper()
	dir, err := filepath.EvalSymlinks(shuttest.Directory(t))
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, state: dir + "/state", host: dir + "/host"}
	if err := os.Mkdir(b.host, 0o755); err != nil {
		t.Fatal(err)
	}
	return b
}

// begin opens the layer, as a sandbox does, when what the host has is older by the kernel's clock.
func (b *bench) begin() *bench {
	b.t.Helper()
	b.tick()
	dir := filepath.Join(b.state, "layers/main", cow.Name(b.host))
	lock, err := cow.Open(dir, cow.About{Path: b.host}, 0o755)
	if err != nil {
		b.t.Fatal(err)
	}
	lock.Close()
	b.dir = dir
	b.upper = shuttest.Reach(b.t, shut.In(dir)+"/upper")
	return b
}

// tick waits until the clock by which the kernel stamps files has gone on.
func (b *bench) tick() {
	b.t.Helper()
	name := filepath.Dir(b.host) + "/clock"
	for first := int64(0); ; time.Sleep(time.Millisecond) {
		b.write(name, "")
		now, err := lookAt(unix.AT_FDCWD, name)
		if err != nil {
			b.t.Fatal(err)
		}
		if first == 0 {
			first = now.Changed
		}
		if now.Changed > first {
			return
		}
	}
}

func (b *bench) layer() Layer {
	b.t.Helper()
	list, err := List(b.state)
	if err != nil || len(list) != 1 {
		b.t.Fatalf("%+v %v", list, err)
	}
	return list[0]
}

func (b *bench) write(name, content string) {
	b.t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// files writes the host's files, each with its name and "old" in it.
func (b *bench) files(names ...string) *bench {
	for _, name := range names {
		b.write(b.host+"/"+name, "old "+name+"\n")
	}
	return b
}

func (b *bench) sh(dir, script string) {
	b.t.Helper()
	command := exec.Command("sh", "-ec", script)
	command.Dir = dir
	if out, err := command.CombinedOutput(); err != nil {
		b.t.Fatalf("%v: %s", err, out)
	}
}

// whiteout marks a name of the layer as deleted.
func (b *bench) whiteout(name string) {
	b.t.Helper()
	if err := os.MkdirAll(filepath.Dir(b.upper+"/"+name), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := unix.Mknod(b.upper+"/"+name, unix.S_IFCHR, 0); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) opaque(name string) {
	b.t.Helper()
	if err := os.MkdirAll(b.upper+"/"+name, 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := unix.Setxattr(b.upper+"/"+name, "user.overlay.opaque", []byte("y"), 0); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) review() *Review {
	b.t.Helper()
	r, err := b.layer().Review(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

// words are the changes, one a line: kind, type, path, and what more there is to say.
func words(r *Review) string {
	var lines []string
	for _, c := range r.Changes {
		line := fmt.Sprintf("%s %s %s", c.Kind, c.Type, c.Path)
		if c.Conflict != "" {
			line += " !" + c.Conflict
		}
		if c.Never != "" {
			line += " never:" + c.Never
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func (b *bench) apply(s Selection) *Result {
	b.t.Helper()
	result, err := b.layer().Apply(b.quick(), s)
	if err != nil {
		b.t.Fatal(err)
	}
	return result
}

func (b *bench) quick() context.Context {
	return context.WithValue(b.t.Context(), hooksKey{}, hooks{noSync: true})
}

// content is all that is below a directory.
func content(t testing.TB, dir string) string {
	t.Helper()
	var lines []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		line := fmt.Sprintf("%s %s", strings.TrimPrefix(path, dir), info.Mode())
		switch {
		case info.Mode().IsRegular():
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %d %.40q", len(text), text)
		case info.Mode()&fs.ModeSymlink != 0:
			target, _ := os.Readlink(path)
			line += " -> " + target
		}
		lines = append(lines, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

func (b *bench) empty() {
	b.t.Helper()
	if got := content(b.t, b.upper); strings.Contains(got, "\n") {
		b.t.Errorf("the layer has still\n%s", got)
	}
	for _, name := range []string{b.dir + "/journal", b.dir + "/applied", filepath.Dir(b.upper) + "/trash"} {
		if _, err := os.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
			b.t.Errorf("the layer has still its %s: %v", name, err)
		}
	}
}
