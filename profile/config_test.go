package profile

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"unicode"
	"unicode/utf8"
)

var update = flag.Bool("update", false, "write the generated files anew")

// load reads a system file and a user file; "" is none.
func load(t *testing.T, system, user string) (*Config, error) {
	t.Helper()
	dir := t.TempDir()
	d := Directories{SystemConfig: dir + "/etc", Config: dir + "/home"}
	for path, text := range map[string]string{d.SystemConfig: system, d.Config: user} {
		os.MkdirAll(path, 0o755)
		if text != "" {
			if err := os.WriteFile(filepath.Join(path, configName), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	return Load(d)
}

func TestAMistakeIsNamedWithItsKey(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`{"defaults": {"execution": {"sandbox": {"netwrk": "enabled"}}}}`,
			`config.json:1:41: defaults.execution.sandbox: unknown key "netwrk" (known: allowedDomains, deniedDomains, devices, image, mode, nestedNamespaces, network, prune, publish, scope, sessionBus, sessionBusNames, sshKeys, tools, upstreamDirect, upstreamProxy)`},
		{"{\n\"agent\": {}}", `config.json:2:1: unknown key "agent" (known: $schema, agents, defaults, enforced, session)`},
		{`{"agents": {"main": {"execution": {"sandbox": {"network": "on"}}}}}`,
			`config.json:1:59: agents.main.execution.sandbox.network: "on" is not disabled, enabled or filtered`},
		{`{"agents": {"main": {"execution": {"filesystem": {"extraPaths": [{"path": "/a", "access": "none"}]}}}}}`,
			`"none" is not read_only, copy_on_write or read_write`},
		{`{"agents": {"main": {"execution": {"limits": {"timeoutSeconds": -1}}}}}`, "must be a whole number from 0"},
		{`{"agents": {"main": {"execution": {"limits": {"timeoutSeconds": 1e3}}}}}`, "must be a whole number from 0"},
		{`{"agents": {"main": {"execution": {"limits": {"timeoutSeconds": 99999999999999999999}}}}}`, "must be a whole number from 0"},
		{`{"agents": {"main": {"execution": {"limits": {"timeoutSeconds": "5"}}}}}`, "must be a whole number"},
		{`{"agents": {"main": {"execution": {"sandbox": {"nestedNamespaces": "yes"}}}}}`, "must be true or false"},
		{`{"agents": {"main": {"execution": {"sandbox": {"nestedNamespaces": null}}}}}`, "must be true or false"},
		{`{"agents": {"main": {"execution": {"sandbox": null}}}}`, "must be an object"},
		{`{"agents": []}`, "agents: must be an object"},
		{`[]`, "must be an object"},
		{`null`, "must be an object"},
		{`{"agents": {"main": {"execution": {"filesystem": {"extraPaths": {}}}}}}`, "extraPaths: must be a list"},
		{`{"agents": {"main": {"execution": {"environment": {"pass": [1]}}}}}`, "environment.pass.0: must be a string"},
		{`{"defaults": {}, "defaults": {}}`, `1:18: key "defaults" stands twice`},
		{`{"agents": {"a b": {}}}`, `agents: agent "a b": a name is 1 to 64 of`},
		{`{"agents": {"..": {}}}`, `agents: agent ".."`},
		{`{"agents": {"": {}}}`, `agents: agent "": a name is`},
		{`{"agents": {"main": {"execution": {"limits": {"timeoutSeconds": 1.0}}}}}`, "must be a whole number from 0 to 2147483647, in digits"},
		{`{"agents": {"main": {"execution": {"limits": {"timeoutSeconds": 2147483648}}}}}`, "must be a whole number from 0"},
		{`{"agents": {"main": {"execution": {"limits": {"timeoutSeconds": {}}}}}}`, "must be a whole number from 0"},
		{`{"agents": {"main": {"execution": {"sandbox": {"nestedNamespaces": []}}}}}`, "must be true or false"},
		{`{"agents": {"main": {"execution": {"filesystem": {"extraPaths": [{"path": "/x"}]}}}}}`, `extraPaths.0: key "access" is missing`},
		{`{"agents": {"main": {"execution": {"filesystem": {"extraPaths": [{"access": "read_only"}]}}}}}`, `extraPaths.0: key "path" is missing`},
		{`{"agents": {"main": {"execution": {"filesystem": {"extraPaths": [{"path": "x", "access": "read_only"}]}}}}}`,
			`extraPaths.0.path: path "x": is relative; write the whole path, or ~/… for one below the home directory`},
		{`{"agents": {"main": {"execution": {"filesystem": {"extraPaths": [{"path": "~root/x", "access": "read_only"}]}}}}}`, "another user's home is not looked up"},
		{`{"agents": {"main": {"execution": {"filesystem": {"extraPaths": [{"path": "/a\u0000", "access": "read_only"}]}}}}}`, "holds a NUL byte"},
		{`{"agents": {"main": {"execution": {"filesystem": {"extraPaths": [{"path": "/a\ud800", "access": "read_only"}]}}}}}`, `extraPaths.0.path: holds U+FFFD, or half of a character`},
		{`{"defaults": {"execution": {"Sandbox": {}}}}`, `unknown key "Sandbox"`},
		{"{\"de\u202efaults\": {}}", `unknown key "de\u202efaults"`},
		{`{"` + strings.Repeat("k", 500) + `": {}}`, `unknown key "` + strings.Repeat("k", 80) + `"… (known`},
		{strings.Repeat("[", 40), "config.json:1:33: nested deeper than 32"},
		{strings.Repeat(`["]",`, 40), "config.json:1:161: nested deeper than 32"},
		{strings.Repeat("[/*]*/", 40), "nested deeper than 32"},
		{strings.Repeat("[//]\n", 40), "config.json:33:1: nested deeper than 32"},
		{"{}" + strings.Repeat(" ", maxConfigSize), "config.json: larger than 1048576 bytes"},
		{"{\n\"\xff\": 1}", "config.json:2:2: is not UTF-8"},
		{"\xff\xfe{\x00}\x00", "config.json:1:1: is not UTF-8"},
	} {
		_, err := load(t, "", c.text)
		var mistake *ConfigError
		if !errors.As(err, &mistake) || !strings.Contains(err.Error(), c.want) || !oneSafeLine(err.Error()) {
			t.Errorf("%.80q: %v, want %q", c.text, err, c.want)
		}
	}
}

func oneSafeLine(text string) bool {
	return utf8.ValidString(text) && strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) < 0 && len(text) < 1000
}

