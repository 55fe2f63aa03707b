package preset

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/clairun/clai-sandbox/profile"
)

// A Shell is the setting by which an agent has clai-shell run its commands.
type Shell struct {
	File    string    `json:"file,omitempty" jsonschema:"the agent's file of settings, JSON, ~/x; without it there is none, and note says what a person does"`
	System  string    `json:"system,omitempty" jsonschema:"the file of the machine's settings, which count more than a project's own"`
	Key     []string  `json:"key,omitempty" jsonschema:"the setting in it"`
	Value   string    `json:"value,omitempty" jsonschema:"its value; {shell} in it is the path of clai-shell, {shell:quoted} the same as a shell's word"`
	Matcher string    `json:"matcher,omitempty" jsonschema:"the setting is a list of hooks, to which one for this tool is added, with the value as its command"`
	With    []Setting `json:"with,omitempty" jsonschema:"what else is set, so that a project cannot lead round it"`
	Note    string    `json:"note,omitempty" jsonschema:"what else a person does or should know; {shell} as in value"`
}

// A Setting is one more beside it.
type Setting struct {
	Key []string `json:"key" jsonschema:"the setting"`
	On  bool     `json:"on,omitempty" jsonschema:"it is switched on"`
	Add []string `json:"add,omitempty" jsonschema:"it is a list, to which these are added"`
}

// An Installed setting is one that was written, with what takes it back.
type Installed struct {
	File   string  `json:"file"` // absolute
	Before *string `json:"before"`
	After  string  `json:"after"`
	Part
	With []Part `json:"with,omitempty"` // in the order in which they were written
}

// A Part is one value that was written.
type Part struct {
	Key    []string        `json:"key"`
	Was    json.RawMessage `json:"was"` // null: there was none
	Wrote  json.RawMessage `json:"wrote"`
	Append bool            `json:"append"` // to a list
	value  any
}

// ErrInstalled means that the setting says so already.
var ErrInstalled = errors.New("it is set already")

// Install puts the setting into the text of a file; nil: there is no such file. All else in it
// stays as it is written. A project can switch a hook off by its name: part of that is unknown,
// which nobody has to guess.
func (s Shell) Install(file string, text []byte, shell, quoted, unknown string) (Installed, error) {
	in := Installed{File: file}
	if text != nil {
		before := string(text)
		in.Before = &before
	}
	type object = map[string]any
	value := strings.NewReplacer("{shell}", shell, "{shell:quoted}", quoted).Replace(s.Value)
	in.Part = Part{Key: s.Key, Append: s.Matcher != "", value: value}
	if in.Append {
		in.Part.value = object{"matcher": s.Matcher, "hooks": []any{object{"type": "command", "name": ourHook + "-" + unknown, "command": value}}}
	}
	parts := []*Part{&in.Part}
	for _, with := range s.With {
		if with.On {
			parts = append(parts, &Part{Key: with.Key, value: true})
		}
		for _, one := range with.Add {
			parts = append(parts, &Part{Key: with.Key, Append: true, value: one})
		}
	}
	missing := false
	for i, part := range parts {
		after, err := part.put(file, text)
		if err != nil {
			return in, err
		}
		if after == nil {
			continue
		}
		text, missing = after, true
		if i > 0 {
			in.With = append(in.With, *part)
		}
	}
	in.After = string(text)
	if !missing {
		return in, ErrInstalled
	}
	return in, nil
}

// put puts the part into a text; nil: it is there.
func (p *Part) put(file string, text []byte) ([]byte, error) {
	var err error
	if p.Wrote, err = json.Marshal(p.value); err != nil {
		return nil, err
	}
	if p.Was, err = at(file, text, p.Key); err != nil {
		return nil, err
	}
	value := p.Wrote
	if p.Append {
		list, err := listOf(p.Was)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", strings.Join(p.Key, "."), err)
		}
		if slices.ContainsFunc(list, func(other json.RawMessage) bool { return sameHook(other, p.Wrote) }) {
			return nil, nil
		}
		if value, err = json.Marshal(append(list, p.Wrote)); err != nil {
			return nil, err
		}
	} else if same(p.Was, p.Wrote) {
		return nil, nil
	}
	return profile.MergeConfig(file, text, profile.Nested(p.Key, value))
}

