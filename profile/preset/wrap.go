package preset

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/clairun/clai-sandbox/profile"
)

// A Server is one of a list of servers of the Model Context Protocol, as clients' files have it.
type Server struct {
	Name string
	Why  string // it stays as it is; empty: it is started in a sandbox
}

// serverLists are the names that such lists have.
var serverLists = []string{"mcpServers", "servers"}

// WrapServers has each server of a file that is started as a program start in a sandbox of its own: by this program, with these options of run.
// What else the file says stays as it is written. A server that is reached by an address stays, too.
func WrapServers(file string, text []byte, program string, options []string) ([]byte, []Server, error) {
	plain, err := profile.PlainJSON(file, text)
	if err != nil {
		return nil, nil, err
	}
	var lists map[string]json.RawMessage
	if err := json.Unmarshal(plain, &lists); err != nil {
		return nil, nil, fmt.Errorf("%s: it is no object", profile.Printable(file))
	}
	i := slices.IndexFunc(serverLists, func(name string) bool { return lists[name] != nil })
	if i < 0 {
		return nil, nil, fmt.Errorf("%s has no mcpServers", profile.Printable(file))
	}
	type entry struct {
		Command *string           `json:"command"`
		Args    []string          `json:"args"`
		Env     map[string]string `json:"env"`
	}
	var servers map[string]json.RawMessage
	if err := json.Unmarshal(lists[serverLists[i]], &servers); err != nil {
		return nil, nil, fmt.Errorf("%s: %s is no object", profile.Printable(file), serverLists[i])
	}
	list, changed := []Server{}, map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		var e entry
		s := Server{Name: name}
		switch err := json.Unmarshal(servers[name], &e); {
		case err != nil:
			return nil, nil, fmt.Errorf("%s: %s is not understood, and a server that is left out would run outside: %w", profile.Printable(file), profile.Printable(name), err)
		case e.Command == nil:
			s.Why = "it is reached by an address, and runs elsewhere"
		case *e.Command == "":
			return nil, nil, errors.New(profile.Printable(file) + ": " + profile.Printable(name) + " has an empty command")
		case filepath.Base(*e.Command) == filepath.Base(program):
			s.Why = "it is clai-sandbox's already"
		default:
			words := slices.Concat([]string{"run"}, options)
			for _, variable := range slices.Sorted(maps.Keys(e.Env)) { // else the sandbox would not have them
				words = append(words, "--env", variable)
			}
			changed[name] = map[string]any{"command": program, "args": slices.Concat(words, []string{"--", *e.Command}, e.Args)}
		}
		list = append(list, s)
	}
	patch, err := json.Marshal(map[string]any{serverLists[i]: changed})
	if err != nil {
		return nil, nil, err
	}
	wrapped, err := profile.MergeConfig(file, slices.Clone(text), patch)
	return wrapped, list, err
}
