package preset

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/clairun/clai-sandbox/profile"
)

// A Shell is the setting by which an agent has clai-shell run its commands.
type Shell struct {
	File    string   `json:"file,omitempty" jsonschema:"the agent's file of settings, JSON, ~/x; without it there is none, and note says what a person does"`
	Key     []string `json:"key,omitempty" jsonschema:"the setting in it"`
	Value   string   `json:"value,omitempty" jsonschema:"its value; {shell} in it is the path of clai-shell, {shell:quoted} the same as a shell's word"`
	Matcher string   `json:"matcher,omitempty" jsonschema:"the setting is a list of hooks, to which one for this tool is added, with the value as its command"`
	Note    string   `json:"note,omitempty" jsonschema:"what else a person does or should know; {shell} as in value"`
}

// An Installed setting is one that was written, with what takes it back.
type Installed struct {
	File   string          `json:"file"` // absolute
	Before *string         `json:"before"`
	After  string          `json:"after"`
	Key    []string        `json:"key"`
	Was    json.RawMessage `json:"was"` // null: there was none
	Wrote  json.RawMessage `json:"wrote"`
	Append bool            `json:"append"`
}

// ErrInstalled means that the setting says so already.
var ErrInstalled = errors.New("it is set already")

// Install puts the setting into the text of a file; nil: there is no such file. All else in it stays as it is written.
func (s Shell) Install(file string, text []byte, shell, quoted string) (Installed, error) {
	in := Installed{File: file, Key: s.Key, Append: s.Matcher != ""}
	if text != nil {
		before := string(text)
		in.Before = &before
	}
	var setting any = strings.NewReplacer("{shell}", shell, "{shell:quoted}", quoted).Replace(s.Value)
	if in.Append {
		type object = map[string]any
		setting = object{"matcher": s.Matcher, "hooks": []any{object{"type": "command", "name": "clai-shell", "command": setting}}}
	}
	var err error
	if in.Wrote, err = json.Marshal(setting); err != nil {
		return in, err
	}
	if in.Was, err = at(file, text, s.Key); err != nil {
		return in, err
	}
	value := in.Wrote
	if in.Append {
		list, err := listOf(in.Was)
		if err != nil {
			return in, fmt.Errorf("%s: %w", strings.Join(s.Key, "."), err)
		}
		if slices.ContainsFunc(list, func(other json.RawMessage) bool { return same(other, in.Wrote) }) {
			return in, ErrInstalled
		}
		if value, err = json.Marshal(append(list, in.Wrote)); err != nil {
			return in, err
		}
	} else if same(in.Was, in.Wrote) {
		return in, ErrInstalled
	}
	after, err := profile.MergeConfig(file, text, profile.Nested(s.Key, value))
	in.After = string(after)
	return in, err
}

// Undo takes a setting back out of what its file holds now; nil: nothing is left that anybody wrote. What was changed since stays, and so does
// the setting, if it was.
func (in Installed) Undo(text []byte) ([]byte, error) {
	if string(text) == in.After {
		if in.Before == nil {
			return nil, nil
		}
		return []byte(*in.Before), nil
	}
	now, err := at(in.File, text, in.Key)
	if err != nil {
		return nil, err
	}
	value := in.Was
	if in.Append {
		list, err := listOf(now)
		if err != nil {
			return nil, err
		}
		kept := slices.DeleteFunc(slices.Clone(list), func(other json.RawMessage) bool { return same(other, in.Wrote) })
		if len(kept) == len(list) {
			return nil, errors.New("the setting was changed since")
		}
		if value, err = json.Marshal(kept); err != nil {
			return nil, err
		}
		if len(kept) == 0 && same(in.Was, []byte("null")) {
			value = in.Was
		}
	} else if !same(now, in.Wrote) {
		return nil, errors.New("the setting was changed since")
	}
	return profile.MergeConfig(in.File, text, profile.Nested(in.Key, value))
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
