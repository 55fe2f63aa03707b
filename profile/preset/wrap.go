package preset

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/clairun/clai-sandbox/profile"
)

// A Server is one of a list of servers of the Model Context Protocol, as clients' files have it.
type Server struct {
	Name string
	Why  string // it stays as it is; empty: it is started in a sandbox
}

// A Wrapping is how servers are started: by a program, with options of its command run.
type Wrapping struct {
	Program string
	Options []string
	// IsProgram reports whether a command of the file is that very program.
	IsProgram func(command string) bool
}

// carrier begins the names under which variables of a file reach the program, which passes them on.
// None obeys a variable of such a name: what stands in the file is for the server alone, and
// neither for the launcher of its sandbox nor for bwrap.
const carrier = "CLAI_SANDBOX_PASSED_"

// inert are the keys of a server that start nothing and change nothing of what is started. Whatever
// is not among them, nor read here, is refused: a client may obey it.
var inert = []string{"allowedTools", "alwaysAllow", "authProviderType", "autoApprove", "description", "disabled", "disabledTools", "enabled", "enabledTools",
	"excludeTools", "gallery", "headers", "includeTools", "name", "oauth", "startup_timeout_sec", "timeout", "tools", "tool_timeout_sec", "transport", "transportType", "trust", "type", "version"}

// addresses are the keys by which a server is reached that runs elsewhere.
var addresses = []string{"url", "httpUrl", "serverUrl", "tcp"}

// ownDirectories are how a file names the directory in which the client is. Any other would be the
// workspace, and the file's choice.
var ownDirectories = []string{".", "${workspaceFolder}"}

// WrapServers has each server of a file that is started as a program start in a sandbox of its own.
// What else the file says stays as it is written. A server that is reached by an address stays,
// too. A file of which anything could start a program that is not understood is refused as a whole.
func WrapServers(file string, text []byte, how Wrapping) ([]byte, []Server, error) {
	refuse := func(err error) error { return fmt.Errorf("%s: %w", profile.Printable(file), err) }
	plain, err := profile.PlainJSON(file, text)
	if err != nil {
		return nil, nil, err
	}
	tree, err := decodeOnce(json.NewDecoder(bytes.NewReader(plain)))
	if err != nil {
		return nil, nil, refuse(err)
	}
	top, ok := tree.(map[string]any)
	if !ok {
		return nil, nil, refuse(errors.New("it is no object"))
	}
	w := wrapper{Wrapping: how, list: []Server{}}
	changed, err := w.object(nil, top)
	if err != nil {
		return nil, nil, refuse(err)
	}
	if !w.found {
		return nil, nil, fmt.Errorf("%s has no mcpServers", profile.Printable(file))
	}
	patch, err := json.Marshal(changed)
	if err != nil {
		return nil, nil, err
	}
	wrapped, err := profile.MergeConfig(file, slices.Clone(text), patch)
	return wrapped, w.list, err
}

// decodeOnce decodes a value. A key that stands twice is refused: which one counts, each reader
// decides for itself.
func decodeOnce(d *json.Decoder) (any, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('['):
		list := []any{}
		for d.More() {
			value, err := decodeOnce(d)
			if err != nil {
				return nil, err
			}
			list = append(list, value)
		}
		_, err = d.Token()
		return list, err
	case json.Delim('{'):
		object := map[string]any{}
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return nil, err
			}
			name := key.(string)
			if _, twice := object[name]; twice {
				return nil, fmt.Errorf("the key %s stands twice", profile.Printable(name))
			}
			if object[name], err = decodeOnce(d); err != nil {
				return nil, err
			}
		}
		_, err = d.Token()
		return object, err
	}
	return token, nil
}

// A wrapper goes through a file.
type wrapper struct {
	Wrapping
	list  []Server
	found bool // a list of servers
}

// isList reports whether a key holds a list of servers, by the keys that lead to it.
func isList(path []string, key string) bool {
	return key == "mcpServers" || key == "servers" && (len(path) == 0 || len(path) == 1 && path[0] == "mcp")
}

// object is what changes of an object, which path leads to.
func (w *wrapper) object(path []string, object map[string]any) (map[string]any, error) {
	changed := map[string]any{}
	for _, key := range slices.Sorted(maps.Keys(object)) {
		at := append(slices.Clone(path), key)
		var below map[string]any
		var err error
		if isList(path, key) {
			w.found = true
			below, err = w.servers(at, object[key])
		} else {
			below, err = w.value(at, object[key])
		}
		if err != nil {
			return nil, err
		}
		if len(below) > 0 {
			changed[key] = below
		}
		if object[key] != nil && namesProgram(key) {
			w.list = append(w.list, Server{strings.Join(at, "."), "it may name a program, and stands in no list of servers"})
		}
	}
	return changed, nil
}

