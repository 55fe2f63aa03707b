package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox"
)

var update = flag.Bool("update", false, "write the generated files anew")

// words are the types that are written as one of a few words.
var words = map[reflect.Type][]any{
	reflect.TypeFor[profile.Access]():     {"none", "read_only", "read_write"},
	reflect.TypeFor[profile.OriginKind](): {profile.OriginBaseline, profile.OriginDefault, profile.OriginConfig, profile.OriginWorkspace, profile.OriginFlag},
	reflect.TypeFor[sandbox.StepKind](): {sandbox.Bind.String(), sandbox.Private.String(), sandbox.Mask.String(), sandbox.Symlink.String(),
		sandbox.Copy.String(), sandbox.Dir.String(), sandbox.Proc.String(), sandbox.Dev.String(), sandbox.Seal.String()},
	reflect.TypeFor[sandbox.NoticeKind](): {sandbox.NoticePathLeftOut, sandbox.NoticePathDenied, sandbox.NoticeSessionBus, sandbox.NoticeUserNamespace},
	reflect.TypeFor[sandbox.CheckState](): {sandbox.CheckOK, sandbox.CheckWeak, sandbox.CheckBad},
	reflect.TypeFor[sandbox.Reason](): {sandbox.ReasonBwrapMissing, sandbox.ReasonBwrapTooOld, sandbox.ReasonBwrapUntrusted,
		sandbox.ReasonUsernsDisabled, sandbox.ReasonUsernsLimit, sandbox.ReasonAppArmorRestricted, sandbox.ReasonSeccompBlocked,
		sandbox.ReasonProcMasked, sandbox.ReasonResources, sandbox.ReasonUnknown},
	reflect.TypeFor[classification](): {sandbox.Exited, sandbox.Signalled, sandbox.TimedOut, sandbox.Cancelled,
		sandboxUnavailable, setupFailed, commandNotFound, commandNotRunnable},
}

func schemaOf(t *testing.T, of reflect.Type, name, title string) *jsonschema.Schema {
	t.Helper()
	options := &jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{}}
	for word, values := range words {
		options.TypeSchemas[word] = &jsonschema.Schema{Type: "string", Enum: values}
	}
	schema, err := jsonschema.ForType(of, options)
	if err != nil {
		t.Fatal(err)
	}
	schema.Schema = "https://json-schema.org/draft/2020-12/schema"
	schema.ID = "https://github.com/clairun/clai-sandbox/docs/" + name
	schema.Title = title
	return schema
}

func TestWhatIsPrintedAsJSONIsPublished(t *testing.T) {
	home, err := os.MkdirTemp("/var/tmp", "clai-sandbox-schema-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(home)
	project := filepath.Join(home, "project")
	if err := os.Mkdir(project, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, title string
		of          reflect.Type
		commands    [][]string
	}{
		{"run-result.schema.json", "clai-sandbox run --json", reflect.TypeFor[runResult](), [][]string{
			{"run", "--json", "--", "true"}, {"run", "--json", "--", "sh", "-c", "kill -9 $$"}, {"run", "--json", "--", "no-such-command"},
			{"run", "--json", "--", project}, {"run", "--json", "--workspace", "/no/such", "--", "true"},
			{"run", "--json", "--grant", "/no/such", "--timeout", "50ms", "--", "sleep", "1000"}}},
		{"explain.schema.json", "clai-sandbox explain --json", reflect.TypeFor[explanation](), [][]string{{"explain", "--json", "--grant", "/no/such"}}},
		{"explain-path.schema.json", "clai-sandbox explain --json --path", reflect.TypeFor[sandbox.Sight](), [][]string{
			{"explain", "--json", "--path", "/etc"}, {"explain", "--json", "--path", "/no/such"}}},
		{"doctor.schema.json", "clai-sandbox doctor --json", reflect.TypeFor[examination](), [][]string{{"doctor", "--json"}}},
	} {
		schema := schemaOf(t, c.of, c.name, c.title)
		text, err := json.MarshalIndent(schema, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		checkGenerated(t, "../../docs/"+c.name, append(text, '\n'))
		resolved, err := schema.Resolve(nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, args := range c.commands {
			cmd := exec.Command("clai-sandbox", args...)
			cmd.Dir, cmd.Env = project, append(os.Environ(), "HOME="+home)
			out, _ := cmd.Output()
			var value any
			if err := json.Unmarshal(out, &value); err != nil {
				t.Errorf("%q: %v: %s", args, err, out)
			} else if err := resolved.Validate(value); err != nil {
				t.Errorf("%q: %v: %s", args, err, out)
			}
		}
	}
}

// checkGenerated holds a published file against what it is made from. Where the repository is not at hand, as when the
// tests run as another user, there is nothing to hold it against.
func checkGenerated(t *testing.T, path string, want []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	published, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(published, want) {
		t.Errorf("%s is out of date (%v): make generate", path, err)
	}
}
