package policy

import (
	"encoding/json"
	"reflect"
	"testing"
)

func TestWhatOthersKeepInAnEntryStays(t *testing.T) {
	for _, text := range []string{
		`{"pattern":"/usr/bin/rg","note":"mine <b>","nested":{"a":[1,2]}}`,
		`{"id":"x","pattern":"/bin/ls","lastUsedAt":5,"zeta":null}`,
		`{"pattern":"/bin/ls"}`,
	} {
		var e, again Entry
		if err := json.Unmarshal([]byte(text), &e); err != nil {
			t.Fatal(err)
		}
		out, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		var want, got map[string]any
		if json.Unmarshal([]byte(text), &want) != nil || json.Unmarshal(out, &got) != nil || !reflect.DeepEqual(want, got) {
			t.Errorf("%s became %s", text, out)
		}
		if err := json.Unmarshal(out, &again); err != nil || again != e {
			t.Errorf("%+v, %v", again, err)
		}
	}
}