func TestANearMissIsAnsweredWithTheKeyThatWasMeant(t *testing.T) {
	for key, want := range map[string]string{"netwrk": "network", "Network": "network", "session_bus": "sessionBus", "session-bus": "sessionBus", "nestednamespace": "nestedNamespaces",
		"x": "", "colour": "", strings.Repeat("network", 20): ""} {
		_, err := load(t, "", `{"defaults": {"execution": {"sandbox": {"`+key+`": 1}}}}`)
		var mistake *ConfigError
		if !errors.As(err, &mistake) || (mistake.Hint != "" || want != "") && mistake.Hint != fmt.Sprintf("did you mean %q?", want) {
			t.Errorf("%s: %+v", key, mistake)
		}
	}
}

// everyKey is a file that has each key once.
const everyKey = `{"$schema": "s", "defaults": {}, "agents": {"a": {"execution": {"filesystem": {"extraPaths": [{"path": "/x", "access": "read_only", "explicit": true}], "hiddenPaths": ["~/y"], "protectedPaths": ["z"], "unprotectedPaths": [".vscode"]},
	"sandbox": {"network": "filtered", "allowedDomains": ["a.example"], "deniedDomains": ["b.example"], "sessionBus": "deny", "publish": ["3000", "8080:3001"], "devices": ["gpu", "kvm", "/dev/fuse"], "upstreamProxy": "environment", "upstreamDirect": ["a.example"], "sessionBusNames": ["a.b"], "nestedNamespaces": true}, "environment": {"pass": ["B"], "set": {"A": "v"}}, "limits": {"timeoutSeconds": 1, "memory": "2GiB", "processes": 100, "cpuSeconds": 60, "fileSize": "1GiB", "openFiles": 1024, "outputBytes": "16MiB"}, "changes": {"apply": ["src/**"], "ask": ["**"], "never": [".github/**"], "deletions": "ask"},
	"outside": {"host": "gateway", "security": "allowlist", "ask": "on-miss", "node": "n", "strictInlineEval": true, "safeBins": ["wc"],
	"safeBinProfiles": {"jq": {"minPositional": 0, "maxPositional": 1, "allowedValueFlags": ["--arg"], "booleanFlags": ["-r"], "deniedFlags": ["-f"]}}}}}}}`

