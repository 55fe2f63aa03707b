package profile

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
)

func TestTheManualsExampleIsValid(t *testing.T) {
	manual := readManual(t)
	examples := regexp.MustCompile("(?s)```jsonc\n(.*?)```").FindAllStringSubmatch(manual, -1)
	if len(examples) == 0 {
		t.Fatal("no example")
	}
	for _, example := range examples {
		config, err := load(t, "", example[1])
		if err != nil {
			t.Fatal(err)
		}
		for _, agent := range []string{"main", "reviewer", "other"} {
			if _, err := Resolve(config, caller(), Request{Agent: agent}); err != nil {
				t.Errorf("agent %s: %v", agent, err)
			}
		}
	}
}

func TestTheManualHasEveryKeyAndWord(t *testing.T) {
	manual := readManual(t)
	var check func(s *jsonschema.Schema)
	check = func(s *jsonschema.Schema) {
		for name, part := range s.Properties {
			if !strings.Contains(manual, name+"`") && !strings.Contains(manual, `"`+name+`"`) {
				t.Errorf("the key %s is not in the manual", name)
			}
			check(part)
		}
		for _, word := range s.Enum {
			if !strings.Contains(manual, "`"+word.(string)+"`") {
				t.Errorf("the word %s is not in the manual", word)
			}
		}
		if s.Items != nil {
			check(s.Items)
		}
		for _, part := range s.Defs {
			check(part)
		}
	}
	check(configSchema(t))
	for _, tree := range neverGrantable {
		if !strings.Contains(manual, "`"+tree+"`") {
			t.Errorf("%s is not in the manual", tree)
		}
	}
	for _, name := range append(append([]string{}, passedByDefault...), ownVariables...) {
		if !strings.Contains(manual, "`"+name+"`") {
			t.Errorf("%s is not in the manual", name)
		}
	}
}

func readManual(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../docs/config.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
