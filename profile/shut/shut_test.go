package shut_test

import (
	"bufio"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile/shut"
	"github.com/clairun/clai-sandbox/profile/shut/shuttest"
)

// made is a directory with a file in what is shut.
func made(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	inside, err := shut.Make(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer inside.Close()
	if err := os.WriteFile(inside.Path()+"/file", []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// isShut holds that nobody gets to the file by a path. Root does.
func isShut(t *testing.T, dir string) {
	t.Helper()
	info, err := os.Lstat(dir + "/shut")
	if err != nil || info.Mode().Perm() != 0 {
		t.Fatalf("%v %v", info, err)
	}
	_, err = os.Lstat(shut.In(dir) + "/file")
	if held := errors.Is(err, fs.ErrPermission); held != (os.Getuid() != 0) {
		t.Errorf("uid %d: %v", os.Getuid(), err)
	}
}

func TestWhatIsShutIsReachedByDescriptorAlone(t *testing.T) {
	dir := shuttest.Directory(t) + "/a"
	if _, err := shut.Open(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := shut.Open(dir); !errors.Is(err, fs.ErrNotExist) || shut.Is(dir) {
		t.Error("who only opens it makes it:", err)
	}
	made(t, dir)
	isShut(t, dir)
	inside, err := shut.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer inside.Close()
	isShut(t, dir) // also while it is open
	if err := os.Rename(inside.Path()+"/file", inside.Path()+"/other"); err != nil {
		t.Error(err)
	}
	at, done, err := shut.Reach(shut.In(dir) + "/other")
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(at); err != nil || string(text) != "x" {
		t.Errorf("%q %v", text, err)
	}
	done()
	if at, done, err := shut.Reach("/usr/bin/shut/inside"); err != nil || at != "/usr/bin/shut/inside" {
		t.Error(at, err)
	} else {
		done()
	}
}

func TestManyOpenWhatIsShutAtOnce(t *testing.T) {
	dir := shuttest.Directory(t) + "/a"
	made(t, dir)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				inside, err := shut.Open(dir)
				if err != nil {
					t.Error(err)
					return
				}
				inside.Close()
			}
		})
	}
	all.Wait()
	isShut(t, dir)
}

