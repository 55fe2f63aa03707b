package profile

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
)

// configSchema describes configFile. The types say it; what a text stands for, they cannot say.
func configSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	enum := func(names ...string) *jsonschema.Schema {
		s := &jsonschema.Schema{Type: "string"}
		for _, name := range names {
			s.Enum = append(s.Enum, name)
		}
		return s
	}
	schema, err := jsonschema.For[configFile](&jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[Access]():         enum(accessNames[1:]...),
		reflect.TypeFor[Network]():        enum(networkNames...),
		reflect.TypeFor[SessionBus]():     enum(sessionBusNames...),
		reflect.TypeFor[passedVariable](): {Type: "string", Description: "a variable's name"},
		reflect.TypeFor[setVariable]():    {Type: "string", Description: "the variable's value"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	schema.Schema = "https://json-schema.org/draft/2020-12/schema"
	schema.ID = "https://github.com/clairun/clai-sandbox/profile/config.schema.json"
	schema.Title = "clai-sandbox: configuration"
	noNull(schema)
	return schema
}

// noNull takes away that a pointer or a slice may be null: a configuration leaves out what it does not say.
func noNull(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	for _, kind := range s.Types {
		if kind != "null" {
			s.Type = kind
		}
	}
	s.Types = nil
	if s.Type == "integer" {
		s.Minimum = jsonschema.Ptr(0.0)
	}
	for _, property := range s.Properties {
		noNull(property)
	}
	noNull(s.Items)
	noNull(s.AdditionalProperties)
}

func TestConfigSchemaIsMadeFromTheTypes(t *testing.T) {
	text, err := json.MarshalIndent(configSchema(t), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, '\n')
	if *update {
		if err := os.WriteFile("config.schema.json", text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	published, err := os.ReadFile("config.schema.json")
	if err != nil || !bytes.Equal(published, text) {
		t.Errorf("config.schema.json is out of date (%v): go generate ./profile", err)
	}
}

func TestTheSchemaAndTheDecoderAgree(t *testing.T) {
	schema, err := configSchema(t).Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		`{}`: true,
		`{"$schema": "x", "defaults": {"execution": {"sandbox": {"network": "disabled", "sessionBus": "filtered", "nestedNamespaces": true}}}}`:       true,
		`{"agents": {"a": {"execution": {"filesystem": {"extraPaths": [{"path": "~/x", "access": "read_only"}]}, "limits": {"timeoutSeconds": 5}}}}}`: true,
		`{"agents": {"a": {"execution": {"environment": {"pass": ["A"], "set": {"B": "c"}}}}}}`:                                                       true,
		`{"agents": {"a": {"execution": {"filesystem": {"extraPaths": []}}}}}`:                                                                        true,
		`{"agent": {}}`: false,
		`{"defaults": {"execution": {"sandbox": {"network": "on"}}}}`:                                                  false,
		`{"defaults": {"execution": {"sandbox": {"network": null}}}}`:                                                  false,
		`{"defaults": {"execution": {"sandbox": {"extra": 1}}}}`:                                                       false,
		`{"defaults": {"execution": {"limits": {"timeoutSeconds": -1}}}}`:                                              false,
		`{"defaults": {"execution": {"limits": {"timeoutSeconds": 1.5}}}}`:                                             false,
		`{"defaults": {"execution": {"filesystem": {"extraPaths": [{"path": "/x", "access": "none"}]}}}}`:              false,
		`{"defaults": {"execution": {"filesystem": {"extraPaths": [{"path": "/x", "access": "read_only", "x": 1}]}}}}`: false,
		`{"defaults": {"execution": {"environment": {"set": {"A": 1}}}}}`:                                              false,
		`{"agents": []}`: false,
	} {
		var value any
		if err := json.Unmarshal([]byte(text), &value); err != nil {
			t.Fatal(err)
		}
		var c configFile
		bySchema, byDecoder := schema.Validate(value), decodeConfig("config.json", []byte(text), &c)
		if (bySchema == nil) != want || (byDecoder == nil) != want {
			t.Errorf("%s: schema says %v, decoder %v", text, bySchema, byDecoder)
		}
	}
}
