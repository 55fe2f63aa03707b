package profile

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
)

// configSchema describes the configuration file, from the types that it is read into.
func configSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	words := func(names []string) *jsonschema.Schema {
		s := &jsonschema.Schema{Type: "string"}
		for _, name := range names {
			s.Enum = append(s.Enum, name)
		}
		return s
	}
	const variableName = "^[A-Za-z_][A-Za-z0-9_]*$"
	const programName = "^[A-Za-z0-9._+-]{1,64}$"
	const busNames = `^[A-Za-z_-][A-Za-z0-9_-]*(\.[A-Za-z_-][A-Za-z0-9_-]*)+(\.\*)?$`
	const domainRule = `^(\*|(\*\.)?[^\s*/:@?#\[\]]+|[0-9.]+/[0-9]+|[0-9A-Fa-f:.]+(/[0-9]+)?|\[[0-9A-Fa-f:.]+(/[0-9]+)?\])(:[1-9][0-9]{0,4})?$`
	const publishedPort = `^[1-9][0-9]{0,4}(:[1-9][0-9]{0,4})?$`
	size := &jsonschema.Schema{Type: "string", Pattern: "^[0-9]+([KMGT]iB)?$"}
	count := func(l Limit) *jsonschema.Schema {
		least, most := float64(limitTable[l].least), float64(limitTable[l].most)
		return &jsonschema.Schema{Type: "integer", AnyOf: []*jsonschema.Schema{{Const: new(any(0))}, {Minimum: &least, Maximum: &most}}}
	}
	types := map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[Access]():          words(accessNames[1:]),
		reflect.TypeFor[modeConfig]():      words(modeNames),
		reflect.TypeFor[scopeConfig]():     words(scopeNames),
		reflect.TypeFor[workspaceAccess](): words(accessNames),
		reflect.TypeFor[workspacePath]():   {Type: "string", Pattern: "^(/|~/|~$)"},
		reflect.TypeFor[mainKey]():         {Type: "string", MinLength: new(1), MaxLength: new(maxSessionKey)},
		reflect.TypeFor[sessionScope]():    words(sessionScopes),
		reflect.TypeFor[homeConfig]():      words(homeNames),
		reflect.TypeFor[Caches]():          words(cachesNames),
		reflect.TypeFor[ProtectMode]():     words(protectModeNames),
		reflect.TypeFor[Network]():         words(networkNames),
		reflect.TypeFor[SessionBus]():      words(sessionBusNames),
		reflect.TypeFor[typedPath]():       {Type: "string", Pattern: "^(/|~/|~$)"},
		reflect.TypeFor[hiddenPath]():      {Type: "string", Pattern: "^(/|~/|~$)"},
		reflect.TypeFor[expression]():      {Type: "string", MaxLength: new(maxExpression)},
		reflect.TypeFor[toolName]():        {Type: "string", Pattern: "^[A-Za-z0-9_.:*-]{1,64}$"},
		reflect.TypeFor[toolProfile]():     words(toolProfiles),
		reflect.TypeFor[protectedName]():   {Type: "string", Pattern: "^[^/~]"},
		reflect.TypeFor[changePattern]():   {Type: "string", Pattern: "^[^/~]", MaxLength: new(maxChangePattern)},
		reflect.TypeFor[Deletions]():       words(deletionNames),
		reflect.TypeFor[busName]():         {Type: "string", Pattern: busNames, MaxLength: new(255)},
		reflect.TypeFor[DomainRule]():      {Type: "string", Pattern: domainRule, MaxLength: new(maxRuleBytes)},
		reflect.TypeFor[upstreamChoice]():  {Type: "string", Pattern: "^(none|environment|http://.+)$", MaxLength: new(2000)},
		reflect.TypeFor[PublishedPort]():   {Type: "string", Pattern: publishedPort, MaxLength: new(11)},
		reflect.TypeFor[deviceName]():      {Type: "string", Pattern: "^(gpu|kvm|/dev/[^\\x00-\\x1f]+)$", MaxLength: new(255)},
		reflect.TypeFor[sshKeyName]():      {Type: "string", Pattern: "^[^\\x00-\\x1f]+$"},
		reflect.TypeFor[sshHostConfig]():   {Type: "string", Pattern: "^([!-?A-~]+@)?[^\\s@/]+$"},
		reflect.TypeFor[passedVariable]():  {Type: "string", Pattern: variableName},
		reflect.TypeFor[setVariable]():     {Type: "string"},
		reflect.TypeFor[memoryLimit]():     size,
		reflect.TypeFor[fileSizeLimit]():   size,
		reflect.TypeFor[outputLimit]():     size,
		reflect.TypeFor[processLimit]():    count(LimitProcesses),
		reflect.TypeFor[cpuLimit]():        count(LimitCPU),
		reflect.TypeFor[cpuPercentLimit](): count(LimitCPUPercent),
		reflect.TypeFor[openFilesLimit]():  count(LimitOpenFiles),
		reflect.TypeFor[outsideHost]():     words(outsideHosts),
		reflect.TypeFor[outsideSecurity](): words(outsideSecurities),
		reflect.TypeFor[outsideAsk]():      words(outsideAsks),
		reflect.TypeFor[safeBin]():         {Type: "string", Pattern: programName},
	}
	types[reflect.TypeFor[onlyFalse]()] = &jsonschema.Schema{Type: "boolean", Const: new(any(false))}
	agent, err := jsonschema.For[agentConfig](&jsonschema.ForOptions{TypeSchemas: types})
	if err != nil {
		t.Fatal(err)
	}
	types[reflect.TypeFor[agentConfig]()] = &jsonschema.Schema{Ref: "#/$defs/agent"}
	schema, err := jsonschema.For[configFile](&jsonschema.ForOptions{TypeSchemas: types})
	if err != nil {
		t.Fatal(err)
	}
	schema.Schema = "https://json-schema.org/draft/2020-12/schema"
	schema.ID = "https://github.com/clairun/clai-sandbox/profile/config.schema.json"
	schema.Title = "clai-sandbox configuration"
	schema.Description = "what the commands of each agent may see and do; docs/config.md explains it"
	schema.Defs = map[string]*jsonschema.Schema{"agent": agent}
	schema.Properties["agents"].PropertyNames = &jsonschema.Schema{Pattern: "^[A-Za-z0-9._-]{1,64}$", Not: &jsonschema.Schema{Const: new(any("default"))}}
	execution := agent.Properties["execution"].Properties
	execution["environment"].Properties["set"].PropertyNames = &jsonschema.Schema{Pattern: variableName}
	execution["outside"].Properties["safeBinProfiles"].PropertyNames = &jsonschema.Schema{Pattern: programName}
	enforced := schema.Properties["enforced"].Properties
	for _, limits := range []*jsonschema.Schema{execution["limits"], enforced["limits"]} {
		timeout := limits.Properties["timeoutSeconds"]
		timeout.Minimum, timeout.Maximum = new(0.0), new(float64(1<<31-1))
	}
	sandbox := execution["sandbox"].Properties
	for _, number := range sandbox["prune"].Properties {
		number.Minimum, number.Maximum = new(0.0), new(float64(maxPrune))
	}
	for _, list := range []string{"apply", "ask", "never"} {
		execution["changes"].Properties[list].MaxItems = new(maxChangePatterns)
	}
	for _, list := range []string{"allowedDomains", "deniedDomains"} {
		sandbox[list].MaxItems = new(MaxDomains)
	}
	enforced["sandbox"].Properties["deniedDomains"].MaxItems = new(MaxDomains)
	withoutNull(schema)
	return schema
}

