package protect

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// mapped is a file that is mapped, with each page there: what is written to it now changes no time
// where all is in memory.
func mapped(t *testing.T, path string) []byte {
	t.Helper()
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	text, err := unix.Mmap(int(file.Fd()), 0, int(info.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(text) })
	_ = slices.Clone(text)
	return text
}

// What a command writes through a mapping is looked at where the kernel notes no time for it, and
// what is read-only there is not looked at again.
func TestWhatIsWrittenThroughAMappingIsLookedAt(t *testing.T) {
	for _, place := range []string{"/dev/shm", "/var/tmp"} {
		dir, err := os.MkdirTemp(place, "clai-sandbox-test-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		objects := dir + "/.git/objects"
		for _, name := range []string{"info", "ab", "pack"} {
			if err := os.MkdirAll(objects+"/"+name, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for name, mode := range map[string]os.FileMode{"info/alternates": 0o644, "ab/writable": 0o644, "ab/readonly": 0o444, "pack/a.idx": 0o644, "../index": 0o644, "../packed-refs": 0o644} {
			if err := os.WriteFile(objects+"/"+name, []byte("# text\n"), mode); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * clockSlack) // what was made before is of an earlier time
		var looked, settled []string
		w, err := NewWatch()
		if err == nil {
			_, _, err = w.Prepare(Options{Roots: []string{dir}, Names: someNames,
				CheckIndex: func(_ int, name string, settle bool) error {
					if settle {
						settled = append(settled, name)
					}
					return nil
				},
				NewObjectCheck: func(time.Time) func([]int, string, string) error {
					return func(_ []int, in, name string) error {
						looked = append(looked, in+"/"+name)
						return unix.EINVAL
					}
				}})
		}
		if err != nil {
			t.Fatal(err)
		}
		w.Begin(nil, nil)
		t.Cleanup(w.Close)
		w.indexLater(w.at(dir+"/.git"), "index")
		for _, name := range []string{"info/alternates", "ab/writable", "pack/a.idx", "../index"} {
			text := mapped(t, objects+"/"+name)
			copy(text, "\"evil\"\n")
		}
		copy(mapped(t, objects+"/../packed-refs"), "ab\tcd\n\n")
		w.Objects()
		slices.Sort(looked)
		if !slices.Equal(looked, []string{"ab/writable", "pack/a.idx"}) || !slices.Contains(settled, "index") {
			t.Errorf("in %s, %q were looked at, and settled %q", place, looked, settled)
		}
		for _, name := range []string{"info/alternates", "ab/writable", "pack/a.idx"} {
			if _, err := os.Lstat(objects + "/" + name); err == nil {
				t.Errorf("in %s, %s is left", place, name)
			}
		}
		if text, err := os.ReadFile(dir + "/.git/packed-refs"); err == nil && len(text) > 1 {
			t.Errorf("in %s, a line is left: %q", place, text)
		}
		if text, err := os.ReadFile(filepath.Join(objects, "ab/readonly")); err != nil || string(text) != "# text\n" {
			t.Errorf("%q, %v", text, err)
		}
	}
}

// Other places for objects that a person named are theirs, whenever the file was written: what is
// in it tells.
func TestPlacesForObjectsAreTheCommandsIfTheTextIs(t *testing.T) {
	dir := t.TempDir()
	other := t.TempDir()
	info := dir + "/.git/objects/info"
	for _, name := range []string{info, other + "/objects"} {
		if err := os.MkdirAll(name, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	file := info + "/alternates"
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const mine = "/none/objects\n"
	write(mine)
	w, err := NewWatch()
	if err == nil {
		_, _, err = w.Prepare(Options{Roots: []string{dir}, Names: someNames, CouldWrite: func(string) bool { return false },
			NewObjectCheck: func(time.Time) func([]int, string, string) error {
				return func([]int, string, string) error { return nil }
			}})
	}
	if err != nil {
		t.Fatal(err)
	}
	w.Begin(nil, nil)
	t.Cleanup(w.Close)
	for _, step := range []struct {
		text  string
		stays bool
	}{
		{mine, true}, // written again
		{other + "/objects\n", true},
		{other + "/objects\n", true},
		{"/other/objects\n", false},
		{mine, false}, // the command's by now
	} {
		write(step.text)
		w.Objects()
		if _, err := os.Lstat(file); (err == nil) != step.stays {
			t.Errorf("%q: %v", step.text, err)
		}
	}
}
