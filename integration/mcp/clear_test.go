package mcp

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile/shut/shuttest"
)

// deepTree makes a directory in a directory, so often.
func deepTree(t *testing.T, dir string, depth int) {
	t.Helper()
	at, err := openDirectory(unix.AT_FDCWD, dir)
	for range depth {
		if err == nil {
			err = unix.Mkdirat(at, "deeper", 0o700)
		}
		var next int
		if err == nil {
			next, err = openDirectory(at, "deeper")
		}
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(at)
		at = next
	}
	unix.Close(at)
}

func TestATreeIsClearedWhateverItIsLike(t *testing.T) {
	for name, fill := range map[string]func(dir string){
		"nothing":   func(dir string) {},
		"very deep": func(dir string) { deepTree(t, dir, 2000) },
		"wide": func(dir string) {
			for i := range 1000 {
				os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0)
			}
			os.MkdirAll(dir+"/a/b", 0o755)
			for i := range 1000 {
				os.Mkdir(filepath.Join(dir, "a/b", fmt.Sprint(i)), 0o755)
			}
		},
		"closed": func(dir string) {
			os.MkdirAll(dir+"/a/b/c", 0o755)
			os.WriteFile(dir+"/a/b/c/file", nil, 0)
			os.WriteFile(dir+"/a/b/file", nil, 0)
			for _, d := range []string{"/a/b/c", "/a/b", "/a", ""} {
				os.Chmod(dir+d, 0)
			}
			os.Chmod(dir, 0o700)
		},
		"links and pipes": func(dir string) {
			os.Symlink("/etc", dir+"/link")
			unix.Mkfifo(dir+"/pipe", 0o600)
			os.Mkdir(dir+"/d", 0o700)
			os.Symlink(filepath.Dir(dir)+"/outside", dir+"/d/link")
			os.Mkdir(dir+"/.cleared-1", 0o700)
			os.MkdirAll(dir+"/d/e/f", 0o700)
		},
	} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			outside := filepath.Join(base, "outside")
			os.Mkdir(outside, 0o755)
			os.WriteFile(outside+"/file", nil, 0o644)
			dir := filepath.Join(base, "tree")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			fill(dir)
			if err := clearTree(dir, time.Now().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%v", err)
			}
			if _, err := os.Stat(outside + "/file"); err != nil {
				t.Errorf("what a link led to: %v", err)
			}
		})
	}
}

func TestWhatAKilledServerLeftIsSweptAndDelaysNobody(t *testing.T) {
	state := shuttest.Directory(t)
	left := filepath.Join(state, sittingsName, "s-left")
	os.MkdirAll(left+"/some/thing", 0o700)
	deepTree(t, left, 2000)
	os.WriteFile(left+".lock", nil, 0o600)
	began := time.Now()
	one, err := newTmp(state)
	if err != nil {
		t.Fatal(err)
	}
	other, err := newTmp(state)
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("it took %v", took)
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		_, err := os.Stat(left)
		_, lockErr := os.Stat(left + ".lock")
		if errors.Is(err, os.ErrNotExist) && errors.Is(lockErr, os.ErrNotExist) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%v, %v", err, lockErr)
		}
	}
	sweep(filepath.Join(state, sittingsName))
	for _, tmp := range []privateTmp{one, other} {
		if _, err := os.Stat(tmp.path()); err != nil || one.dir == other.dir {
			t.Errorf("one that is in use was swept: %v", err)
		}
		tmp.clear()
		if _, err := os.Stat(tmp.dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%v", err)
		}
	}
}