func TestNullIsNeverAValue(t *testing.T) {
	if err := DecodeConfig("config.json", []byte(everyKey), &configFile{}); err != nil {
		t.Fatal(err)
	}
	var whole any
	if err := json.Unmarshal([]byte(everyKey), &whole); err != nil {
		t.Fatal(err)
	}
	tried := 0
	var try func(value any, set func(any))
	try = func(value any, set func(any)) {
		set(nil)
		text, _ := json.Marshal(whole)
		if err := DecodeConfig("config.json", text, &configFile{}); err == nil || !strings.Contains(err.Error(), "must be ") {
			t.Errorf("%s: %v", text, err)
		}
		tried++
		set(value)
		switch value := value.(type) {
		case map[string]any:
			for key, member := range value {
				try(member, func(v any) { value[key] = v })
			}
		case []any:
			for i, element := range value {
				try(element, func(v any) { value[i] = v })
			}
		}
	}
	try(whole, func(v any) { whole = v })
	if tried != 77 {
		t.Errorf("%d places for null", tried)
	}
}

// A mistake's whole text, with its line and column.
func TestAMistakeIsNamedWithItsPlace(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"a comma is missing": {"{\n  // comment\n  \"defaults\": {\n    \"execution\": {\n      \"sandbox\": {\n        \"network\": \"enabled\"\n        \"sessionBus\": \"deny\"\n}}}}",
			`config.json:7:9: syntax error: invalid character '"' after object value (expecting ',' or '}')`},
		"a bracket is missing":       {"{\n  \"defaults\": {\n", "config.json:3:1: syntax error: the file ends too early"},
		"and no line end":            {"{", "config.json:1:2: syntax error: the file ends too early"},
		"a quote is missing":         {"{\n  \"defaults: {},\n  \"agents\": {}\n}", `config.json:2:3: syntax error: a string stands on one line, and a backslash in it is written \\`},
		"no quotes":                  {"{defaults: {}}", "config.json:1:2: syntax error: neither a number nor true or false; text stands in double quotes"},
		"single quotes":              {"{'defaults': {}}", `config.json:1:2: syntax error: invalid character '\'' at start of value`},
		"a second value":             {"{}\n{}", `config.json:2:1: syntax error: invalid character '{' after top-level value`},
		"a byte order mark":          {"\ufeff{}", `config.json:1:1: syntax error: invalid character '\ufeff' at start of value`},
		"a control character":        {"{\x1b}", `config.json:1:2: syntax error: invalid character '\u001b' at start of value`},
		"a comment without end":      {"{} /*", "config.json:1:4: syntax error: the file ends too early"},
		"carriage returns":           {"{\r\n\"agent\": 1}", `config.json:2:1: unknown key "agent" (known: $schema, agents, defaults, enforced, session)`},
		"a column in bytes":          {`{"$schema": "ä", "x": 1}`, `config.json:1:19: unknown key "x" (known: $schema, agents, defaults, enforced, session)`},
		"a number of another kind":   {"{\"defaults\": 01}", "config.json:1:14: syntax error: neither a number nor true or false; text stands in double quotes"},
		"a value of the wrong type":  {"{\n\"defaults\": {\n\"execution\":\n\n 7}}", "config.json:5:2: defaults.execution: must be an object"},
		"a denied variable, to pass": {"{\"defaults\": {\"execution\": {\"environment\": {\"pass\": [\n\"A\",\n\"SSH_AUTH_SOCK\"]}}}}", `config.json:3:1: defaults.execution.environment.pass.1: variable "SSH_AUTH_SOCK": refused: it leads to the caller's ssh keys`},
	} {
		err := DecodeConfig("config.json", []byte(c.text), &configFile{})
		if err == nil || err.Error() != c.want || !oneSafeLine(err.Error()) {
			t.Errorf("%s:\n%v, want\n%s", name, err, c.want)
		}
	}
}

func TestAFilesNameDoesNotReachTheTerminalAsItIs(t *testing.T) {
	for _, text := range []string{"{", "x", "[]", strings.Repeat("[", 99)} {
		if err := DecodeConfig("/a\x1b[2J\n/config.json", []byte(text), &configFile{}); err == nil || !oneSafeLine(err.Error()) {
			t.Errorf("%q", err)
		}
	}
}

