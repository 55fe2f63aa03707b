package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"reflect"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/clairun/clai-sandbox/policy"
	"github.com/clairun/clai-sandbox/sandbox/cow/changes"
)

//go:generate go test -run TestTheSchema -update

var update = flag.Bool("update", false, "write the generated files anew")

const decisionSchema = "../../docs/policy-decision.schema.json"

// schemaOfDecisions describes what approvals test --json and explain --host --json print.
func schemaOfDecisions(t *testing.T) *jsonschema.Schema {
	t.Helper()
	types := map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[policy.Verdict]():  words(policy.Deny, policy.AskPerson, policy.Run),
		reflect.TypeFor[policy.Host]():     words(policy.HostSandbox, policy.HostGateway, policy.HostNode),
		reflect.TypeFor[policy.Security](): words(policy.SecurityDeny, policy.SecurityAllowlist, policy.SecurityFull),
		reflect.TypeFor[policy.Ask]():      words(policy.AskAlways, policy.AskOnMiss, policy.AskOff),
		reflect.TypeFor[policy.Answer]():   words(policy.AnswerDeny, policy.AnswerAllowOnce, policy.AnswerAllowAlways),
		reflect.TypeFor[policy.By]():       words(policy.ByNothing, policy.ByAllowlist, policy.BySafeBins, policy.BySkills, policy.ByPayload),
		reflect.TypeFor[policy.Command]():  {Ref: "#/$defs/command"},
	}
	types[reflect.TypeFor[*policy.Command]()] = types[reflect.TypeFor[policy.Command]()]
	options := &jsonschema.ForOptions{TypeSchemas: types}
	command, err := jsonschema.ForType(exported(reflect.TypeFor[policy.Command]()), options)
	if err != nil {
		t.Fatal(err)
	}
	schema, err := jsonschema.For[policy.Decision](options)
	if err != nil {
		t.Fatal(err)
	}
	schema.Schema = "https://json-schema.org/draft/2020-12/schema"
	schema.ID = "https://github.com/clairun/clai-sandbox/docs/policy-decision.schema.json"
	schema.Title = "a decision about a command outside the sandbox"
	schema.Defs = map[string]*jsonschema.Schema{"command": command}
	relax(schema)
	return schema
}

// relax takes away the null that the library gives a pointer: what is referred to says what it is.
func relax(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if s.Ref != "" {
		s.Types = nil
	}
	relax(s.Items)
	for _, part := range s.Properties {
		relax(part)
	}
	for _, part := range s.Defs {
		relax(part)
	}
}

// exported is a struct without its own fields: a command holds commands, which the library cannot
// follow by itself.
func exported(of reflect.Type) reflect.Type {
	var fields []reflect.StructField
	for i := range of.NumField() {
		if f := of.Field(i); f.IsExported() {
			fields = append(fields, f)
		}
	}
	return reflect.StructOf(fields)
}

func words[T interface{ String() string }](values ...T) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "string"}
	for _, v := range values {
		s.Enum = append(s.Enum, v.String())
	}
	return s
}

const changesSchema = "../../docs/changes.schema.json"

// schemaOfChanges describes what changes list, show, apply and discard print with --json.
func schemaOfChanges() (*jsonschema.Schema, error) {
	types := map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[changes.Kind](): {Type: "string", Enum: []any{changes.Added, changes.Changed, changes.Deleted, changes.Mode, changes.Replaced}},
		reflect.TypeFor[[]byte]():       {Type: "string", ContentEncoding: "base64"},
	}
	schema := &jsonschema.Schema{Schema: "https://json-schema.org/draft/2020-12/schema", ID: "https://github.com/clairun/clai-sandbox/docs/changes.schema.json",
		Title: "what clai-sandbox changes prints with --json", Defs: map[string]*jsonschema.Schema{}}
	for _, def := range []struct {
		name string
		of   reflect.Type
	}{{"list", reflect.TypeFor[[]layerLine]()}, {"show", reflect.TypeFor[shownLayer]()}, {"apply", reflect.TypeFor[changesResult]()}} {
		part, err := jsonschema.ForType(def.of, &jsonschema.ForOptions{TypeSchemas: types})
		if err != nil {
			return nil, err
		}
		withoutNull(part)
		schema.Defs[def.name] = part
		schema.AnyOf = append(schema.AnyOf, &jsonschema.Schema{Ref: "#/$defs/" + def.name})
	}
	schema.Defs["apply"].Description = "of apply and discard"
	return schema, nil
}

// withoutNull takes away the null that a list or a pointer could be in Go, and what says that there
// is nothing else.
func withoutNull(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if len(s.Types) == 2 && s.Types[0] == "null" {
		s.Type, s.Types = s.Types[1], nil
	}
	s.AdditionalProperties = nil
	withoutNull(s.Items)
	for _, part := range s.Properties {
		withoutNull(part)
	}
}

// printed holds the last output of a script against a part of the schema of changes.
func printed(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: printed PART")
	}
	schema, err := schemaOfChanges()
	ts.Check(err)
	schema.AnyOf = nil
	schema.Ref = "#/$defs/" + args[0]
	strict(schema.Defs[args[0]])
	resolved, err := schema.Resolve(nil)
	ts.Check(err)
	var value any
	ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &value))
	ts.Check(resolved.Validate(value))
}

// strict has a schema refuse what it does not know.
func strict(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if s.Properties != nil {
		s.AdditionalProperties = &jsonschema.Schema{Not: &jsonschema.Schema{}}
	}
	strict(s.Items)
	for _, part := range s.Properties {
		strict(part)
	}
}

func TestTheSchemasAreUpToDate(t *testing.T) {
	ofChanges, err := schemaOfChanges()
	if err != nil {
		t.Fatal(err)
	}
	for path, schema := range map[string]*jsonschema.Schema{decisionSchema: schemaOfDecisions(t), changesSchema: ofChanges} {
		text, err := json.MarshalIndent(schema, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, '\n')
		if *update {
			if err := os.WriteFile(path, text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if stored, err := os.ReadFile(path); err != nil || !bytes.Equal(stored, text) {
			t.Errorf("%s is out of date (%v): go generate ./cmd/clai-sandboxd", path, err)
		}
	}
}

func TestWhatIsPrintedIsAsPublished(t *testing.T) {
	resolved, err := schemaOfDecisions(t).Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	command := func(args ...string) []byte {
		c := exec.Command(os.Args[0], args...)
		c.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home, asCommand+"=1")
		c.Dir = home
		out, err := c.Output()
		if _, exited := err.(*exec.ExitError); err != nil && !exited {
			t.Fatal(err)
		}
		return out
	}
	for _, line := range []string{"ls | wc", "ls $x", "sh -c 'ls; find . -exec rm {} +'", "sudo x", "python3 -c x", "cat <<E\nE", "nosuch", ""} {
		var value any
		out := command("explain", "--host", "gateway", "--json", "--", line)
		if err := json.Unmarshal(out, &value); err != nil {
			t.Errorf("%q prints %q: %v", line, out, err)
			continue
		}
		if err := resolved.Validate(value); err != nil {
			t.Errorf("%q: %.400v", line, err)
		}
	}
}
