package protect

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// put puts what is called name in a directory into a quarantine.
func put(t *testing.T, q *Quarantine, dir, name, path string) string {
	t.Helper()
	fd, err := openRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	id, err := q.Put(fd, name, path, "rule")
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// otherFileSystem is a directory on another one, if there is one.
func otherFileSystem(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "clai-sandbox-test-")
	if err != nil {
		t.Skipf("no other file system to write to: %v", err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// A command can fill the disk. What cannot be written down stays where it is, and what was moved is
// found again.
func TestOnAFullDiskNothingThatIsSetAsideIsLost(t *testing.T) {
	state := os.Getenv("PROTECT_TEST_DISK")
	if state == "" {
		command := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
		command.Env = append(os.Environ(), "PROTECT_TEST_DISK="+t.TempDir())
		command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}}
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return
	}
	if err := unix.Mount("tmpfs", state, "tmpfs", 0, "size=64k,mode=700"); err != nil {
		t.Fatal(err)
	}
	q, dir := QuarantineIn(state), state+"/work"
	if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(dir+"/aside", []byte("content"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/full", make([]byte, 1<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	fd, err := openRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	id, err := q.Put(fd, "aside", dir+"/.envrc", "rule")
	if text, _ := os.ReadFile(dir + "/aside"); id != "" || err == nil || string(text) != "content" {
		t.Errorf("%q %v, and %q is where it was", id, err, text)
	}
	if list, err := q.List(); len(list) != 0 || err != nil {
		t.Errorf("%+v %v", list, err)
	}
	os.Remove(dir + "/full")
	put(t, q, dir, "aside", dir+"/.envrc")
	if list, err := q.List(); len(list) != 1 || err != nil {
		t.Errorf("%+v %v", list, err)
	}
}

func TestWhatWasSetAsideComesBackAsItWas(t *testing.T) {
	for _, state := range []string{t.TempDir(), otherFileSystem(t)} {
		q := QuarantineIn(state)
		dir := treeOf(t, "aside/a/b/file", "aside/empty/")
		os.WriteFile(dir+"/aside/a/b/file", []byte("content"), 0o640)
		os.Chmod(dir+"/aside/a/b/file", 0o640)
		os.Symlink("/etc/passwd", dir+"/aside/link")
		id := put(t, q, dir, "aside", dir+"/sub/.vscode")
		if _, err := os.Lstat(dir + "/aside"); err == nil {
			t.Error("it is still there")
		}
		if head, err := q.Head(id, 1000); err != nil || !strings.Contains(head, `"link"`) {
			t.Errorf("%q %v", head, err)
		}
		if _, err := q.Restore(id); err != nil {
			t.Fatal(err)
		}
		text, _ := os.ReadFile(dir + "/sub/.vscode/a/b/file")
		info, _ := os.Lstat(dir + "/sub/.vscode/a/b/file")
		to, _ := os.Readlink(dir + "/sub/.vscode/link")
		if string(text) != "content" || info.Mode() != 0o640 || to != "/etc/passwd" {
			t.Errorf("%q %v %q", text, info.Mode(), to)
		}
		if list, err := q.List(); err != nil || len(list) > 0 {
			t.Errorf("%v %v", list, err)
		}
	}
}

func TestNothingIsRestoredOverSomethingOrThroughALink(t *testing.T) {
	for _, state := range []string{t.TempDir(), otherFileSystem(t)} {
		q := QuarantineIn(state)
		dir := treeOf(t, "aside", "there", "real/")
		os.Symlink("real", dir+"/link")
		os.Symlink("nowhere", dir+"/dangling")
		id := put(t, q, dir, "aside", dir+"/there")
		for _, path := range []string{dir + "/there", dir + "/link/x", dir + "/dangling", dir + "/dangling/x", "relative", "/"} {
			in, err := q.openEntry(id)
			if err != nil {
				t.Fatal(err)
			}
			writeEntry(in, Entry{ID: id, Path: path})
			unix.Close(in)
			if _, err := q.Restore(id); err == nil {
				t.Errorf("restored to %s", path)
			}
		}
		if left, _ := filepath.Glob(dir + "/.clai*"); len(left) > 0 || len(mustList(t, q)) != 1 {
			t.Errorf("%q %v", left, mustList(t, q))
		}
		for _, id := range []string{"", ".", "..", "../x", "/etc", "x/y"} {
			if _, err := q.Load(id); err == nil {
				t.Errorf("loaded %q", id)
			}
			if err := q.Discard(id); err == nil {
				t.Errorf("discarded %q", id)
			}
		}
	}
}

func mustList(t *testing.T, q *Quarantine) []Entry {
	t.Helper()
	list, err := q.List()
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestAnythingCanBeDiscarded(t *testing.T) {
	q := QuarantineIn(t.TempDir())
	dir := treeOf(t, "aside/")
	at, err := unix.Open(dir+"/aside", unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range 3000 { // deeper than descriptors, and than a path may be
		if err := unix.Mkdirat(at, "d", 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(at, "d", unix.O_DIRECTORY, 0)
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(at)
		at = next
	}
	unix.Mkdirat(at, "closed", 0)
	unix.Close(at)
	id := put(t, q, dir, "aside", dir+"/x")
	if err := q.Discard(id); err != nil || len(mustList(t, q)) > 0 {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(q.Dir, id)); err == nil {
		t.Error("it is still there")
	}
}

func TestWhatIsTooLargeStaysUnderItsNeutralName(t *testing.T) {
	q := QuarantineIn(otherFileSystem(t))
	dir := treeOf(t, ".clai-sandbox-aside-1/")
	file, _ := os.Create(dir + "/.clai-sandbox-aside-1/large")
	file.Truncate(maxCopyBytes + 1)
	file.Close()
	fd, err := openRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	id, err := q.Put(fd, ".clai-sandbox-aside-1", dir+"/.vscode", "")
	e, loadErr := q.Load(id)
	if err == nil || loadErr != nil || e.At != dir+"/.clai-sandbox-aside-1" {
		t.Errorf("%v %v %+v", err, loadErr, e)
	}
	if _, err := q.Restore(id); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(dir + "/.vscode/large"); err != nil {
		t.Error(err)
	}
}

// A directory may have been made such that its owner cannot write it.
func TestWhatLiesInADirectoryThatMayNotBeWrittenIsMovedToo(t *testing.T) {
	q := QuarantineIn(t.TempDir())
	dir := treeOf(t, "aside")
	os.Chmod(dir, 0o500)
	t.Cleanup(func() { os.Chmod(dir, 0o700) })
	put(t, q, dir, "aside", dir+"/x")
	if info, _ := os.Stat(dir); info.Mode().Perm() != 0o500 {
		t.Errorf("mode %v", info.Mode())
	}
}

// A command keeps another name of what it had set aside, and writes there when the person has
// looked at it and put it back.
func TestWhatComesBackHasNoOtherName(t *testing.T) {
	q := QuarantineIn(t.TempDir())
	dir := treeOf(t, "file", "aside/a/file")
	os.WriteFile(dir+"/file", []byte("good"), 0o750)
	os.Chmod(dir+"/aside/a", 0o300)
	for name, other := range map[string]string{"file": "x", "aside/a/file": "y"} {
		if err := os.Link(dir+"/"+name, dir+"/"+other); err != nil {
			t.Fatal(err)
		}
	}
	os.WriteFile(dir+"/open", []byte("good"), 0o600)
	var open []*os.File // by another sandbox
	for _, name := range []string{"file", "open"} {
		file, err := os.OpenFile(dir+"/"+name, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		open = append(open, file)
	}
	for name, back := range map[string]string{"file": ".envrc", "aside": ".vscode", "open": ".mcp.json"} {
		id := put(t, q, dir, name, dir+"/"+back)
		for _, file := range open {
			file.WriteAt([]byte("evil"), 0)
		}
		if text, err := q.Head(id, 4); name != "aside" && (text != "good" || err != nil) {
			t.Errorf("%s in the quarantine: %q %v", back, text, err)
		}
		if _, err := q.Restore(id); err != nil {
			t.Fatal(err)
		}
		os.WriteFile(dir+"/file", []byte("good"), 0o600)
		os.WriteFile(dir+"/open", []byte("good"), 0o600)
	}
	for _, other := range []string{"x", "y"} {
		os.WriteFile(dir+"/"+other, []byte("evil"), 0o600)
	}
	if info, err := os.Stat(dir + "/.vscode/a"); err != nil || info.Mode().Perm() != 0o300 {
		t.Errorf("%v %v", info, err)
	}
	os.Chmod(dir+"/.vscode/a", 0o700)
	for _, file := range []string{".envrc", ".vscode/a/file", ".mcp.json"} {
		if text, err := os.ReadFile(dir + "/" + file); string(text) == "evil" || err != nil {
			t.Errorf("%s was written by another name, or is gone: %v", file, err)
		}
	}
}

// A launcher was killed, and the next run does not take what is the person's for the command's
// because of a name that is not UTF-8.
func TestNamesThatAreNotUTF8AreRememberedAsTheyAre(t *testing.T) {
	dir, state := treeOf(t, "caf\xe9/.envrc", "caf\xe9/new/.envrc"), t.TempDir()
	root := dir + "/caf\xe9"
	record, err := NewRecord(state, Run{Roots: []string{root}, Known: map[string]bool{root + "/.envrc": true}, Names: []Name{{Path: ".envrc", In: root}, {Path: ".envrc", In: root + "/new"}}})
	if err != nil {
		t.Fatal(err)
	}
	if !Runs(state, root+"/x") {
		t.Error("it does not run")
	}
	os.Rename(root+"/new/.envrc", root+"/"+asidePrefix+"0123456789ab")
	record.aside(root+"/"+asidePrefix+"0123456789ab", root+"/new/\xff")
	record.file.Close()
	reports := Sweep(state, nil, nil, nil, nil, nil)
	if len(reports) != 1 || len(reports[0].Told) != 1 || reports[0].Told[0].Path != root+"/new/\xff" {
		t.Fatalf("%+v", reports)
	}
	if _, err := os.Stat(root + "/.envrc"); err != nil {
		t.Error("what was there is gone")
	}
	if e, err := QuarantineIn(state).Restore(reports[0].Told[0].ID); err != nil || e.Path != root+"/new/\xff" {
		t.Errorf("%+v %v", e, err)
	}
	if _, err := os.Stat(root + "/new/\xff"); err != nil {
		t.Error(err)
	}
}

func TestSettingsThatWaitAreBoundedForEachAgent(t *testing.T) {
	state := t.TempDir()
	kept := func(agent string, n int) (list []string) {
		q := QuarantineIn(state)
		q.Agent = agent
		for i := range n {
			if id, err := q.PutSetting("/r/.git/config", Setting{Key: "alias.a" + strconv.Itoa(i), Value: "!x"}); err == nil {
				list = append(list, id)
			}
		}
		return list
	}
	first := kept("one", maxOfSetting+5)
	if again := kept("one", maxOfSetting+5); len(first) != maxOfSetting || !slices.Equal(first, again) {
		t.Errorf("%d are kept, and then %d", len(first), len(again))
	}
	if other := kept("two", 3); len(other) != 3 {
		t.Errorf("of another agent, %d are kept", len(other))
	}
	for _, s := range []Setting{{Key: "alias.a", Value: strings.Repeat("x", maxSetting)}, {Key: "alias.a", Value: "\xff"}} {
		if _, err := QuarantineIn(state).PutSetting("/r/.git/config", s); err == nil {
			t.Errorf("%.20q is kept", s.Value)
		}
	}
}
