package profile

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/tailscale/hujson"
)

func TestAChangeKeepsWhatItDoesNotName(t *testing.T) {
	const commented = `// mine
{
  // all of them
  "defaults": {
    "execution": {
      "sandbox": {"network": "disabled"}, // no network
      /* slow */ "limits": {"timeoutSeconds": 60},
    },
  },
  "agents": {
    "main": {} // the usual one
  }
}
`
	for _, c := range []struct{ text, patch, want string }{
		{"", `{"agents": {"a": {}}}`, "{\n  \"agents\": {\n    \"a\": {}\n  }\n}\n"},
		{"// nothing yet", `{"agents": {}}`, "// nothing yet\n{\n  \"agents\": {}\n}\n"},
		{"{}", `{"session": {"mainKey": "x"}}`, "{\n  \"session\": {\n    \"mainKey\": \"x\"\n  }\n}\n"},
		{commented, `{}`, commented},
		{commented, `{"defaults": {"execution": {"sandbox": {"network": "enabled"}}}}`, strings.Replace(commented, "disabled", "enabled", 1)},
		{commented, `{"defaults": {"execution": {"sandbox": {"sessionBus": "deny"}}}}`, strings.Replace(commented, `"disabled"`, `"disabled", "sessionBus": "deny"`, 1)},
		{commented, `{"defaults": {"execution": {"sandbox": null}}}`, strings.Replace(commented, "\n      \"sandbox\": {\"network\": \"disabled\"},", "", 1)},
		{commented, `{"defaults": {"execution": {"limits": null}}}`, strings.Replace(commented, "\n      /* slow */ \"limits\": {\"timeoutSeconds\": 60},", "", 1)},
		{commented, `{"agents": {"b": {"workspace": "~/b"}}}`, strings.Replace(commented, "{} // the usual one\n  }", "{}, // the usual one\n    \"b\": {\n      \"workspace\": \"~/b\"\n    }\n  }", 1)},
		{commented, `{"agents": {"main": null}}`, strings.Replace(commented, "\n    \"main\": {} // the usual one", " // the usual one", 1)},
		{commented, `{"nothing": null, "agents": {"main": {"x": null}}}`, strings.Replace(commented, `"main": {}`, `"main": {}`, 1)},
		{`{"agents": 1}`, `{"agents": {"a": {}}}`, "{\"agents\": {\n    \"a\": {}\n  }}\n"},
		{"{\"a\": 1, /* x */ \"b\": 2}\n", `{"b": null}`, "{\"a\": 1}\n"},
	} {
		got, err := MergeConfig("config.json", []byte(c.text), []byte(c.patch))
		if err != nil || string(got) != c.want {
			t.Errorf("%s\nwith %s:\n%s\nwant\n%s(%v)", c.text, c.patch, got, c.want, err)
		}
	}
	for _, patch := range []string{`[]`, `1`, `{`, `{"a": {}, "a": {}}`, strings.Repeat(`{"a":`, 40), "{\"a\": \"\xff\"}"} {
		if got, err := MergeConfig("config.json", []byte(commented), []byte(patch)); err == nil {
			t.Errorf("%s gives %s", patch, got)
		}
	}
}

// merged is what RFC 7396 says.
func merged(target, patch any) any {
	changes, is := patch.(map[string]any)
	if !is {
		return patch
	}
	into, is := target.(map[string]any)
	if !is {
		into = map[string]any{}
	}
	for name, value := range changes {
		if value == nil {
			delete(into, name)
		} else {
			into[name] = merged(into[name], value)
		}
	}
	return into
}

// hasTwice reports whether an object has a member twice.
func hasTwice(t *testing.T, text string) bool {
	tree, err := hujson.Parse([]byte(text + "\n"))
	if err != nil {
		t.Skip(err)
	}
	twice := false
	for v := range tree.All() {
		if object, is := v.Value.(*hujson.Object); is {
			for i := range object.Members {
				twice = twice || memberAt(object, object.Members[i].Name.Value.(hujson.Literal).String()) != i
			}
		}
	}
	return twice
}

func FuzzMergeConfig(f *testing.F) {
	f.Add(`{"a": {"b": 1}, /* c */ "d": [1, 2,], }`, `{"a": {"b": null, "c": {"x": "y"}}, "d": {}}`)
	f.Add("// x\n{\"a\":1 // y\n}", `{"b":{"c":{"d":1}}}`)
	f.Add(`{"a":1,}`, `{"a":null}`)
	f.Fuzz(func(t *testing.T, text, patch string) {
		got, err := MergeConfig("config.json", []byte(text), []byte(patch))
		if err != nil {
			return
		}
		plain := func(text []byte) (value any) {
			text, err := hujson.Standardize(append(text, '\n'))
			if err == nil {
				err = json.Unmarshal(text, &value)
			}
			if err != nil {
				t.Skip(err)
			}
			return value
		}
		if len(text) == 0 || hasTwice(t, text) || hasTwice(t, patch) {
			return // readers differ in which one counts
		}
		if want := merged(plain([]byte(text)), plain([]byte(patch))); !reflect.DeepEqual(plain(got), want) {
			t.Errorf("%q with %q: %q, want %v", text, patch, got, want)
		}
	})
}

