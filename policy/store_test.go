package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func newStore(t *testing.T) Store {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return Store{dir + "/config/exec-approvals.json"}
}

func (s Store) put(t *testing.T, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(s.Path), 0o700), os.WriteFile(s.Path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

func allowEntry(pattern string) func(*Approvals) error {
	return func(a *Approvals) error {
		if a.Agents["main"] == nil {
			a.Agents["main"] = &AgentApprovals{}
		}
		a.Agents["main"].Allowlist = append(a.Agents["main"].Allowlist, Entry{ID: NewID(), Pattern: pattern})
		return nil
	}
}

func TestAFileThatCannotBeReadDeniesEverything(t *testing.T) {
	tr := newTree(t, "rg")
	for name, text := range map[string]string{
		"empty":                         "",
		"no object":                     "[]",
		"cut":                           `{"version": 1, "agents": {`,
		"more behind it":                `{"version": 1} {}`,
		"no version":                    `{"agents": {}}`,
		"another version":               `{"version": 2}`,
		"a version as text":             `{"version": "1"}`,
		"a name twice":                  `{"version": 1, "agents": {}, "agents": {}}`,
		"an agent twice":                `{"version": 1, "agents": {"main": {}, "main": {}}}`,
		"agents as a list":              `{"version": 1, "agents": []}`,
		"an agent as text":              `{"version": 1, "agents": {"main": "full"}}`,
		"defaults as text":              `{"version": 1, "defaults": "full"}`,
		"a deny list that is none":      `{"version": 1, "agents": {"main": {"denylist": "rm"}}}`,
		"a deny entry without pattern":  `{"version": 1, "agents": {"main": {"denylist": [{"argPattern": "x"}]}}}`,
		"a deny entry that cannot be":   `{"version": 1, "agents": {"main": {"denylist": [{"pattern": "rm", "argPattern": "("}]}}}`,
		"a deny entry that is a number": `{"version": 1, "agents": {"main": {"denylist": [1]}}}`,
		"too large":                     `{"version": 1, "x": "` + strings.Repeat("x", MaxApprovals) + `"}`,
		"too many entries":              `{"version": 1, "agents": {"main": {"allowlist": [` + strings.Repeat(`"/a",`, maxEntries) + `"/a"]}}}`,
	} {
		s := newStore(t)
		s.put(t, text)
		snapshot, err := s.Load()
		var mistake *FileError
		if !errors.As(err, &mistake) || mistake.Path != s.Path {
			t.Errorf("%s: %+v %v", name, snapshot, err)
		}
		full := SecurityFull
		gateway := HostGateway
		p := &Policy{Machine: tr.m, Err: err, Layers: Layers{Global: Preference{Host: &gateway, Security: &full}}}
		if d := tr.decide(p, "rg a"); d.Verdict != Deny || d.Reason != ReasonPolicyUnreadable || !strings.Contains(strings.Join(d.Lines(), "\n"), "everything is denied") {
			t.Errorf("%s: %v", name, d.Lines())
		}
		if _, err := s.Update(allowEntry("/bin/x")); err == nil {
			t.Errorf("%s: it was overwritten", name)
		}
		if now, err := os.ReadFile(s.Path); err != nil || string(now) != text {
			t.Errorf("%s: it is no longer as it was", name)
		}
	}
	if d := tr.decide(&Policy{Machine: tr.m, Layers: tr.policy().Layers}, "rg a"); d.Verdict != Deny {
		t.Errorf("without approvals: %v", d.Verdict)
	}
}

func TestAFileThatAnotherCouldHaveWrittenIsRefused(t *testing.T) {
	for name, spoil := range map[string]func(Store) error{
		"a link":                 func(s Store) error { return errors.Join(os.Rename(s.Path, s.Path+"x"), os.Symlink(s.Path+"x", s.Path)) },
		"a directory":            func(s Store) error { return errors.Join(os.Remove(s.Path), os.Mkdir(s.Path, 0o700)) },
		"written by all":         func(s Store) error { return os.Chmod(s.Path, 0o602) },
		"written by a group":     func(s Store) error { return os.Chmod(s.Path, 0o620) },
		"a directory of all":     func(s Store) error { return os.Chmod(filepath.Dir(s.Path), 0o777) },
		"a directory of a group": func(s Store) error { return os.Chmod(filepath.Dir(s.Path), 0o720) },
		"a directory of others":  func(s Store) error { return os.Chmod(filepath.Dir(s.Path), 0o702) },
		"a parent of a group":    func(s Store) error { return os.Chmod(filepath.Dir(filepath.Dir(s.Path)), 0o730) },
		"a linked directory": func(s Store) error {
			dir := filepath.Dir(s.Path)
			return errors.Join(os.Rename(dir, dir+"x"), os.Symlink(dir+"x", dir))
		},
	} {
		s := newStore(t)
		s.put(t, `{"version": 1}`)
		if _, err := s.Load(); err != nil {
			t.Fatal(err)
		}
		if err := spoil(s); err != nil {
			t.Fatal(err)
		}
		if snapshot, err := s.Load(); err == nil {
			t.Errorf("%s: %+v", name, snapshot)
		}
		if _, err := s.Update(allowEntry("/bin/x")); err == nil {
			t.Errorf("%s: it was changed", name)
		}
	}
}

func TestAFileOfAnotherUserIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file away")
	}
	s := newStore(t)
	s.put(t, `{"version": 1}`)
	if err := os.Chown(s.Path, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Load(); err == nil {
		t.Error("the file counts")
	}
	if err := errors.Join(os.Chown(s.Path, 0, 0), os.Chown(filepath.Dir(s.Path), 12345, 12345)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Load(); err == nil {
		t.Error("its directory counts")
	}
}

func TestWhereThereIsNoFileNothingIsAllowed(t *testing.T) {
	s := newStore(t)
	snapshot, err := s.Load()
	if err != nil || snapshot.Exists || len(snapshot.Approvals.Resolve("main", Preference{}).Allow) != 0 {
		t.Errorf("%+v %v", snapshot, err)
	}
	if _, err := (Store{"relative"}).Load(); err == nil {
		t.Error("a relative path counts")
	}
}

func TestAFileIsWrittenWholeAndForItsOwner(t *testing.T) {
	s := newStore(t)
	snapshot, err := s.Update(allowEntry("/bin/x && <y>"))
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(s.Path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	text, err := os.ReadFile(s.Path)
	if err != nil || !strings.HasPrefix(string(text), "{\n  \"version\": 1,\n") || !strings.HasSuffix(string(text), "}\n") || !strings.Contains(string(text), "&& <y>") {
		t.Errorf("%s %v", text, err)
	}
	if snapshot.Hash != hashText(text) {
		t.Error("the hash is another's")
	}
	files, _ := os.ReadDir(filepath.Dir(s.Path))
	if len(files) != 2 { // and the lock
		t.Errorf("%v", files)
	}
	loaded, err := s.Load()
	if err != nil || string(loaded.Approvals.JSON()) != string(text) {
		t.Errorf("%s %v", loaded.Approvals.JSON(), err)
	}
	if _, err := s.Update(func(a *Approvals) error { a.Socket.Token = "t"; return errors.New("no") }); err == nil {
		t.Error("a change that failed counts")
	}
	if now, _ := os.ReadFile(s.Path); string(now) != string(text) {
		t.Error("it was written all the same")
	}
}

func TestNoChangeOfManyAtOnceIsLost(t *testing.T) {
	s := newStore(t)
	const writers, each = 8, 5
	var wait sync.WaitGroup
	for w := range writers {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for i := range each {
				if _, err := s.Update(allowEntry(fmt.Sprintf("/bin/%d-%d", w, i))); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	wait.Wait()
	snapshot, err := s.Load()
	if err != nil || len(snapshot.Approvals.Agents["main"].Allowlist) != writers*each {
		t.Errorf("%d entries, %v", len(snapshot.Approvals.Agents["main"].Allowlist), err)
	}
}

func TestAChangeNeedsTheHashOfWhatItChanges(t *testing.T) {
	s := newStore(t)
	one := json.RawMessage(`{"version": 1, "socket": {"path": "/s", "token": "secret"}, "agents": {"main": {"allowlist": ["/bin/one"]}}}`)
	first, err := s.Set(one, "")
	if err != nil {
		t.Fatal(err)
	}
	two := json.RawMessage(`{"version": 1, "agents": {"main": {"allowlist": ["/bin/two"]}}}`)
	for base, want := range map[string]error{"": ErrBaseHashRequired, "00": ErrBaseHash, hashText(nil): ErrBaseHash} {
		if _, err := s.Set(two, base); !errors.Is(err, want) {
			t.Errorf("%q: %v", base, err)
		}
	}
	second, err := s.Set(two, first.Hash)
	if err != nil || second.Hash == first.Hash || second.Approvals.Socket.Token != "secret" || second.Approvals.Socket.Path != "/s" {
		t.Errorf("%+v %v", second, err)
	}
	if shown := string(second.Shown().File); strings.Contains(shown, "secret") || !strings.Contains(shown, "/bin/two") {
		t.Errorf("shown: %s", shown)
	}
	if _, err := s.Set(json.RawMessage(`{"version": 3}`), second.Hash); err == nil {
		t.Error("a file that nobody could read counts")
	}
}

func TestMarkingAnEntryUsedLosesNobodysEdit(t *testing.T) {
	s := newStore(t)
	before, err := s.Update(allowEntry("/bin/x"))
	if err != nil {
		t.Fatal(err)
	}
	entry := before.Approvals.Agents["main"].Allowlist[0]
	if _, err := s.Update(allowEntry("/bin/y")); err != nil {
		t.Fatal(err)
	}
	use := Used{Agent: "main", Entry: entry, At: 1000, Command: "x " + strings.Repeat("ü", 1000), Resolved: "/bin/x"}
	gone := Used{Agent: "main", Entry: Entry{ID: "gone", Pattern: "/gone"}, At: 1000}
	if err := s.MarkUsed([]Used{use, gone}); err != nil {
		t.Fatal(err)
	}
	older := use
	older.At, older.Resolved = 500, "/older"
	if err := s.MarkUsed([]Used{older}); err != nil {
		t.Fatal(err)
	}
	after, err := s.Load()
	if err != nil {
		t.Fatal(err)
	}
	list := after.Approvals.Agents["main"].Allowlist
	if len(list) != 2 || list[0].LastUsedAt != 1000 || list[0].LastResolvedPath != "/bin/x" || len(list[0].LastUsedCommand) > 510 || list[1].LastUsedAt != 0 {
		t.Errorf("%+v", list)
	}
}

func TestWhatOthersKeepInTheFileStays(t *testing.T) {
	a, err := ParseApprovals([]byte(`{"version": 1, "ours": [1], "socket": {"mode": "x"}, "agents": {"main": {"note": {"a": 1}, "security": "foo"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	text := string(a.JSON())
	for _, part := range []string{`"ours": [`, `"mode": "x"`, `"a": 1`, `"security": "foo"`} {
		if !strings.Contains(text, part) {
			t.Errorf("%s is gone from %s", part, text)
		}
	}
	if r := a.Resolve("main", Preference{}); r.Security != SecurityDeny || len(a.Problems) != 1 {
		t.Errorf("%+v %q", r, a.Problems)
	}
}

func TestAWordThatNobodyKnowsIsTheStrictest(t *testing.T) {
	for _, word := range []string{`"none"`, `"Full"`, `" full"`, `true`, `1`, `["full"]`, `{}`, `""`} {
		a, err := ParseApprovals([]byte(`{"version": 1, "defaults": {"security": "full", "ask": "off", "askFallback": "full", "autoAllowSkills": true},
			"agents": {"*": {"security": "full"}, "main": {"security": ` + word + `, "ask": ` + word + `, "askFallback": ` + word + `, "autoAllowSkills": "yes"}}}`))
		if err != nil {
			t.Fatal(err)
		}
		full, off := SecurityFull, AskOff
		if r := a.Resolve("main", Preference{Security: &full, Ask: &off}); r.Security != SecurityDeny || r.Ask != AskAlways || r.AskFallback != SecurityDeny || r.AutoAllowSkills || len(a.Problems) != 4 {
			t.Errorf("%s: %+v %q", word, r, a.Problems)
		}
		if r := a.Resolve("other", Preference{}); r.Security != SecurityFull || r.Ask != AskOff || !r.AutoAllowSkills {
			t.Errorf("%s: another agent: %+v", word, r)
		}
	}
}

func TestTheManualsExampleOfAFileIsRead(t *testing.T) {
	manual, err := os.ReadFile("../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(manual), "```json\n")
	example, _, _ := strings.Cut(rest, "```")
	a, err := ParseApprovals([]byte(example))
	if err != nil || len(a.Problems) > 0 {
		t.Fatal(err, a)
	}
	if r := a.Resolve("main", Preference{}); len(r.Allow) != 3 || len(r.Deny) != 2 || r.Security != SecurityAllowlist {
		t.Errorf("%+v", r)
	}
}

func FuzzParseApprovals(f *testing.F) {
	f.Add([]byte(`{"version": 1, "agents": {"default": {"allowlist": ["a", {"pattern": "/b", "argPattern": "x"}], "ask": "off"}, "main": {}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		a, err := ParseApprovals(text)
		if err != nil {
			return
		}
		again, err := ParseApprovals(a.JSON())
		if err != nil {
			t.Fatalf("%q is written as %q: %v", text, a.JSON(), err)
		}
		if string(again.JSON()) != string(a.JSON()) {
			t.Errorf("%q is written as %q and then as %q", text, a.JSON(), again.JSON())
		}
	})
}
