package audit

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

type line struct {
	Time  time.Time `json:"time"`
	Event string    `json:"event"`
}

func TestAShorterAuditFileIsToldOf(t *testing.T) {
	path := filepath.Join(t.TempDir(), Name)
	os.WriteFile(path, []byte("{}\n{\"cut"), 0o600)
	a, notices := Open(path, 1000)
	if len(notices) != 1 {
		t.Fatal(notices)
	}
	a.Append(line{Event: "x"}, true)
	a.Close()
	text, _ := os.ReadFile(path)
	if lines := strings.Split(string(text), "\n"); len(lines) != 5 || !json.Valid([]byte(lines[2])) {
		t.Errorf("%q", text)
	}
	os.Chmod(path, 0o644)
	a, notices = Open(path, 0)
	a.Close()
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 || len(notices) != 0 {
		t.Errorf("others can read it: %v, %v, %v", info.Mode(), err, notices)
	}
}

// What a power failure, or another program, made of the key or of the file does not end all
// granting.
func TestWhatCannotBeReadIsSetAsideAndBegunAnew(t *testing.T) {
	for name, c := range map[string]struct {
		file string
		make func(path string) error
	}{
		"an empty key":    {keyName, func(path string) error { return os.WriteFile(path, nil, 0o600) }},
		"half a key":      {keyName, func(path string) error { return os.Truncate(path, 50) }},
		"half a verifier": {keyName, func(path string) error { return os.Truncate(path, 130) }},
		"a directory":     {keyName, func(path string) error { os.Remove(path); return os.Mkdir(path, 0o700) }},
		"an endless line": {Name, func(path string) error { return os.WriteFile(path, make([]byte, maxLine+1), 0o600) }},
		"an endless end":  {Name, func(path string) error { return os.Truncate(path, maxLine+1000) }},
		"both are no file": {keyName, func(path string) error {
			os.Remove(path)
			os.Remove(filepath.Dir(path) + "/" + Name)
			return os.Mkdir(path, 0o700)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), Name)
			a, _ := Open(path, 0)
			if _, err := a.Append(line{Event: "x"}, true); err != nil {
				t.Fatal(err)
			}
			a.Close()
			damaged := filepath.Join(filepath.Dir(path), c.file)
			if err := c.make(damaged); err != nil {
				t.Fatal(err)
			}
			a, notices := Open(path, 100)
			defer a.Close()
			if _, err := a.Append(line{Event: "y"}, true); err != nil {
				t.Fatal(err, notices)
			}
			if kept, _ := filepath.Glob(damaged + ".set-aside-*"); len(kept) != 1 || len(notices) == 0 {
				t.Errorf("%v, %v", kept, notices)
			}
		})
	}
}

// Nothing that may stand in the audit file's place keeps the broker from taking away; what cannot
// be recorded is not given.
func TestWhatStandsInTheAuditFilesPlaceKeepsNobodyFromRevoking(t *testing.T) {
	for name, make := range map[string]func(path string) error{
		"a directory":          func(path string) error { return os.MkdirAll(path+"/full", 0o700) },
		"a link":               func(path string) error { return os.Symlink("/etc/passwd", path) },
		"a link to nothing":    func(path string) error { return os.Symlink("nowhere", path) },
		"a fifo":               func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"a file without modes": func(path string) error { return os.WriteFile(path, []byte("{}\n"), 0) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), Name)
			if err := make(path); err != nil {
				t.Fatal(err)
			}
			a, notices := Open(path, 0)
			defer a.Close()
			if a.broken != nil {
				t.Fatal(a.broken)
			}
			if kept, _ := filepath.Glob(path + ".set-aside-*"); len(kept) != len(notices) {
				t.Errorf("%v, %v", kept, notices)
			}
			if _, err := a.Append(line{Event: "x"}, true); err != nil {
				t.Error(err)
			}
			if text, err := os.ReadFile(path); err != nil || !strings.Contains(string(text), `"event":"x"`) {
				t.Errorf("%q, %v", text, err)
			}
		})
	}
}

// What is looked for in the file's end is found however much was written since, and not the whole
// file is read for it.
func TestTheEndOfTheFileHasEveryLineSinceATime(t *testing.T) {
	a, _ := Open(filepath.Join(t.TempDir(), Name), 0)
	defer a.Close()
	a.most = 128 << 10
	begin := time.Now().Add(-2 * time.Hour).UTC()
	for i := range 2000 {
		e := line{begin.Add(time.Duration(i) * time.Second), strings.Repeat("x", 200)}
		switch i {
		case 900:
			e.Event = "before"
		case 1000:
			e.Event = "wanted"
		}
		if _, err := a.Append(e, false); err != nil {
			t.Fatal(err)
		}
	}
	since := func(when time.Time) string {
		t.Helper()
		text, err := textSince(a, when)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	if text := since(begin.Add(1000 * time.Second)); !strings.Contains(text, "wanted") {
		t.Errorf("%d bytes", len(text))
	}
	if text := since(begin.Add(1900 * time.Second)); strings.Contains(text, "before") {
		t.Error("more was read than was needed")
	}
	if text := since(begin); strings.Count(text, "xxx\"") != 2000-2 {
		t.Errorf("%d bytes", len(text))
	}
	if full, err := earlier(a.dir); len(full) < 3 {
		t.Errorf("lines that nobody waits for are in %d files: %v", len(full), err)
	}
	// A line that is too long is left out, and what is behind it is not; nor what is behind very
	// many.
	n, err := a.file.WriteString(strings.Repeat("y", maxLine+1) + "\n")
	if a.size += int64(n); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if _, err := a.Append(line{begin.Add(2001 * time.Second), strings.Repeat("z", maxLine-100)}, false); err != nil {
			t.Fatal(err)
		}
	}
	if text := since(begin.Add(1000 * time.Second)); !strings.Contains(text, "wanted") || strings.Contains(text, strings.Repeat("y", 100)) || strings.Count(text, `zzz"`) != 5 {
		t.Errorf("%d bytes", len(text))
	}
}

func textSince(a *Log, when time.Time) (string, error) {
	lines, err := a.Since(when)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for line := range lines {
		text.Write(line)
	}
	return text.String(), nil
}
