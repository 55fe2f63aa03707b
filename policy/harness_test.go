package policy

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// The harness tries every case with each of its fields null, and of another type: it must survive
// files that it has never seen.
func TestTheHarnessSurvivesOddCases(t *testing.T) {
	names, _ := filepath.Glob(filepath.Join(casesDirectory, "*.json"))
	if len(names) == 0 {
		t.Skipf("no behaviour cases in %s", casesDirectory)
	}
	layout := readLayout(t, casesDirectory)
	for _, name := range names {
		base := filepath.Base(name)
		try := caseTests[base[:len(base)-len(".json")]]
		if try == nil {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var file caseFile
		if err := json.Unmarshal(text, &file); err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(file.Cases); i += max(1, len(file.Cases)/6) {
			var input map[string]json.RawMessage
			if json.Unmarshal(file.Cases[i].Input, &input) != nil {
				continue
			}
			for field := range input {
				for _, odd := range []string{"null", "1", `"x"`, "[]", "{}", "true"} {
					changed := map[string]json.RawMessage{}
					for n, v := range input {
						changed[n] = v
					}
					changed[field] = json.RawMessage(odd)
					c := file.Cases[i]
					c.Input, _ = json.Marshal(changed)
					t.Run(base, func(t *testing.T) { tried(try, &trial{t, c, map[string]string{}, layout}) })
				}
			}
		}
	}
}