func TestNoErrorHoldsAValueOfTheEnvironment(t *testing.T) {
	for _, environment := range []string{
		`"set": {"A": "s3cret\q"}`, `"set": {"A": s3cret}`, `"set": {"A": "s3cret}`, `"set": {"A": ["s3cret"]}`, `"set": {"A": "s3cret\u0000"}`, `"set": {"A": "s3cret\ud800"}`,
		`"set": {"LD_PRELOAD": "s3cret"}`, `"set": {"HOME": "s3cret"}`, `"set": {"A B": "s3cret"}`, `"set": {"A=s3cret": ""}`, `"pass": ["A=s3cret"]`, `"set": {"A": "s3cret" "B": ""}`,
		`"set": {"A": "s3cret` + strings.Repeat("x", 128<<10) + `"}`,
	} {
		_, err := load(t, "", `{"defaults": {"execution": {"environment": {`+environment+`}}}}`)
		if err == nil || strings.Contains(err.Error(), "s3cret") || !oneSafeLine(err.Error()) {
			t.Errorf("%.80s: %v", environment, err)
		}
	}
}

func TestCommentsAndTrailingCommasAreFine(t *testing.T) {
	for _, text := range []string{"", "  \n", "{}", "// nothing\n{}", "// nothing", "/* nothing */\n", "{} // the end", `{
		// what all agents may
		"defaults": {"execution": {"sandbox": {"network": "disabled",},},}, /* end */
	}`} {
		if _, err := load(t, "", text); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestAFileThatOthersCanWriteIsRefused(t *testing.T) {
	dir := t.TempDir()
	path := dir + "/" + configName
	d := Directories{Config: dir}
	for _, mode := range []os.FileMode{0o666, 0o664, 0o646} {
		os.WriteFile(path, []byte("{}"), 0o600)
		os.Chmod(path, mode)
		if _, err := Load(d); err == nil || !strings.Contains(err.Error(), "chmod go-w") {
			t.Errorf("%o: %v", mode, err)
		}
	}
	os.Remove(path)
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(d); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a named pipe: %v", err)
	}
	os.Remove(path)
	os.Mkdir(path, 0o700)
	if _, err := Load(d); err == nil {
		t.Error("a directory was read")
	}
	os.Remove(path)
	for target, why := range map[string]string{"nowhere": "a symbolic link that leads nowhere", configName: "too many levels of symbolic links", "/dev/null": "not a regular file", "/dev/tty": ""} {
		os.Symlink(target, path)
		if _, err := Load(d); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("a link to %s: %v", target, err)
		}
		os.Remove(path)
	}
	if listener, err := net.Listen("unix", path); err != nil {
		t.Fatal(err)
	} else if _, err := Load(d); err == nil {
		t.Error("a socket was read")
	} else {
		listener.Close()
	}
	os.Remove(path)
	if _, err := Load(Directories{Config: dir + "/file/below"}); err != nil {
		t.Errorf("a directory that is not there: %v", err)
	}
	os.WriteFile(dir+"/file", nil, 0o600)
	if _, err := Load(Directories{Config: dir + "/file"}); err == nil {
		t.Error("a file in place of the directory was taken for none")
	}
	if os.Getuid() == 0 {
		os.WriteFile(path, []byte("{}"), 0o600)
		os.Chown(path, 4321, 4321)
		if _, err := Load(d); err == nil || !strings.Contains(err.Error(), "belongs to user 4321") {
			t.Errorf("another's file: %v", err)
		}
	} else {
		os.WriteFile(path, []byte("{}"), 0o000)
		if _, err := Load(d); err == nil {
			t.Error("an unreadable file was taken for none")
		}
	}
}

func TestALinkToAFileOfOnesOwnIsFollowed(t *testing.T) {
	dir := t.TempDir()
	os.WriteFile(dir+"/dotfiles.json", []byte(`{"defaults": {"execution": {"sandbox": {"network": "disabled"}}}}`), 0o600)
	os.Symlink("dotfiles.json", dir+"/"+configName)
	config, err := Load(Directories{Config: dir})
	if err != nil {
		t.Fatal(err)
	}
	if p, err := Resolve(config, caller(), Request{}); err != nil || p.Network != NetworkDisabled {
		t.Errorf("%v, %v", p.Network, err)
	}
	os.Chmod(dir+"/dotfiles.json", 0o666)
	if _, err := Load(Directories{Config: dir}); err == nil {
		t.Error("others can write what the link leads to")
	}
}