// withoutNull takes away the null that a pointer or a list could be in Go.
func withoutNull(s *jsonschema.Schema) {
	if len(s.Types) == 2 && s.Types[0] == "null" {
		s.Type, s.Types = s.Types[1], nil
	}
	for _, part := range s.Properties {
		withoutNull(part)
	}
	for _, part := range s.Defs {
		withoutNull(part)
	}
	for _, part := range []*jsonschema.Schema{s.Items, s.AdditionalProperties} {
		if part != nil {
			withoutNull(part)
		}
	}
}

func TestConfigSchemaIsUpToDate(t *testing.T) {
	const path = "config.schema.json"
	text, err := json.MarshalIndent(configSchema(t), "", "  ")
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
		t.Errorf("%s is out of date (%v): go generate ./profile", path, err)
	}
}

func TestConfigSchemaAndDecoderAgree(t *testing.T) {
	schema, err := configSchema(t).Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	execution := func(part string) string { return `{"agents": {"main": {"execution": {` + part + `}}}}` }
	for text, good := range map[string]bool{
		everyKey:               true,
		`{}`:                   true,
		`[]`:                   false,
		`"x"`:                  false,
		`null`:                 false,
		`{"$schema": 1}`:       false,
		`{"agent": {}}`:        false,
		`{"Agents": {}}`:       false,
		`{"agents": {}}`:       true,
		`{"agents": null}`:     false,
		`{"agents": {"a": 1}}`: false,
		`{"agents": {"a.b-c_D1": {}, "..x": {}}}`:      true,
		`{"agents": {"a b": {}}}`:                      false,
		`{"agents": {"": {}}}`:                         false,
		`{"agents": {"a": {"network": "enabled"}}}`:    false,
		`{"defaults": {"execution": {}}}`:              true,
		`{"defaults": {"execution": null}}`:            false,
		`{"defaults": {"sandbox": {}}}`:                false,
		execution(`"sandbox": {}`):                     true,
		execution(`"sandbox": {"network": "enabled"}`): true,
		execution(`"sandbox": {"network": "Enabled"}`): false,
		execution(`"sandbox": {"network": "filtered", "allowedDomains": [], "deniedDomains": []}`):                             true,
		execution(`"sandbox": {"allowedDomains": ["a.example", "*.b.example:443", "*", "*:80", "Bücher.example"]}`):            true,
		execution(`"sandbox": {"allowedDomains": ["192.0.2.7", "192.0.2.7:22", "192.0.2.0/24", "192.0.2.0/24:443"]}`):          true,
		execution(`"sandbox": {"allowedDomains": ["2001:db8::1", "2001:db8::/32", "[2001:db8::1]:1", "[2001:db8::/32]:443"]}`): true,
		execution(`"sandbox": {"allowedDomains": "a.example"}`):                                                                false,
		execution(`"sandbox": {"allowedDomains": null}`):                                                                       false,
		execution(`"sandbox": {"allowedDomains": [1]}`):                                                                        false,
		execution(`"sandbox": {"allowedDomains": [""]}`):                                                                       false,
		execution(`"sandbox": {"deniedDomains": ["https://a.example/"]}`):                                                      false,
		execution(`"sandbox": {"deniedDomains": ["a*.example"]}`):                                                              false,
		execution(`"sandbox": {"deniedDomains": ["a.example:"]}`):                                                              false,
		execution(`"sandbox": {"deniedDomains": ["a.example:0"]}`):                                                             false,
		execution(`"sandbox": {"deniedDomains": ["a .example"]}`):                                                              false,
		execution(`"sandbox": {"network": true}`):                                                                              false,
		execution(`"sandbox": {"network": null}`):                                                                              false,
		execution(`"sandbox": {"sessionBus": "allow"}`):                                                                        true,
		execution(`"sandbox": {"sessionBus": "full"}`):                                                                         false,
		execution(`"sandbox": {"sessionBusNames": ["a.b.*"]}`):                                                                 true,
		execution(`"sandbox": {"sessionBusNames": [1]}`):                                                                       false,
		execution(`"sandbox": {"sessionBusNames": ["org.x-y_z.N1"]}`):                                                          true,
		execution(`"sandbox": {"sessionBusNames": ["org.*"]}`):                                                                 false,
		execution(`"sandbox": {"sessionBusNames": ["*"]}`):                                                                     false,
		execution(`"sandbox": {"sessionBusNames": [":1.5"]}`):                                                                  false,
		execution(`"sandbox": {"sessionBusNames": ["a..b"]}`):                                                                  false,
		execution(`"sandbox": {"sessionBusNames": ["a.1b"]}`):                                                                  false,
		execution(`"sandbox": {"sessionBusNames": ["a.b.*.*"]}`):                                                               false,
		execution(`"sandbox": {"sessionBusNames": ["a.` + strings.Repeat("b", 254) + `"]}`):                                    false,
		execution(`"sandbox": {"nestedNamespaces": false}`):                                                                    true,
		execution(`"sandbox": {"nestedNamespaces": 0}`):                                                                        false,
		execution(`"sandbox": {"nestedNamespaces": "false"}`):                                                                  false,
		execution(`"filesystem": {"extraPaths": []}`):                                                                          true,
		execution(`"filesystem": {"extraPaths": null}`):                                                                        false,
		execution(`"filesystem": {"extraPaths": ["/x"]}`):                                                                      false,
		execution(`"filesystem": {"extraPaths": [{"path": "/x"}]}`):                                                            false,
		execution(`"filesystem": {"extraPaths": [{"access": "read_only"}]}`):                                                   false,
		execution(`"filesystem": {"extraPaths": [{"path": "~", "access": "read_only"}]}`):                                      true,
		execution(`"filesystem": {"extraPaths": [{"path": "~/x", "access": "read_write"}]}`):                                   true,
		execution(`"filesystem": {"extraPaths": [{"path": "x", "access": "read_only"}]}`):                                      false,
		execution(`"filesystem": {"extraPaths": [{"path": "~x", "access": "read_only"}]}`):                                     false,
		execution(`"filesystem": {"extraPaths": [{"path": "", "access": "read_only"}]}`):                                       false,
		execution(`"filesystem": {"extraPaths": [{"path": 1, "access": "read_only"}]}`):                                        false,
		execution(`"filesystem": {"extraPaths": [{"path": "/x", "access": "none"}]}`):                                          false,
		execution(`"filesystem": {"extraPaths": [{"path": "/x", "access": "rw"}]}`):                                            false,
		execution(`"filesystem": {"extraPaths": [{"path": "/x", "access": "read_only", "origin": "system"}]}`):                 false,
		execution(`"filesystem": {"workspaceAccess": "none", "home": "private"}`):                                              true,
		execution(`"filesystem": {"workspaceAccess": "cow"}`):                                                                  false,
		execution(`"filesystem": {"workspaceAccess": "write"}`):                                                                false,
		execution(`"filesystem": {"home": "none"}`):                                                                            false,
		execution(`"sandbox": {"mode": "non-main", "scope": "session", "prune": {"idleHours": 0, "maxAgeDays": 7}}`):           true,
		execution(`"sandbox": {"mode": "non_main"}`):                                                                           false,
		execution(`"sandbox": {"scope": "global"}`):                                                                            false,
		execution(`"sandbox": {"prune": {"idleHours": -1}}`):                                                                   false,
		`{"session": {"mainKey": "work", "scope": "global"}}`:                                                                  true,
		`{"session": {"mainKey": ""}}`:                                                                                         false,
		`{"session": {"scope": "all"}}`:                                                                                        false,
		`{"agents": {"default": {}}}`:                                                                                          false,
		`{"agents": {"a": {"workspace": "~/a", "skipBootstrap": true}}}`:                                                       true,
		`{"agents": {"a": {"workspace": "a"}}}`:                                                                                false,
		execution(`"environment": {"pass": [], "set": {}}`):                                                                    true,
		execution(`"environment": {"pass": ["A_1"], "set": {"_b": ""}}`):                                                       true,
		execution(`"environment": {"pass": "A"}`):                                                                              false,
		execution(`"environment": {"pass": ["A*"]}`):                                                                           false,
		execution(`"environment": {"pass": [null]}`):                                                                           false,
		execution(`"environment": {"set": {"A": 1}}`):                                                                          false,
		execution(`"environment": {"set": {"1A": ""}}`):                                                                        false,
		execution(`"environment": {"set": ["A=1"]}`):                                                                           false,
		execution(`"limits": {"timeoutSeconds": 0}`):                                                                           true,
		execution(`"limits": {"timeoutSeconds": 2147483647}`):                                                                  true,
		execution(`"limits": {"timeoutSeconds": 2147483648}`):                                                                  false,
		execution(`"limits": {"timeoutSeconds": -1}`):                                                                          false,
		execution(`"limits": {"timeoutSeconds": 1.5}`):                                                                         false,
		execution(`"limits": {"timeoutSeconds": "1"}`):                                                                         false,
		execution(`"limits": {"timeout": 1}`):                                                                                  false,
		execution(`"limits": {"memory": "0", "processes": 0}`):                                                                 true,
		execution(`"limits": {"memory": "512MiB"}`):                                                                            true,
		execution(`"limits": {"memory": "512MB"}`):                                                                             false,
		execution(`"limits": {"memory": 512}`):                                                                                 false,
		execution(`"limits": {"processes": 16}`):                                                                               true,
		execution(`"limits": {"processes": 15}`):                                                                               false,
		execution(`"limits": {"cpuSeconds": 2147483648}`):                                                                      false,
		execution(`"limits": {"cpuPercent": 150}`):                                                                             true,
		execution(`"limits": {"cpuPercent": 100001}`):                                                                          false,
		execution(`"limits": {"cpuPercent": "150%"}`):                                                                          false,
		execution(`"limits": {"openFiles": 1048577}`):                                                                          false,
		execution(`"limits": {"openFiles": null}`):                                                                             false,
		execution(`"limits": {"outputBytes": ""}`):                                                                             false,
		execution(`"outside": {"host": "auto", "security": "full", "ask": "always", "node": "n"}`):                             true,
		execution(`"outside": {"host": "Gateway"}`):                                                                            false,
		execution(`"outside": {"security": "none"}`):                                                                           false,
		execution(`"outside": {"ask": "never"}`):                                                                               false,
		execution(`"outside": {"safeBins": ["wc", "g++"]}`):                                                                    true,
		execution(`"outside": {"safeBins": ["/bin/wc"]}`):                                                                      false,
		execution(`"outside": {"safeBins": [""]}`):                                                                             false,
		execution(`"outside": {"safeBinProfiles": {"wc": {"booleanFlags": ["-l"]}}}`):                                          true,
		execution(`"outside": {"safeBinProfiles": {"/wc": {}}}`):                                                               false,
		execution(`"outside": {"safeBinProfiles": {"wc": {"flags": []}}}`):                                                     false,
	} {
		var value any
		if err := json.Unmarshal([]byte(text), &value); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if err := schema.Validate(value); (err == nil) != good {
			t.Errorf("the schema on %s: %v", text, err)
		}
		if err := DecodeConfig("config.json", []byte(text), &configFile{}); (err == nil) != good {
			t.Errorf("the decoder on %s: %v", text, err)
		}
	}
}