// A process that is killed while it opens one leaves it open. Who comes next shuts it, but not one
// that is being opened.
func TestWhatAKilledProcessLeftOpenIsShut(t *testing.T) {
	state := shuttest.Directory(t) + "/st[a]te" // no pattern
	dirs := []string{state + "/layers/main/x", state + "/homes/main", state + "/sittings/s-1"}
	open := func(dir string) {
		t.Helper()
		if err := os.Chmod(dir+"/shut", 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range dirs {
		made(t, dir)
		open(dir)
	}
	old := state + "/layers/main/old/upper"
	if err := os.MkdirAll(old, 0o700); err != nil {
		t.Fatal(err)
	}
	if without := shut.Sweep(state); len(without) != 1 || without[0] != filepath.Dir(old) {
		t.Error(without)
	}
	for _, dir := range dirs {
		isShut(t, dir)
	}
	open(dirs[0])
	if inside, err := shut.Open(dirs[0]); err != nil {
		t.Error(err)
	} else {
		inside.Close()
	}
	isShut(t, dirs[0])
	open(dirs[0])
	busy, err := unix.Open(dirs[0], unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(busy)
	if err := unix.Flock(busy, unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	shut.Sweep(state)
	if info, err := os.Lstat(dirs[0] + "/shut"); err != nil || info.Mode().Perm() != 0o700 {
		t.Error("what somebody is opening was shut:", info, err)
	}
}

const opens = "SHUT_TEST_OPENS"

// TestMain is also the process that is killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv(opens); dir != "" {
		os.Stdout.WriteString("begins\n")
		for {
			inside, err := shut.Open(dir)
			if err != nil {
				os.Exit(1)
			}
			inside.Close()
		}
	}
	os.Exit(m.Run())
}

// Killed at any moment, a process leaves nothing open that the next start does not shut.
func TestAKillLeavesNothingOpen(t *testing.T) {
	state := shuttest.Directory(t)
	dir := state + "/layers/main/x"
	made(t, dir)
	for range 20 {
		command := exec.Command(os.Args[0])
		command.Env = append(os.Environ(), opens+"="+dir)
		out, err := command.StdoutPipe()
		if err == nil {
			err = command.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Fatal(line, err)
		}
		for until := time.Now().Add(rand.N(time.Millisecond)); time.Now().Before(until); {
		}
		_ = command.Process.Kill()
		if err := command.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Fatal(err)
		}
		shut.Sweep(state)
		isShut(t, dir)
	}
}

// What stands in the place of one of ours is not touched.
func TestNothingElseIsOpened(t *testing.T) {
	dir, target := shuttest.Directory(t), t.TempDir()
	if err := os.Chmod(target, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(target+"/in", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, dir+"/shut"); err != nil {
		t.Fatal(err)
	}
	if inside, err := shut.Make(dir); err == nil {
		inside.Close()
		t.Error("a link was followed")
	}
	if info, _ := os.Lstat(target); info.Mode().Perm() != 0o755 {
		t.Error(info.Mode())
	}
}

// A gate of somebody else's is neither opened nor changed.
func TestTheGateOfSomebodyElseIsNotOpened(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root gives a file away")
	}
	dir := shuttest.Directory(t) + "/a"
	made(t, dir)
	if err := errors.Join(os.Chown(dir+"/shut", 12345, -1), os.Chmod(dir+"/shut", 0o500)); err != nil {
		t.Fatal(err)
	}
	for name, open := range map[string]func(string) (*shut.Inside, error){"open": shut.Open, "make": shut.Make} {
		if inside, err := open(dir); !errors.Is(err, unix.EPERM) {
			inside.Close()
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := shut.Remove(dir, func(string) { t.Error("it is emptied") }); !errors.Is(err, unix.EPERM) {
		t.Error(err)
	}
	if info, err := os.Lstat(dir + "/shut"); err != nil || info.Mode().Perm() != 0o500 {
		t.Error(info, err)
	}
}

// A directory is moved in with its mode, and in the place of nothing. What is none stays where it
// is, and no link is followed.
func TestADirectoryIsMovedInAndNothingElse(t *testing.T) {
	base := shuttest.Directory(t)
	made(t, base+"/a")
	inside, err := shut.Open(base + "/a")
	if err != nil {
		t.Fatal(err)
	}
	defer inside.Close()
	from := base + "/from"
	if err := errors.Join(os.MkdirAll(from+"/dir", 0o700), os.Mkdir(from+"/target", 0o750), os.Chmod(from+"/dir", 0o510), os.WriteFile(from+"/plain", nil, 0o640),
		os.Symlink("target", from+"/link"), os.Mkdir(from+"/file", 0o700), unix.Mkfifo(from+"/fifo", 0o640)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]error{"dir": nil, "plain": unix.ENOTDIR, "link": unix.ENOTDIR, "fifo": unix.ENOTDIR, "file": unix.EEXIST, "none": unix.ENOENT} {
		if err := inside.MoveIn(from, name); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
	if info, err := os.Lstat(inside.Path() + "/dir"); err != nil || info.Mode() != os.ModeDir|0o510 {
		t.Error(info, err)
	}
	if text, err := os.ReadFile(inside.Path() + "/file"); err != nil || string(text) != "x" {
		t.Errorf("what was there is replaced: %q %v", text, err)
	}
	for name, mode := range map[string]os.FileMode{"plain": 0o640, "target": 0o750, "fifo": 0o640} {
		if info, err := os.Lstat(from + "/" + name); err != nil || info.Mode().Perm() != mode {
			t.Error(name, info, err)
		}
	}
}

func TestWhatIsShutIsRemoved(t *testing.T) {
	dir := shuttest.Directory(t) + "/a"
	made(t, dir)
	if err := shut.Remove(dir, func(string) {}); err == nil {
		t.Error("it was removed, and something is in it")
	}
	isShut(t, dir)
	if err := shut.Remove(dir, func(path string) { os.Remove(path) }); err != nil {
		t.Error(err)
	}
	if shut.Is(dir) {
		t.Error("it is there")
	}
	if err := shut.Remove(dir, nil); err != nil {
		t.Error(err)
	}
}

func BenchmarkOpen(b *testing.B) {
	dir := shuttest.Directory(b)
	for b.Loop() {
		inside, err := shut.Make(dir)
		if err != nil {
			b.Fatal(err)
		}
		inside.Close()
	}
}