func TestAKeyIsTakenApart(t *testing.T) {
	for text, want := range map[string]string{"a": "a", "agents.main.execution": "agents|main|execution", `agents["a.b"].x`: "agents|a.b|x", `["a"]`: "a", `a["\u0062"]["c"]`: "a|b|c",
		"": "!", ".": "!", "a.": "!", ".a": "!", "a..b": "!", "a[": "!", "a[0]": "!", `a["b"]c`: "!", `a.["b"]`: "!", `a["b"`: "!"} {
		key, err := SplitKey(text)
		if got := strings.Join(key, "|"); err == nil && got != want || err != nil && want != "!" {
			t.Errorf("%s: %s, %v, want %s", text, got, err, want)
		}
	}
}

func change(patch string) func([]byte) ([]byte, error) {
	return func(text []byte) ([]byte, error) { return MergeConfig("config.json", text, []byte(patch)) }
}

func TestOnlyThePersonsOwnFileIsChanged(t *testing.T) {
	dir := t.TempDir()
	d := Directories{Config: filepath.Join(dir, "config", "clai-sandbox"), SystemConfig: filepath.Join(dir, "etc")}
	path := filepath.Join(d.Config, "config.json")
	first, err := ChangeConfig(d, "", change(`{"agents": {"a": {}}}`))
	if info, _ := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Fatal(err, info)
	}
	os.Chmod(path, 0o640)
	if _, err := ChangeConfig(d, strings.Repeat("0", 64), change(`{"agents": {"b": {}}}`)); !errors.Is(err, ErrStale) {
		t.Error(err)
	}
	var mistake *ConfigError
	if _, err := ChangeConfig(d, first.Hash, change(`{"agents": {"b": {"x": 1}}}`)); !errors.As(err, &mistake) || mistake.Line == 0 {
		t.Error(err)
	}
	second, err := ChangeConfig(d, strings.ToUpper(first.Hash), change(`{"agents": {"b": {}}}`))
	if now, _ := ReadConfigText(d); err != nil || now.Hash != second.Hash || second.Hash == first.Hash {
		t.Error(err, now)
	}
	if info, _ := os.Stat(path); info.Mode() != 0o640 {
		t.Errorf("the mode is not kept: %v", info.Mode())
	}
	// Somebody who takes no lock changes it between reading and writing.
	if _, err := ChangeConfig(d, "", func(text []byte) ([]byte, error) {
		os.WriteFile(path, append(text, "// by hand\n"...), 0o640)
		return change(`{"agents": {"c": {}}}`)(text)
	}); !errors.Is(err, ErrStale) {
		t.Error(err)
	}
	elsewhere := filepath.Join(dir, "elsewhere.json")
	for _, step := range []struct {
		why  string
		make func() error
	}{
		{"a symbolic link; change", func() error { return errors.Join(os.Rename(path, elsewhere), os.Symlink(elsewhere, path)) }},
		{"has another name", func() error { return errors.Join(os.Remove(path), os.Link(elsewhere, path)) }},
		{"others can write it", func() error { return errors.Join(os.Remove(elsewhere), os.Chmod(path, 0o602)) }},
		{"others can write it", func() error { return os.Chmod(path, 0o620) }},
		{"others can write its directory", func() error { return errors.Join(os.Chmod(path, 0o600), os.Chmod(d.Config, 0o720)) }},
		{"others can write its directory", func() error { return os.Chmod(d.Config, 0o702) }},
		{"not a regular file", func() error { return errors.Join(os.Chmod(d.Config, 0o700), os.Remove(path), os.Mkdir(path, 0o700)) }},
		{"a symbolic link leads there", func() error {
			return errors.Join(os.Remove(path), os.Rename(filepath.Dir(d.Config), dir+"/real"), os.Symlink(dir+"/real", filepath.Dir(d.Config)))
		}},
	} {
		if err := step.make(); err != nil {
			t.Fatal(err)
		}
		if _, err := ChangeConfig(d, "", change(`{"agents": {"d": {}}}`)); err == nil || !strings.Contains(err.Error(), step.why) {
			t.Errorf("%v, want %q", err, step.why)
		}
	}
	if text, err := os.ReadFile(elsewhere); err == nil && strings.Contains(string(text), `"d"`) {
		t.Error("written through a link")
	}
}

func TestChangesAtOnceAreAllKept(t *testing.T) {
	d := Directories{Config: t.TempDir()}
	os.Chmod(d.Config, 0o700)
	var all sync.WaitGroup
	names := strings.Split("a b c d e f g h i j", " ")
	for _, name := range names {
		all.Go(func() {
			if _, err := ChangeConfig(d, "", change(`{"agents": {"`+name+`": {}}}`)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	config, err := Load(d)
	for _, name := range names {
		if err == nil && config.CheckConfigured(name) != nil {
			t.Errorf("%s is lost", name)
		}
	}
	if left, _ := os.ReadDir(d.Config); err != nil || len(left) != 2 {
		t.Errorf("%v, %v", left, err)
	}
}