// Undo takes a setting back out of what its file holds now; nil: nothing is left that anybody
// wrote. What was changed since stays, and so does the setting, if it was.
func (in Installed) Undo(text []byte) ([]byte, error) {
	if string(text) == in.After {
		if in.Before == nil {
			return nil, nil
		}
		return []byte(*in.Before), nil
	}
	text, err := in.Part.takeBack(in.File, text)
	for _, part := range slices.Backward(in.With) {
		if err == nil {
			if without, gone := part.takeBack(in.File, text); gone == nil { // else it is the person's by now
				text = without
			}
		}
	}
	return text, err
}

func (p Part) takeBack(file string, text []byte) ([]byte, error) {
	now, err := at(file, text, p.Key)
	if err != nil {
		return nil, err
	}
	value := p.Was
	if p.Append {
		list, err := listOf(now)
		if err != nil {
			return nil, err
		}
		kept := slices.DeleteFunc(slices.Clone(list), func(other json.RawMessage) bool { return same(other, p.Wrote) })
		if len(kept) == len(list) {
			return nil, errors.New("the setting was changed since")
		}
		if value, err = json.Marshal(kept); err != nil {
			return nil, err
		}
		if len(kept) == 0 && same(p.Was, []byte("null")) {
			value = p.Was
		}
	} else if !same(now, p.Wrote) {
		return nil, errors.New("the setting was changed since")
	}
	return profile.MergeConfig(file, text, profile.Nested(p.Key, value))
}

// at is the value of a key in a text, or null.
func at(file string, text []byte, key []string) (json.RawMessage, error) {
	null := json.RawMessage("null")
	if len(bytes.TrimSpace(text)) == 0 {
		return null, nil
	}
	value, err := profile.PlainJSON(file, text)
	if err != nil {
		return nil, err
	}
	if _, err := decodeOnce(json.NewDecoder(bytes.NewReader(value))); err != nil {
		return nil, fmt.Errorf("%s: %w: take one out", profile.Printable(file), err)
	}
	for i, name := range key {
		var object map[string]json.RawMessage
		if err := json.Unmarshal(value, &object); err != nil {
			return nil, fmt.Errorf("%s: %s is no object", profile.Printable(file), strings.Join(append([]string{"the file"}, key[:i]...), "."))
		}
		found, is := object[name]
		if !is {
			return null, nil
		}
		value = found
	}
	return value, nil
}

func listOf(value json.RawMessage) (list []json.RawMessage, err error) {
	if err := json.Unmarshal(value, &list); err != nil {
		return nil, errors.New("it is no list")
	}
	return list, nil
}

// same reports whether two values are equal, however they are written.
func same(a, b json.RawMessage) bool {
	var one, other any
	if json.Unmarshal(a, &one) != nil || json.Unmarshal(b, &other) != nil {
		return false
	}
	x, _ := json.Marshal(one)
	y, _ := json.Marshal(other)
	return bytes.Equal(x, y)
}

// ourHook begins the names of hooks that have clai-shell run commands.
const ourHook = "clai-shell"

// sameHook reports whether two values are equal but for the part of a hook's name that nobody has
// to guess.
func sameHook(a, b json.RawMessage) bool {
	var one, other any
	if json.Unmarshal(a, &one) != nil || json.Unmarshal(b, &other) != nil {
		return false
	}
	return reflect.DeepEqual(named(one), named(other))
}

func named(value any) any {
	switch v := value.(type) {
	case []any:
		for i := range v {
			v[i] = named(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = named(v[key])
		}
		if name, is := v["name"].(string); is && strings.HasPrefix(name, ourHook) {
			v["name"] = ourHook
		}
	}
	return value
}
