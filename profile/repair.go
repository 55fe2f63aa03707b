package profile

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tailscale/hujson"
)

// A Repair is a known mistake in the person's configuration file, and what mends it.
type Repair struct {
	Key   string `json:"key" jsonschema:"where it is"`
	Wrong string `json:"wrong" jsonschema:"what is the matter, for a person"`
	Mend  string `json:"mend" jsonschema:"what a repair writes, for a person"`
}

// maxRepairs bounds the mistakes of one file.
const maxRepairs = 100

// Repairs lists the known mistakes of a text, and returns it without them. Known are keys that are
// nearly those that there are, an agent by the name of default, and lists that allow no tool.
func (t ConfigText) Repairs() (list []Repair, repaired []byte) {
	repaired = t.Text
	var file configFile
	for range maxRepairs {
		file = configFile{}
		err := DecodeConfig(t.Path, repaired, &file)
		if err == nil {
			break
		}
		var mistake *ConfigError
		if !errors.As(err, &mistake) || mistake.meant == "" {
			return list, repaired // by hand
		}
		text, ok := renameMember(repaired, mistake.path, mistake.unknown, mistake.meant)
		if !ok {
			return list, repaired
		}
		wrong := "an unknown key"
		if slices.Equal(mistake.path, []string{"agents"}) {
			wrong = "no agent is called that"
		}
		list = append(list, Repair{strings.Join(append(slices.Clone(mistake.path), mistake.unknown), "."), wrong, fmt.Sprintf("calls it %q", mistake.meant)})
		repaired = text
	}
	all := map[string]agentConfig{"defaults": file.Defaults}
	for name, agent := range file.Agents {
		all["agents\x00"+name] = agent
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		e := all[name].Execution
		for _, place := range []struct {
			key   []string
			allow *[]toolName
		}{{[]string{"tools"}, e.Tools.Allow}, {[]string{"sandbox", "tools"}, e.Sandbox.Tools.Allow}} {
			if place.allow == nil || len(*place.allow) > 0 {
				continue
			}
			key := slices.Concat(strings.Split(name, "\x00"), []string{"execution"}, place.key, []string{"allow"})
			text, err := MergeConfig(t.Path, repaired, Nested(key, []byte(`["*"]`)))
			if err != nil {
				return list, repaired
			}
			repaired = text
			list = append(list, Repair{strings.Join(key, "."), "an empty list, which allows no tool", `writes ["*"], which allows every tool that nothing denies`})
		}
	}
	return list, repaired
}

// renameMember gives a member of an object another name, unless there is one of that name.
func renameMember(text []byte, path []string, from, to string) ([]byte, bool) {
	tree, err := parseTree("", text)
	if err != nil {
		return nil, false
	}
	at := tree.Value
	for _, name := range path {
		object, is := at.(*hujson.Object)
		if !is || memberAt(object, name) < 0 {
			return nil, false
		}
		at = object.Members[memberAt(object, name)].Value.Value
	}
	object, is := at.(*hujson.Object)
	if !is || memberAt(object, from) < 0 || memberAt(object, to) >= 0 {
		return nil, false
	}
	object.Members[memberAt(object, from)].Name.Value = hujson.String(to)
	return tree.Pack(), true
}

// RepairConfig mends the known mistakes of the person's file, and keeps what it was in a file
// beside it.
func RepairConfig(d Directories, now time.Time) (list []Repair, backup string, err error) {
	_, err = ChangeConfig(d, "", func(text []byte) ([]byte, error) {
		var repaired []byte
		if list, repaired = (ConfigText{Path: filepath.Join(d.Config, configName), Text: text}).Repairs(); len(list) == 0 {
			return text, nil
		}
		backup = filepath.Join(d.Config, configName+".before-repair-"+now.UTC().Format("20060102T150405.000"))
		file, err := os.OpenFile(backup, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return nil, err
		}
		_, err = file.Write(text)
		return repaired, errors.Join(err, file.Sync(), file.Close())
	})
	if err != nil && backup != "" {
		os.Remove(backup)
		return nil, "", err
	}
	return list, backup, err
}