func TestListsAreReplacedAndSetVariablesAreJoined(t *testing.T) {
	layer := func(pass, a, b string) string {
		return fmt.Sprintf(`{"execution": {"filesystem": {"extraPaths": [{"path": "/%s", "access": "read_only"}]}, "environment": {"pass": [%q], "set": {%q: %q, "ALL": %q}}}}`, pass, pass, a, b, b)
	}
	system := `{"defaults": ` + layer("ONE", "A", "1") + `, "agents": {"main": ` + layer("TWO", "B", "2") + `}}`
	user := `{"defaults": ` + layer("THREE", "C", "3") + `, "agents": {"main": ` + layer("FOUR", "A", "4") + `, "other": ` + layer("FIVE", "X", "5") + `}}`
	config, err := load(t, system, user)
	if err != nil {
		t.Fatal(err)
	}
	who := caller()
	who.Environ = []string{"PATH=/bin", "ONE=1", "TWO=2", "THREE=3", "FOUR=4", "FIVE=5"}
	p, err := Resolve(config, who, Request{})
	if want := "A=4 ALL=4 B=2 C=3 FOUR=4 HOME=/home/u LOGNAME=u PATH=/bin SHELL=/bin/bash USER=u"; err != nil || environmentOf(p) != want {
		t.Errorf("%s, %v", environmentOf(p), err)
	}
	if want := "/FOUR read_only config, /home/u/work read_write workspace"; grantsOf(p) != want {
		t.Error(grantsOf(p))
	}
}

func TestASettingKnowsItsFileAndLine(t *testing.T) {
	var c configFile
	if err := DecodeConfig("/c.json", []byte("{\n\"agents\": {\"main\": {\"execution\": {\n\"filesystem\": {\"extraPaths\": [\n\n{\"path\": \"~/x\", \"access\": \"read_write\"}]},\n\"environment\": {\"pass\": [\"SECRET\"], \"set\": {\n\"A\": \"1\"}}}}}}"), &c); err != nil {
		t.Fatal(err)
	}
	p, err := Resolve(&Config{layers: []configFile{c}}, caller(), Request{Environment: []string{"B=2"}})
	if err != nil {
		t.Fatal(err)
	}
	if p.Grants[0].Origin.String() != "config /c.json:5" {
		t.Error(p.Grants[0].Origin)
	}
	want := map[string]string{"SECRET": "config /c.json:6", "A": "config /c.json:7", "B": "flag --env", "PATH": "baseline", "HOME": "baseline"}
	for _, v := range p.Environment {
		if origin := want[v.Name]; origin != "" && v.Origin.String() != origin {
			t.Errorf("%s comes from %s", v.Name, v.Origin)
		}
	}
}

func TestTheMoreSpecificSettingDecides(t *testing.T) {
	agent := func(name, sandbox string) string {
		return fmt.Sprintf(`"agents": {%q: {"execution": {"sandbox": {%s}}}}`, name, sandbox)
	}
	defaults := func(sandbox string) string {
		return fmt.Sprintf(`"defaults": {"execution": {"sandbox": {%s}}}`, sandbox)
	}
	off, on := `"network": "disabled"`, `"network": "enabled"`
	for name, c := range map[string]struct {
		system, user string
		want         Network
	}{
		"nothing said":                        {"", "", NetworkEnabled},
		"system defaults":                     {"{" + defaults(off) + "}", "", NetworkDisabled},
		"system agent over its defaults":      {"{" + defaults(on) + "," + agent("main", off) + "}", "", NetworkDisabled},
		"user defaults over system agent":     {"{" + agent("main", on) + "}", "{" + defaults(off) + "}", NetworkDisabled},
		"user agent over user defaults":       {"", "{" + defaults(on) + "," + agent("main", off) + "}", NetworkDisabled},
		"another agent's":                     {"", "{" + agent("other", off) + "}", NetworkEnabled},
		"a user file that says nothing of it": {"{" + defaults(off) + "}", `{"defaults": {"execution": {"sandbox": {"sessionBus": "deny"}}}}`, NetworkDisabled},
	} {
		config, err := load(t, c.system, c.user)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		p, err := Resolve(config, caller(), Request{})
		if err != nil || p.Network != c.want {
			t.Errorf("%s: %v, %v", name, p.Network, err)
		}
	}
}

