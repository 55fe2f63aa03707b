package preset

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/clairun/clai-sandbox/profile"
)

//go:generate go test -run TestSchema -update

var update = flag.Bool("update", false, "write the schema anew")

func TestSchemaIsUpToDateAndDescribesOurPresets(t *testing.T) {
	schema, err := jsonschema.ForType(reflect.TypeFor[Preset](), &jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[profile.Access](): {Type: "string", Enum: []any{"read_only", "copy_on_write", "read_write"}}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, ours := range []string{"Name", "File"} {
		delete(schema.Properties, ours)
	}
	schema.Required = []string{"about", "succeeds", "fails"}
	closed(schema)
	schema.Schema = "https://json-schema.org/draft/2020-12/schema"
	schema.Title = "what a program needs of its sandbox"
	text, err := json.MarshalIndent(schema, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, '\n')
	if *update {
		if err := os.WriteFile("preset.schema.json", text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if stored, err := os.ReadFile("preset.schema.json"); err != nil || !bytes.Equal(stored, text) {
		t.Errorf("preset.schema.json is out of date (%v): make generate", err)
	}
	resolved, err := schema.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("presets/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var value any
		if err := json.Unmarshal(text, &value); err != nil {
			t.Fatal(file, err)
		}
		if err := resolved.Validate(value); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// closed takes null out of what a preset may have.
func closed(s *jsonschema.Schema) {
	for _, property := range s.Properties {
		if len(property.Types) == 2 {
			property.Type, property.Types = property.Types[1], nil
		}
		closed(property)
		if property.Items != nil {
			closed(property.Items)
		}
	}
}

func TestWhatAPresetCannotMeanIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		`"copies": [{"path": "~/../x", "why": "w"}]`:                  "is not ~/x",
		`"copies": [{"path": "/etc/passwd", "why": "w"}]`:             "is not ~/x",
		`"told": "~/a/../../x"`:                                       "is not ~/x",
		`"paths": [{"path": "x", "access": "read_only", "why": "w"}]`: "is relative",
		`"paths": [{"path": "/x", "access": "none", "why": "w"}]`:     "is not read_only",
		`"domains": [{"domain": "https://a.example", "why": "w"}]`:    "domains",
		`"program": "a/b"`:                     "neither a name nor a whole path",
		`"presets": "git"`:                     "must be a list",
		`"path": []`:                           "unknown key",
		`"domains": [{"domain": "a.example"}]`: `key "why" is missing`,
	} {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, Directory), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, Directory, "mine.json"), []byte(`{"about": "a", "succeeds": ["true"], "fails": ["false"], `+text+`}`), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// A program is a name, or a whole path: another one would be found where the person is.
func TestAProgramIsANameOrAWholePath(t *testing.T) {
	for program, right := range map[string]bool{"": true, "claude": true, "/opt/agent/bin/agent": true, "a/b": false, "./agent": false, "../agent": false, "agent/": false} {
		p := Preset{Name: "mine", Program: program}
		if err := p.check(); (err == nil) != right {
			t.Errorf("%q: %v", program, err)
		}
	}
}

func TestOfACopyTheNewerOneCounts(t *testing.T) {
	home, own, outside := t.TempDir(), t.TempDir(), t.TempDir()
	p := Preset{Copies: []Copy{{Path: "~/.a/state"}, {Path: "~/.missing"}}}
	write := func(path, text string, at time.Time) {
		t.Helper()
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil {
			err = os.WriteFile(path, []byte(text), 0o644)
		}
		if err == nil {
			err = os.Chtimes(path, at, at)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	for _, step := range []struct {
		do   func()
		want string
	}{
		{func() { write(home+"/.a/state", "person's", now) }, "person's"},
		{func() { write(own+"/.a/state", "agent's", now.Add(time.Minute)) }, "agent's"},
		{func() { write(home+"/.a/state", "person's again", now.Add(time.Hour)) }, "person's again"},
		{func() { os.Remove(home + "/.a/state") }, "person's again"},
		// Whatever the agent's commands have put in the way.
		{func() {
			os.RemoveAll(own + "/.a")
			os.Symlink("/"+strings.Repeat("../", 20)+outside, own+"/.a")
			write(home+"/.a/state", "a link", now.Add(time.Hour))
		}, "a link"},
		{func() {
			os.RemoveAll(own + "/.a")
			write(own+"/.a/state/in/it", "agent's", now)
			write(home+"/.a/state", "a directory", now.Add(time.Hour))
		}, "a directory"},
		{func() {
			write(own+"/.a/state.clai-sandbox-new/in/it", "agent's", now)
			write(home+"/.a/state", "a directory of our name", now.Add(2*time.Hour))
		}, "a directory of our name"},
		{func() {
			os.RemoveAll(own + "/.a")
			write(own+"/.a", "agent's", now)
			write(home+"/.a/state", "a file", now.Add(time.Hour))
		}, "a file"},
		{func() {
			os.RemoveAll(own + "/.a")
			os.Mkdir(own+"/.a", 0)
			write(home+"/.a/state", "a closed directory", now.Add(time.Hour))
		}, "a closed directory"},
	} {
		step.do()
		err := p.Furnish(home, own)
		if text, _ := os.ReadFile(own + "/.a/state"); err != nil || string(text) != step.want {
			t.Errorf("%q, %v, want %q", text, err, step.want)
		}
	}
	if list, err := os.ReadDir(outside); err != nil || len(list) != 0 {
		t.Errorf("a link led out of the home: %v, %v", list, err)
	}
}