// value is what changes of a value.
func (w *wrapper) value(path []string, value any) (map[string]any, error) {
	switch value := value.(type) {
	case map[string]any:
		return w.object(path, value)
	case []any:
		for i, v := range value {
			changed, err := w.value(append(slices.Clone(path), fmt.Sprint(i)), v)
			if err == nil && len(changed) > 0 {
				err = fmt.Errorf("%s holds a list of servers, and no list can be changed there", profile.Printable(strings.Join(path, ".")))
			}
			if err != nil {
				return nil, err
			}
		}
	}
	return nil, nil
}

func namesProgram(key string) bool {
	key = strings.ToLower(key)
	return strings.HasSuffix(key, "command") || strings.HasSuffix(key, "helper")
}

// holdsProgram reports whether anything in a value may name a program.
func holdsProgram(value any) bool {
	switch value := value.(type) {
	case map[string]any:
		for key, below := range value {
			if namesProgram(key) || holdsProgram(below) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(value, holdsProgram)
	}
	return false
}

// servers is what changes of a list.
func (w *wrapper) servers(path []string, value any) (map[string]any, error) {
	servers, ok := value.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s is no object", profile.Printable(strings.Join(path, ".")))
	}
	changed := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		server, why, err := w.server(servers[name])
		if err != nil {
			return nil, fmt.Errorf("%s is not understood, and a server that is left out would run outside: %w", profile.Printable(name), err)
		}
		if why == "" && server != nil {
			changed[name] = server
		}
		w.list = append(w.list, Server{name, why})
	}
	return changed, nil
}

// server is what changes of one; why it stays, else.
func (w *wrapper) server(value any) (changed map[string]any, why string, err error) {
	keys, ok := value.(map[string]any)
	if !ok {
		return nil, "", errors.New("it is no object")
	}
	var command, cwd *string
	var args []string
	var env map[string]string
	reached := false
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		switch key {
		case "command":
			command, err = as[*string](keys[key])
		case "args":
			args, err = as[[]string](keys[key])
		case "env":
			env, err = as[map[string]string](keys[key])
		case "cwd":
			cwd, err = as[*string](keys[key])
		default:
			if slices.Contains(addresses, key) {
				reached = true
			} else if !slices.Contains(inert, key) || holdsProgram(keys[key]) {
				err = errors.New("a client may obey it")
			}
		}
		if err != nil {
			return nil, "", fmt.Errorf("its %s: %w", profile.Printable(key), err)
		}
	}
	switch {
	case command == nil && reached:
		return nil, "it is reached by an address, and runs elsewhere", nil
	case command == nil:
		return nil, "", errors.New("it has neither a command nor an address")
	case *command == "":
		return nil, "", errors.New("it has an empty command")
	case cwd != nil && !slices.Contains(ownDirectories, *cwd) && !slices.ContainsFunc(w.Options, func(o string) bool { return o == "--workspace" || strings.HasPrefix(o, "--workspace=") }):
		return nil, "", fmt.Errorf("its cwd, %s, would be its workspace: name one behind --, as --workspace DIR", profile.Printable(*cwd))
	case w.IsProgram(*command):
		return nil, "it is clai-sandbox's already", w.fromBefore(args, env)
	}
	words, carried := slices.Concat([]string{"run"}, w.Options), map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(env)) { // else the sandbox would not have them
		if err := profile.CheckVariable(name); err != nil {
			return nil, "", err
		}
		words = append(words, "--env-as", name+"="+carrier+name)
		carried[name], carried[carrier+name] = nil, env[name]
	}
	changed = map[string]any{"command": w.Program, "args": slices.Concat(words, []string{"--", *command}, args)}
	if len(carried) > 0 {
		changed["env"] = carried
	}
	return changed, "", nil
}

// fromBefore refuses a server that is started by this program otherwise than this has written: with
// which options it is, the file must not say.
func (w *wrapper) fromBefore(args []string, env map[string]string) error {
	for name := range env {
		if !strings.HasPrefix(name, carrier) {
			return fmt.Errorf("clai-sandbox would obey its variable %s", profile.Printable(name))
		}
	}
	if slices.Equal(args, []string{"mcp"}) {
		return nil
	}
	written := slices.Concat([]string{"run"}, w.Options)
	if len(args) >= len(written) && slices.Equal(args[:len(written)], written) {
		for rest := args[len(written):]; len(rest) > 1; rest = rest[2:] {
			if rest[0] == "--" {
				return nil
			}
			if name, of, _ := strings.Cut(rest[1], "="); rest[0] != "--env-as" || of != carrier+name {
				break
			}
		}
	}
	return errors.New("it starts clai-sandbox with words of its own; if they are yours, name the same options behind --, or take it out of the file meanwhile")
}

// as is a value of a type that it must have as it stands.
func as[T any](value any) (t T, err error) {
	text, err := json.Marshal(value)
	if err == nil && value == nil {
		err = errors.New("it is null")
	}
	if err == nil {
		err = json.Unmarshal(text, &t)
	}
	return t, err
}