func FuzzConfig(f *testing.F) {
	f.Add([]byte(`{"defaults": {"execution": {"filesystem": {"extraPaths": [{"path": "~/x", "access": "read_only"}]}}}}`))
	f.Add([]byte(`{"agents": {"a": {"execution": {"environment": {"pass": ["A"], "set": {"B": "c"}}, "limits": {"timeoutSeconds": 5}}}}}`))
	f.Add([]byte("// c\n{\"$schema\": 1,}"))
	f.Add([]byte(everyKey))
	f.Add([]byte("{\"agents\": {\"a\": {\"execution\": {/* c */}, }, // d\n}}"))
	f.Add([]byte("[[[[{\"\\ud800\": 1e999}]]]]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var c configFile
		err := DecodeConfig("config.json", text, &c)
		if err != nil {
			mistake, ok := err.(*ConfigError)
			if !ok {
				t.Fatalf("%T: %v", err, err)
			}
			lines := strings.Split(string(text), "\n")
			if mistake.Line < 1 || mistake.Line > len(lines) || mistake.Column < 1 || mistake.Column > len(lines[mistake.Line-1])+1 {
				t.Errorf("line %d, column %d of %q", mistake.Line, mistake.Column, text)
			}
			if !oneSafeLine(err.Error()) {
				t.Errorf("the message is more than a line of text: %q", err)
			}
			return
		}
		for id, agent := range c.Agents {
			if CheckAgent(id) != nil {
				t.Errorf("agent %q", id)
			}
			checkExecution(t, agent.Execution)
			if _, err := Resolve(&Config{layers: []configFile{c}}, caller(), Request{Agent: id}); err != nil && !oneSafeLine(err.Error()) {
				t.Errorf("the message is more than a line of text: %q", err)
			}
		}
		checkExecution(t, c.Defaults.Execution)
	})
}

// checkExecution holds what was read to valid values.
func checkExecution(t *testing.T, e executionConfig) {
	if e.Filesystem.ExtraPaths != nil {
		for _, extra := range *e.Filesystem.ExtraPaths {
			if _, err := ExpandPath(string(extra.Path), "/h"); err != nil || extra.Access != ReadOnly && extra.Access != ReadWrite || extra.origin.Kind != OriginConfig {
				t.Errorf("%+v, %v", extra, err)
			}
		}
	}
	if n := e.Sandbox.Network; n != nil && *n > NetworkFiltered {
		t.Error(*n)
	}
	for _, list := range []*[]DomainRule{e.Sandbox.AllowedDomains, e.Sandbox.DeniedDomains} {
		if list == nil {
			continue
		}
		for _, r := range *list {
			if again, err := ParseDomainRule(r.String()); err != nil || r.Origin.Kind != OriginConfig || again.String() != r.String() {
				t.Errorf("%+v, %v", r, err)
			}
		}
	}
	if b := e.Sandbox.SessionBus; b != nil && *b > SessionBusAllow {
		t.Error(*b)
	}
	if e.Environment.Pass != nil {
		for _, v := range *e.Environment.Pass {
			if CheckVariable(v.name) != nil {
				t.Errorf("%q", v.name)
			}
		}
	}
	for name, v := range e.Environment.Set {
		if CheckVariable(name) != nil || strings.IndexByte(v.value, 0) >= 0 {
			t.Errorf("%q", name)
		}
	}
	if e.Sandbox.SessionBusNames != nil {
		for _, name := range *e.Sandbox.SessionBusNames {
			if !regexp.MustCompile(`^[\w-]+(\.[\w-]+)+(\.\*)?$`).MatchString(string(name)) {
				t.Errorf("%q", name)
			}
		}
	}
	if n := e.Limits.TimeoutSeconds; n != nil && (*n < 0 || *n > 1<<31-1) {
		t.Error(*n)
	}
	p := Profile{}
	if err := p.resolveLimits(e.Limits, Request{}); err != nil {
		t.Error(err)
	}
	for i, n := range p.Limits.Amounts {
		if err := Limit(i).check(n); err != nil {
			t.Errorf("%s: %d %v", Limit(i), n, err)
		}
	}
}
