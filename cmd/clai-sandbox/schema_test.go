package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox"
	"github.com/clairun/clai-sandbox/sandbox/limits"
)

//go:generate go test -run UpToDate . -update

var update = flag.Bool("update", false, "write the generated files anew")

// checkGenerated holds a published file against what it is made from.
func checkGenerated(t *testing.T, path string, want []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if published, err := os.ReadFile(path); err != nil || !bytes.Equal(published, want) {
		t.Errorf("%s is out of date (%v): make generate", path, err)
	}
}

// The published schemas: of what each command prints with --json.
var schemas = []struct {
	file, title string
	of          reflect.Type
}{
	{"run-result.schema.json", "what clai-sandbox run --json prints", reflect.TypeFor[runResult]()},
	{"explain.schema.json", "what clai-sandbox explain --json prints", reflect.TypeFor[explanation]()},
	{"explain-path.schema.json", "what clai-sandbox explain --json --path prints", reflect.TypeFor[sandbox.PathStatus]()},
	{"doctor.schema.json", "what clai-sandbox doctor --json prints", reflect.TypeFor[examination]()},
}

// schemaOf describes a type. Later versions may print more than it says, so a reader must not mind
// what it does not know.
func schemaOf(t *testing.T, of reflect.Type) *jsonschema.Schema {
	t.Helper()
	enumerations := map[reflect.Type]*jsonschema.Schema{}
	for enumeration, values := range wordsByType(t) {
		enumerations[enumeration] = &jsonschema.Schema{Type: "string", Enum: values}
	}
	schema, err := jsonschema.ForType(of, &jsonschema.ForOptions{TypeSchemas: enumerations})
	if err != nil {
		t.Fatal(err)
	}
	relax(schema)
	if of == reflect.TypeFor[explanation]() {
		schema.Properties["network"].Enum = names(profile.NetworkDisabled, len(constants(t, "../../profile", "Network")))
		schema.Properties["sessionBus"].Enum = names(profile.SessionBusDeny, len(constants(t, "../../profile", "SessionBus")))
	}
	return schema
}

// relax takes away what the types cannot say better: that objects are closed, that lists and what
// is left out where it is nothing could be null.
func relax(s *jsonschema.Schema) {
	s.AdditionalProperties = nil
	if slices.Contains(s.Types, "array") {
		s.Type, s.Types = "array", nil
		relax(s.Items)
	}
	for name, property := range s.Properties {
		if len(property.Types) == 2 && !slices.Contains(s.Required, name) {
			property.Type, property.Types = property.Types[1], nil
		}
		relax(property)
	}
}

// wordsByType are the types that are written as one of a few words, with all of these, as the
// sources declare them.
func wordsByType(t *testing.T) map[reflect.Type][]any {
	t.Helper()
	count := func(dir, name string) int { return len(constants(t, dir, name)) }
	outcomes := append(constants(t, "../../sandbox", "Outcome"), constants(t, ".", "classification")...)
	notices := slices.Concat(constants(t, "../../sandbox", "NoticeKind"), constants(t, "../../grants", "NoticeKind"),
		constants(t, "../../integration/session", "NoticeKind"))
	return map[reflect.Type][]any{
		reflect.TypeFor[classification]():     outcomes,
		reflect.TypeFor[sandbox.Reason]():     constants(t, "../../sandbox", "Reason"),
		reflect.TypeFor[sandbox.NoticeKind](): notices,
		reflect.TypeFor[limits.Holder]():      constants(t, "../../sandbox/limits", "Holder"),
		reflect.TypeFor[profile.Limit]():      names(profile.LimitMemory, len(profile.LimitNames())),
		reflect.TypeFor[sandbox.CheckState](): constants(t, "../../sandbox", "CheckState"),
		reflect.TypeFor[profile.OriginKind](): constants(t, "../../profile", "OriginKind"),
		reflect.TypeFor[sandbox.StepKind]():   names(sandbox.Bind, count("../../sandbox", "StepKind")),
		reflect.TypeFor[profile.Access]():     names(profile.NoAccess, count("../../profile", "Access")),
	}
}

// names are what a numbered enumeration prints, from its first value on.
func names[T interface {
	~uint8
	fmt.Stringer
}](first T, n int) []any {
	var list []any
	for i := range n {
		list = append(list, (first + T(i)).String())
	}
	return list
}

// constants are those of a type that a package declares, in their order: the text of each that is a
// string.
func constants(t *testing.T, dir, name string) []any {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var list []any
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, declaration := range file.Decls {
			if block, ok := declaration.(*ast.GenDecl); ok && block.Tok == token.CONST {
				list = append(list, constantsIn(block, name)...)
			}
		}
	}
	if len(list) == 0 {
		t.Fatalf("no constants of type %s in %s", name, dir)
	}
	return list
}

func constantsIn(block *ast.GenDecl, name string) []any {
	var list []any
	is := false
	for _, spec := range block.Specs {
		value := spec.(*ast.ValueSpec)
		if len(value.Values) > 0 { // else it is as the one before, one further
			switch declared := value.Type.(type) {
			case *ast.Ident:
				is = declared.Name == name
			case *ast.SelectorExpr: // another package's
				is = declared.Sel.Name == name
			default:
				is = false
			}
		}
		if !is {
			continue
		}
		text := value.Names[0].Name
		if len(value.Values) > 0 {
			if literal, ok := value.Values[0].(*ast.BasicLit); ok {
				text, _ = strconv.Unquote(literal.Value)
			}
		}
		list = append(list, text)
	}
	return list
}

