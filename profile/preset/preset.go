// Package preset knows what programs of agents, and the tools that they use, need of a sandbox:
// files, servers, variables, and what a program is told to leave to the sandbox. A preset is data,
// a file of JSON each; a person has own ones in the configuration directory.
//
// A preset only ever adds to what a run asks for. What the administrator's file enforces, and what
// a workspace's own file takes away, stands over it.
package preset

import (
	"cmp"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/clairun/clai-sandbox/profile"
)

//go:embed presets/*.json
var embedded embed.FS

// Directory is where own presets lie, in the configuration directory.
const Directory = "presets"

// A Preset is one file: preset.schema.json describes it.
type Preset struct {
	Schema    string     `json:"$schema,omitempty" jsonschema:"for editors; not read"`
	About     string     `json:"about" jsonschema:"what it is for, in a few words"`
	Program   string     `json:"program,omitempty" jsonschema:"the agent's program, as it is found by PATH; without it the preset is one for a tool"`
	Install   string     `json:"install,omitempty" jsonschema:"how the program is installed"`
	Tried     string     `json:"tried,omitempty" jsonschema:"the version of the program that tests run with this preset; without it none was run, and the preset follows what the program's makers published"`
	Arguments []string   `json:"arguments,omitempty" jsonschema:"what stands before the person's own arguments; {instructions} is what an agent is told about its sandbox, {instructions:json} the same as a string of JSON"`
	ApartArgs []string   `json:"apartArguments,omitempty" jsonschema:"these in place of arguments, where its commands run apart from it (agent --commands-apart); {shell} is a shell of the system's, in whose place clai-shell stands"`
	Told      string     `json:"told,omitempty" jsonschema:"the file in the home directory that the agent reads its instructions from: it has a private one, with the person's own text and ours"`
	Presets   []string   `json:"presets,omitempty" jsonschema:"further presets that it takes"`
	Paths     []Path     `json:"paths,omitempty" jsonschema:"what it sees of the home directory, as far as it is there"`
	Copies    []Copy     `json:"copies,omitempty" jsonschema:"files of the home directory of which it has private copies: what it changes there reaches nobody else"`
	Domains   []Domain   `json:"domains,omitempty" jsonschema:"what it reaches of the network"`
	Variables []Variable `json:"variables,omitempty" jsonschema:"environment variables that it gets"`
	Shell     *Shell     `json:"shell,omitempty" jsonschema:"how the agent has clai-shell run its commands"`
	ByShell   bool       `json:"byShell,omitempty" jsonschema:"it starts each command that its model asks for by one of the system's shells, in whose place clai-shell can stand: agent --commands-apart"`
	Succeeds  []string   `json:"succeeds" jsonschema:"a command that must succeed with the preset"`
	Fails     []string   `json:"fails" jsonschema:"a command that must fail with it"`

	Name string // of the file, without .json
	File string // where it is; empty: one of ours
}

// A Path is one that the agent sees.
type Path struct {
	Path   string         `json:"path" jsonschema:"absolute, or ~/x for one in the home directory"`
	Access profile.Access `json:"access" jsonschema:"what the agent may do there"`
	Why    string         `json:"why" jsonschema:"what for"`
}

// A Copy is a file that the agent has a copy of.
type Copy struct {
	Path string `json:"path" jsonschema:"~/x, a file in the home directory"`
	Why  string `json:"why" jsonschema:"what for"`
}

// A Domain is one that the agent reaches.
type Domain struct {
	Domain string `json:"domain" jsonschema:"as in allowedDomains: a name, *.name for all below it, each with :port for that port alone"`
	Why    string `json:"why" jsonschema:"what for"`
}

// A Variable is one that the agent gets.
type Variable struct {
	Name  string  `json:"name" jsonschema:"the variable"`
	Value *string `json:"value,omitempty" jsonschema:"its value; without one it is the person's, where they have it"`
	Why   string  `json:"why" jsonschema:"what for"`
	Apart bool    `json:"apart,omitempty" jsonschema:"only where its commands run apart; {shell} in the value is as in apartArguments"`
}

// An UnknownError is a name that no preset has.
type UnknownError struct {
	Name, Nearest string
}

func (e *UnknownError) Error() string {
	text := "no preset is called " + profile.Printable(e.Name)
	if e.Nearest != "" {
		text += "; did you mean " + e.Nearest + "?"
	}
	return text
}

