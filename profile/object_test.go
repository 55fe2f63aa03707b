package profile

import (
	"encoding/json"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func objectAt(t *testing.T, path string) Object {
	t.Helper()
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	o, err := ObjectOf(fd)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestAnObjectIsTheOneThatStatNames(t *testing.T) {
	for _, path := range []string{"/", "/usr", "/proc/self", "/dev/null", t.TempDir()} {
		var stat unix.Stat_t
		if err := unix.Lstat(path, &stat); err != nil {
			t.Fatal(err)
		}
		o := objectAt(t, path)
		if o.Device != uint64(stat.Dev) || o.Inode != stat.Ino || !o.Is(stat.Mode&unix.S_IFMT) || !o.Same(objectAt(t, path)) {
			t.Errorf("%s: %+v, and stat says %d %d %o", path, o, stat.Dev, stat.Ino, stat.Mode)
		}
	}
}

// ext4 gives the number of a deleted inode to the next one.
func TestWhatWasMadeAgainIsAnotherObject(t *testing.T) {
	base, err := os.MkdirTemp("/var/tmp", "clai-sandbox-object-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(base)
	for _, kind := range []struct {
		name string
		make func(string) error
	}{
		{"directory", func(path string) error { return os.Mkdir(path, 0o700) }},
		{"file", func(path string) error { return os.WriteFile(path, nil, 0o600) }},
		{"fifo", func(path string) error { return unix.Mkfifo(path, 0o600) }},
	} {
		path := base + "/" + kind.name
		reused := false
		for range 50 {
			if err := kind.make(path); err != nil {
				t.Fatal(err)
			}
			before := objectAt(t, path)
			if before.Born == "" && before.Handle == "" {
				t.Skip("this file system tells no more than the number")
			}
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if err := kind.make(path); err != nil {
				t.Fatal(err)
			}
			after := objectAt(t, path)
			reused = reused || before.Inode == after.Inode
			if before.Same(after) {
				t.Fatalf("%s: %+v and %+v are taken for one", kind.name, before, after)
			}
			os.Remove(path)
		}
		t.Logf("%s: the number was given out again: %v", kind.name, reused)
	}
}

func TestAnObjectThatWasStoredWithoutMoreIsKnownByItsNumber(t *testing.T) {
	now := Object{Device: 1, Inode: 2, Born: "3", Handle: "04"}
	for text, same := range map[string]bool{
		`{"device":"1","inode":"2"}`: true, `{"device":"1","inode":"2","born":"3"}`: true, `{"device":"1","inode":"2","handle":"04"}`: true,
		`{"device":"1","inode":"2","born":"4"}`: false, `{"device":"1","inode":"2","handle":"05"}`: false, `{"device":"1","inode":"2","born":"3","handle":"05"}`: false,
		`{"device":"2","inode":"2"}`: false, `{"device":"1","inode":"3","born":"3","handle":"04"}`: false, `{}`: false,
	} {
		var stored Object
		if err := json.Unmarshal([]byte(text), &stored); err != nil {
			t.Fatal(err)
		}
		if stored.Same(now) != same || now.Same(stored) != same {
			t.Errorf("%s: want %v", text, same)
		}
	}
	if !(Object{}).Same(Object{}) {
		t.Error("nothing is not nothing")
	}
}