func TestSchemasAreUpToDate(t *testing.T) {
	for _, s := range schemas {
		schema := schemaOf(t, s.of)
		schema.Schema = "https://json-schema.org/draft/2020-12/schema"
		schema.ID = "https://github.com/clairun/clai-sandbox/docs/" + s.file
		schema.Title = s.title
		text, err := json.MarshalIndent(schema, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		checkGenerated(t, "../../docs/"+s.file, append(text, '\n'))
	}
}

// published is a schema as readers have it.
func published(t *testing.T, file string) *jsonschema.Resolved {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + file)
	if err != nil {
		t.Fatal(err)
	}
	var schema jsonschema.Schema
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	resolved, err := schema.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return resolved
}

func TestWhatIsPrintedIsAsPublished(t *testing.T) {
	project := filepath.Join(newHome(t), "project")
	if err := os.Mkdir(project, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		file string
		args []string
		want string // of the output
	}{
		{"run-result.schema.json", []string{"run", "--json", "true"}, `"classification":"exited"`},
		{"run-result.schema.json", []string{"run", "--json", "--", "sh", "-c", "kill -9 $$"}, `"name":"SIGKILL"`},
		{"run-result.schema.json", []string{"run", "--json", "--timeout", "50ms", "--grant", "/no/such", "sleep", "1000"}, `"kind":"path_left_out"`},
		{"run-result.schema.json", []string{"run", "--json", "--", "no-such-command"}, `"command_not_found"`},
		{"run-result.schema.json", []string{"run", "--json", "--", project}, `"command_not_executable"`},
		{"run-result.schema.json", []string{"run", "--json", "--workspace", "/no/such", "true"}, `"setup_failed"`},
		{"run-result.schema.json", []string{"-no-bwrap", "run", "--json", "true"}, `"reason":"bwrap_missing"`},
		{"explain.schema.json", []string{"explain", "--json"}, `"workspace":`},
		{"explain.schema.json", []string{"explain", "--json", "--grant", "/no/such", "--grant", "~/project:ro", "--allow-nesting", "--session-bus", "allow",
			"--network", "disabled", "--timeout", "1s", "--env", "CI=1"}, `"timeoutSeconds":1`},
		{"explain.schema.json", []string{"explain", "--json", "--limit", "memory=2GiB", "--limit", "outputBytes=1MiB"}, `"limit":"memory","amount":"2GiB","heldBy":`},
		{"run-result.schema.json", []string{"run", "--json-fd", "1", "--limit", "fileSize=1MiB", "--", "sh", "-c", "head -c 2000000 /dev/zero >large"}, `"kind":"limit_reached"`},
		{"explain-path.schema.json", []string{"explain", "--json", "--path", "/etc"}, `"visible":true`},
		{"explain-path.schema.json", []string{"explain", "--json", "--path", "/no/such"}, `"visible":false`},
		{"explain-path.schema.json", []string{"explain", "--json", "--path", "/bin/sh"}, `"resolved":`},
		{"doctor.schema.json", []string{"doctor", "--json"}, `"ok":true`},
		{"doctor.schema.json", []string{"-no-bwrap", "doctor", "--json"}, `"state":"bad"`},
	} {
		environment := append(os.Environ(), "HOME="+filepath.Dir(project))
		if c.args[0] == "-no-bwrap" {
			c.args = c.args[1:]
			environment = append(environment, profile.BwrapVariable+"=/no/such/bwrap")
		}
		cmd := exec.Command("clai-sandbox", c.args...)
		cmd.Dir, cmd.Env = project, environment
		out, _ := cmd.Output() // its exit status is in the object
		var value any
		if err := json.Unmarshal(out, &value); err != nil {
			t.Errorf("%q: %v: %s", c.args, err, out)
			continue
		}
		if err := published(t, c.file).Validate(value); err != nil {
			t.Errorf("%q: %v: %s", c.args, err, out)
		}
		if !bytes.Contains(out, []byte(c.want)) {
			t.Errorf("%q printed no %s: %s", c.args, c.want, out)
		}
	}
}

func TestTheSchemasRefuseWhatIsNeverPrinted(t *testing.T) {
	const good = `{"classification": "exited", "exitCode": 0, "signal": null, "durationMs": 1.5, "notices": [], "missing": [], "error": null}`
	schema := published(t, "run-result.schema.json")
	for from, to := range map[string]string{
		`"classification"`: `"classification"`, // the same: good
		`"exited"`:         `"finished"`,
		`"exitCode": 0, `:  ``,
		`1.5`:              `"1.5"`,
		`[]`:               `null`,
		`"notices": []`:    `"notices": [{"kind": "weather", "text": "rain"}]`,
		`"error": null`:    `"error": {"message": "x", "reason": "bad luck"}`,
		`"signal": null`:   `"signal": {"number": 9}`,
	} {
		var value any
		if err := json.Unmarshal([]byte(strings.Replace(good, from, to, 1)), &value); err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(value); (err == nil) != (from == to) {
			t.Errorf("with %s in place of %s: %v", to, from, err)
		}
	}
}
