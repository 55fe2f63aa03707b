package profile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestKnownMistakesAreMended(t *testing.T) {
	for _, c := range []struct{ text, want, keys string }{
		{`{}`, `{}`, ""},
		{`{"agents": {"a": {"execution": {"sandbox": {"mode": "all", "tools": {"allow": [ /* none */ ]}}}}}}`,
			`{"agents": {"a": {"execution": {"sandbox": {"mode": "all", "tools": {"allow": ["*"]}}}}}}` + "\n", "agents.a.execution.sandbox.tools.allow"},
		{`{"defaults": {"execution": {"tools": {"allow": []}}}} // x`, `{"defaults": {"execution": {"tools": {"allow": ["*"]}}}} // x` + "\n", "defaults.execution.tools.allow"},
		{`{"defaults": {"execution": {"tools": {"allow": ["read"], "alsoAllow": [], "deny": []}}}}`, "=", ""},
		{`{"agnets": {"a.b": {"execution": {"sandbox": {"netwrok": "disabled"}}}}}`,
			`{"agents": {"a.b": {"execution": {"sandbox": {"network": "disabled"}}}}}` + "\n", "agnets agents.a.b.execution.sandbox.netwrok"},
		{`{"agents": {"default": {}}}`, `{"agents": {"main": {}}}` + "\n", "agents.default"},
		{`{"agents": {"default": {}, "main": {}}}`, "=", ""},
		{`{"agents": {}, "agnets": {}}`, "=", ""},
		{`{"agents": {"a": {"execution": {"sandbox": {"network": "open"}}}}}`, "=", ""},
		{`{"something": 1}`, "=", ""},
		{`{`, "=", ""},
	} {
		list, repaired := ConfigText{Path: "config.json", Text: []byte(c.text)}.Repairs()
		var keys []string
		for _, r := range list {
			keys = append(keys, r.Key)
		}
		if c.want == "=" {
			c.want = c.text
		}
		if string(repaired) != c.want || strings.Join(keys, " ") != c.keys {
			t.Errorf("%s: %s, %q", c.text, repaired, keys)
		}
		if again, _ := (ConfigText{Path: "config.json", Text: repaired}).Repairs(); len(again) > 0 {
			t.Errorf("%s: mended again: %+v", c.text, again)
		}
	}
}

func TestARepairKeepsTheFileAsItWas(t *testing.T) {
	d := Directories{Config: t.TempDir()}
	os.Chmod(d.Config, 0o700)
	path := filepath.Join(d.Config, "config.json")
	const wrong = "// mine\n{\"agnets\": {}}\n"
	os.WriteFile(path, []byte(wrong), 0o600)
	list, backup, err := RepairConfig(d, time.Now())
	was, _ := os.ReadFile(backup)
	is, _ := os.ReadFile(path)
	if err != nil || len(list) != 1 || string(was) != wrong || string(is) != "// mine\n{\"agents\": {}}\n" {
		t.Errorf("%v, %v, %s, %s", err, list, was, is)
	}
	if list, backup, err = RepairConfig(d, time.Now()); err != nil || len(list) != 0 || backup != "" {
		t.Errorf("again: %v, %s, %v", list, backup, err)
	}
	os.WriteFile(path, []byte("{\"agnets\": {}, \"x\": 1}\n"), 0o600)
	if _, _, err := RepairConfig(d, time.Now().Add(time.Second)); err == nil {
		t.Error("a file that is no configuration afterwards was written")
	}
	if left, _ := filepath.Glob(path + ".before*"); len(left) != 1 {
		t.Errorf("left: %q", left)
	}
}