// Load reads all presets: ours, and those of a configuration directory, which stand over ours of
// the same name. They are in order of their names.
func Load(config string) ([]Preset, error) {
	byName := map[string]Preset{}
	names, err := fs.Glob(embedded, "presets/*.json")
	if err != nil {
		return nil, err
	}
	for _, file := range names {
		text, err := embedded.ReadFile(file)
		if err != nil {
			return nil, err
		}
		p := Preset{Name: nameOf(file)}
		if err := json.Unmarshal(text, &p); err != nil { // not the slower, stricter way: a test holds ours against the schema
			return nil, err
		}
		byName[p.Name] = p
	}
	own, err := os.ReadDir(filepath.Join(config, Directory))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, entry := range own {
		if !strings.HasSuffix(entry.Name(), ".json") {
			continue
		}
		p := Preset{File: filepath.Join(config, Directory, entry.Name()), Name: nameOf(entry.Name())}
		if _, err := profile.ReadOwnFile(p.File, &p); err != nil {
			return nil, err
		}
		byName[p.Name] = p
	}
	list := make([]Preset, 0, len(byName))
	for _, p := range byName {
		if err := p.check(); err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b Preset) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

func nameOf(file string) string { return strings.TrimSuffix(filepath.Base(file), ".json") }

// check refuses what cannot be meant: where the file says something that only the sandbox would
// find out.
func (p Preset) check() error {
	refuse := func(key, why string) error {
		return &profile.ConfigError{File: cmp.Or(p.File, "preset "+p.Name), Key: key, Why: why}
	}
	if err := profile.CheckAgent(p.Name); err != nil {
		return refuse("", err.Error())
	}
	for _, path := range p.Paths {
		if _, err := profile.ExpandPath(path.Path, "/"); err != nil {
			return refuse("paths", err.Error())
		}
	}
	for _, path := range append(copyPaths(p.Copies), p.Told) {
		if path != "" && !inHome(path) {
			return refuse("copies", fmt.Sprintf("%s is not ~/x, a file in the home directory", profile.Printable(path)))
		}
	}
	for _, d := range p.Domains {
		var rule profile.DomainRule
		if err := rule.UnmarshalText([]byte(d.Domain)); err != nil {
			return refuse("domains", err.Error())
		}
	}
	if strings.ContainsRune(p.Program, '/') && !filepath.IsAbs(p.Program) {
		return refuse("program", "is neither a name nor a whole path")
	}
	return nil
}

func copyPaths(copies []Copy) (paths []string) {
	for _, c := range copies {
		paths = append(paths, c.Path)
	}
	return paths
}

// inHome reports whether a path is ~/x, and no more than that.
func inHome(path string) bool {
	below, is := strings.CutPrefix(path, "~/")
	return is && filepath.IsLocal(below) && below == filepath.Clean(below) && below != "."
}

// Find is the presets of some names, and those that they take, each once. The error is an
// *UnknownError.
func Find(all []Preset, names ...string) ([]Preset, error) {
	var found []Preset
	var add func(name string) error
	add = func(name string) error {
		if slices.ContainsFunc(found, func(p Preset) bool { return p.Name == name }) {
			return nil
		}
		i := slices.IndexFunc(all, func(p Preset) bool { return p.Name == name })
		if i < 0 {
			var known []string
			for _, p := range all {
				known = append(known, p.Name)
			}
			return &UnknownError{name, profile.Nearest(name, known)}
		}
		found = append(found, all[i])
		for _, further := range all[i].Presets {
			if err := add(further); err != nil {
				return err
			}
		}
		return nil
	}
	for _, name := range names {
		if err := add(name); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// Add adds to a run's request what the preset needs, as far as this machine has it.
func (p Preset) Add(r *profile.Request, caller profile.Caller) error {
	for _, path := range p.Paths {
		full, err := profile.ExpandPath(path.Path, caller.Home)
		if err != nil {
			return err
		}
		if _, err := os.Lstat(full); err != nil {
			continue
		}
		r.Preset = append(r.Preset, profile.Grant{Path: full, Access: path.Access, Origin: profile.Origin{Kind: profile.OriginPreset, Source: p.Name}})
	}
	for _, d := range p.Domains {
		r.AllowDomains = append(r.AllowDomains, d.Domain)
	}
	has := func(name string) bool {
		return slices.ContainsFunc(caller.Environ, func(v string) bool { return strings.HasPrefix(v, name+"=") })
	}
	var given []string
	for _, v := range p.Variables {
		switch {
		case v.Apart:
		case v.Value != nil:
			given = append(given, v.Name+"="+*v.Value)
		case has(v.Name):
			given = append(given, v.Name)
		}
	}
	r.Environment = append(given, r.Environment...) // what a person says stands over it
	return nil
}

// AddApart adds what holds the agent to a shell of the system's: no setting of its own, or of a
// project's, names another program.
func (p Preset) AddApart(r *profile.Request, shell string) {
	for _, v := range p.Variables {
		if v.Apart && v.Value != nil {
			r.Environment = append(r.Environment, v.Name+"="+strings.ReplaceAll(*v.Value, "{shell}", shell))
		}
	}
}

// Words are the arguments that stand before the person's. shell is one of the system's where
// commands run apart, or else empty.
func (p Preset) Words(instructions, shell string) []string {
	quoted, err := json.Marshal(instructions)
	if err != nil {
		panic(err) // of a string
	}
	arguments := p.Arguments
	if shell != "" && p.ApartArgs != nil {
		arguments = p.ApartArgs
	}
	words := make([]string, len(arguments))
	for i, word := range arguments {
		words[i] = strings.NewReplacer("{instructions}", instructions, "{instructions:json}", string(quoted), "{shell}", shell).Replace(word)
	}
	return words
}
