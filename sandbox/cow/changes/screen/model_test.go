package screen

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile/shut"
	"github.com/clairun/clai-sandbox/profile/shut/shuttest"
	"github.com/clairun/clai-sandbox/sandbox/cow"
	"github.com/clairun/clai-sandbox/sandbox/cow/changes"
)

// shown is a screen over a layer with a few changes.
func shown(t *testing.T) (m *model, host, upper string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(shuttest.Directory(t))
	if err != nil {
		t.Fatal(err)
	}
	host = dir + "/host"
	os.Mkdir(host, 0o755)
	os.WriteFile(host+"/b", []byte("old\n"), 0o644)
	time.Sleep(20 * time.Millisecond) // the kernel's clock goes in steps of up to 10 ms
	layer := dir + "/layers/main/" + cow.Name(host)
	lock, err := cow.Open(layer, cow.About{Path: host}, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	lock.Close()
	upper = shuttest.Reach(t, shut.In(layer)+"/upper")
	for _, name := range []string{"a", "b", "c", "Makefile"} {
		os.WriteFile(upper+"/"+name, []byte("new\n"), 0o644)
	}
	list, err := changes.List(dir)
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	m, err = newModel(t.Context(), list[0], "", func(c changes.Change) string { return string(c.Kind) + " " + c.Path },
		func(c changes.Change, d changes.Difference) string { return strings.Join(d.Hunks[0].Lines, "\n") })
	if err != nil {
		t.Fatal(err)
	}
	return m, host, upper
}

// press presses keys, and waits for what they do.
func press(m *model, keys ...string) {
	for _, key := range keys {
		if cmd := m.key(key); cmd != nil {
			m.Update(cmd())
		}
	}
}

func TestAPersonLooksChoosesAndApplies(t *testing.T) {
	m, host, _ := shown(t)
	if got := m.screen(); !strings.HasPrefix(got, "4 changes in ") || !strings.Contains(got, "> [ ] added Makefile\n  [ ] added a\n  [ ] changed b\n") {
		t.Errorf("%s", got)
	}
	press(m, "j", "j", "enter")
	if got := m.screen(); !strings.Contains(got, "\n-old\n+new\n") {
		t.Errorf("%s", got)
	}
	press(m, "q", "space", "space", "a")
	if got := m.screen(); !strings.HasPrefix(got, "2 changes in ") || !strings.Contains(got, "2 applied") {
		t.Errorf("%s", got)
	}
	for name, want := range map[string]string{"a": "", "b": "new\n", "c": "new\n", "Makefile": ""} {
		if text, _ := os.ReadFile(host + "/" + name); string(text) != want {
			t.Errorf("%s has %q", name, text)
		}
	}
	press(m, "k", "k", "d", "k", "y") // another key in between: not sure
	if len(m.review.Changes) != 2 {
		t.Errorf("%s", m.screen())
	}
	press(m, "d", "y")
	if got := m.screen(); !strings.HasPrefix(got, "1 changes in ") || strings.Contains(got, "Makefile") {
		t.Errorf("%s", got)
	}
	press(m, "d", "y", "a", "enter", "d", "y")
	if got := m.screen(); !strings.HasPrefix(got, "0 changes in ") || !strings.Contains(got, "there is no change left") {
		t.Errorf("%s", got)
	}
	var _ tea.Model = m
}

// What is applied is what was on the screen.
func TestWhatWasChangedAfterItWasShownIsLeft(t *testing.T) {
	m, host, upper := shown(t)
	time.Sleep(20 * time.Millisecond)
	os.WriteFile(upper+"/a", []byte("evil\n"), 0o644)
	press(m, "j", "a")
	if _, err := os.Lstat(host + "/a"); err == nil || !strings.Contains(m.screen(), "it was changed after it was shown") {
		t.Errorf("%v\n%s", err, m.screen())
	}
	press(m, "a")
	if text, _ := os.ReadFile(host + "/a"); string(text) != "evil\n" {
		t.Errorf("%q", text)
	}
}

// What was read on the screen is what is applied, also where a process writes the file without a
// change of its times.
func TestWhatIsWrittenAfterItWasReadIsLeft(t *testing.T) {
	m, host, upper := shown(t)
	file, err := os.OpenFile(upper+"/a", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	mapped, err := unix.Mmap(int(file.Fd()), 0, 4, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mapped)
	copy(mapped, "old\n")
	m.review, err = m.layer.Review(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	press(m, "j", "enter")
	copy(mapped, "evil")
	press(m, "a")
	if _, err := os.Lstat(host + "/a"); err == nil || !strings.Contains(m.screen(), "it was changed after it was shown") {
		t.Errorf("%v\n%s", err, m.screen())
	}
}

func TestAConflictTakesAKeyOfItsOwn(t *testing.T) {
	m, host, _ := shown(t)
	os.WriteFile(host+"/b", []byte("person's\n"), 0o644)
	press(m, "j", "j", "a")
	if text, _ := os.ReadFile(host + "/b"); string(text) != "person's\n" || !strings.Contains(m.screen(), "changed on the host meanwhile") {
		t.Errorf("%q\n%s", text, m.screen())
	}
	press(m, "f")
	if text, _ := os.ReadFile(host + "/b"); string(text) != "new\n" {
		t.Errorf("%q\n%s", text, m.screen())
	}
}
