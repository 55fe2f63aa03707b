package policy

import (
	"fmt"
	"slices"
	"strings"
)

// Tools is what one layer says about an agent's tools. A list that is nil says nothing; an empty
// one says: none.
type Tools struct {
	Allow     []string `json:"allow,omitempty"`
	AlsoAllow []string `json:"alsoAllow,omitempty"`
	Deny      []string `json:"deny,omitempty"`
}

// A ToolLayer is a layer with a name for people: "tools of the agent main".
type ToolLayer struct {
	Name string
	Tools
}

// A ToolDecision says whether an agent may use a tool, and which layer refused.
type ToolDecision struct {
	Allowed bool
	Layer   string
	Why     string
}

// toolGroup are the tools of a group, or nil for a name that is none.
func toolGroup(name string) []string {
	switch name {
	case "group:fs":
		return []string{"read", "write", "edit", "apply_patch"}
	case "group:runtime":
		return []string{"exec", "process"}
	case "group:web":
		return []string{"web_search", "web_fetch"}
	case "group:memory":
		return []string{"memory_search", "memory_get"}
	case "group:sessions":
		return []string{"sessions_list", "sessions_history", "sessions_send", "sessions_spawn", "sessions_yield", "subagents", "session_status"}
	case "group:ui":
		return []string{"browser", "canvas"}
	case "group:automation":
		return []string{"cron", "gateway"}
	case "group:messaging":
		return []string{"message"}
	case "group:nodes":
		return []string{"nodes"}
	case "group:agents":
		return []string{"agents_list"}
	case "group:media":
		return []string{"image", "tts"}
	}
	return nil
}

// ToolProfile is the allow list of a profile. An unknown profile allows nothing.
func ToolProfile(name string) (Tools, bool) {
	switch name {
	case "minimal":
		return Tools{Allow: []string{"session_status"}}, true
	case "coding":
		return Tools{Allow: []string{"group:fs", "group:runtime", "group:web", "group:sessions", "group:memory", "image"}}, true
	case "messaging":
		return Tools{Allow: []string{"group:messaging", "sessions_list", "sessions_history", "sessions_send", "session_status"}}, true
	case "full":
		return Tools{Allow: []string{"*"}}, true
	}
	return Tools{Allow: []string{}}, false
}

// expandTools puts the tools of each group in its place.
func expandTools(names []string) []string {
	var list []string
	for _, name := range names {
		name = toolName(name)
		group := toolGroup(name)
		if group == nil {
			group = []string{name}
		}
		for _, tool := range group {
			if tool != "" && !slices.Contains(list, tool) {
				list = append(list, tool)
			}
		}
	}
	return list
}

func toolName(name string) string {
	name = strings.ToLower(strings.TrimSpace(name))
	switch name {
	case "bash", "shell", "bash_exec":
		return "exec"
	case "glob", "grep": // they tell what read tells
		return "read"
	case "apply-patch":
		return "apply_patch"
	}
	return name
}

func matchesTool(patterns []string, tool string) bool {
	for _, pattern := range expandTools(patterns) {
		if pattern == "*" || glob(pattern, tool) {
			return true
		}
	}
	return false
}

// isAsking reports whether a tool only tells about the sandbox, or asks a person: an allow list
// need not name it, and a deny list can.
func isAsking(tool string) bool {
	return slices.Contains([]string{"fs_request_grant", "ask_person", "sandbox_explain", "changes_propose"}, tool)
}

// CheckTool asks every layer: one that refuses is enough. "exec", "bash" and "bash_exec" are one
// tool, and so are "read", "glob" and "grep": whoever refuses one means what it does.
func CheckTool(tool string, layers ...ToolLayer) ToolDecision {
	tool = toolName(tool)
	for _, l := range layers {
		if matchesTool(l.Deny, tool) {
			return ToolDecision{false, l.Name, fmt.Sprintf("%s denies it", l.Name)}
		}
		if l.Allow == nil || isAsking(tool) || matchesTool(l.Allow, tool) || matchesTool(l.AlsoAllow, tool) {
			continue
		}
		why := fmt.Sprintf("%s does not allow it", l.Name)
		if len(l.Allow) == 0 {
			why = fmt.Sprintf("%s has an empty allow list, which allows nothing; for everything write [\"*\"]", l.Name)
		}
		return ToolDecision{false, l.Name, why}
	}
	if len(layers) == 0 {
		return ToolDecision{false, "", "no layer allows it"}
	}
	return ToolDecision{Allowed: true}
}

// ToolMistakes are what is probably not meant in a layer. known are the tools that there are,
// besides those of the groups.
func ToolMistakes(l ToolLayer, known ...string) []string {
	var list []string
	if l.Allow != nil && len(l.Allow) == 0 {
		list = append(list, fmt.Sprintf("%s: the allow list is empty, so nothing is allowed; for everything write [\"*\"]", l.Name))
	}
	for _, name := range slices.Concat(l.Allow, l.AlsoAllow, l.Deny) {
		switch name := toolName(name); {
		case strings.HasPrefix(name, "group:"):
			if toolGroup(name) == nil {
				list = append(list, fmt.Sprintf("%s: no group is called %s", l.Name, DisplayText(name)))
			}
		case len(known) > 0 && !strings.Contains(name, "*") && !isTool(name, known):
			text := fmt.Sprintf("%s: no tool is called %s", l.Name, DisplayText(name))
			if meant := nearestTool(name, known); meant != "" {
				text += "; is " + meant + " meant?"
			}
			list = append(list, text)
		}
	}
	return list
}

// groups are all that ToolGroup knows.
var groups = []string{"group:fs", "group:runtime", "group:web", "group:memory", "group:sessions", "group:ui", "group:automation", "group:messaging", "group:nodes", "group:agents", "group:media"}

func isTool(name string, known []string) bool {
	return slices.Contains(known, name) || slices.ContainsFunc(groups, func(group string) bool { return slices.Contains(toolGroup(group), name) })
}

// nearestTool is a tool's name of the same letters but for one, or of the same without its
// underscores.
func nearestTool(name string, known []string) string {
	fold := func(s string) string { return strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(s)) }
	for _, k := range known {
		a, b := fold(name), fold(k)
		if a == b || letters(a) == letters(b) {
			return k
		}
		if len(a) > len(b) {
			a, b = b, a
		}
		at := 0
		for at < len(a) && a[at] == b[at] {
			at++
		}
		if len(b)-len(a) <= 1 && (a[at:] == b[at+len(b)-len(a):] || len(a) == len(b) && at < len(a) && a[at+1:] == b[at+1:]) {
			return k
		}
	}
	return ""
}

// letters are those of a word, in order: two of them swapped make the same.
func letters(word string) string {
	list := []byte(word)
	slices.Sort(list)
	return string(list)
}

// SandboxTools is the policy for tools of agents in a sandbox: agent over global over built-in, and
// image always with what is allowed. What alsoAllow names is taken out of the built-in deny list.
func SandboxTools(global, agent Tools) Tools {
	allow, also := defaultSandboxAllow(), []string(nil)
	for _, layer := range [...]Tools{global, agent} {
		if layer.Allow != nil {
			allow, also = layer.Allow, nil
		}
		if layer.AlsoAllow != nil {
			also = layer.AlsoAllow
		}
	}
	result := Tools{Allow: expandTools(allow)}
	if len(result.Allow) > 0 { // an empty list stays one: nothing is allowed
		result.Allow = expandTools(slices.Concat(result.Allow, also))
		if !slices.Contains(result.Allow, "*") {
			result.Allow = expandTools(append(result.Allow, "image"))
		}
	} else {
		result.Allow = []string{}
	}
	switch {
	case agent.Deny != nil:
		result.Deny = expandTools(agent.Deny)
	case global.Deny != nil:
		result.Deny = expandTools(global.Deny)
	default:
		named := expandTools(slices.Concat(explicit(global), explicit(agent)))
		for _, tool := range expandTools(defaultSandboxDeny()) {
			if !slices.Contains(named, tool) {
				result.Deny = append(result.Deny, tool)
			}
		}
	}
	if slices.Contains(result.Deny, "image") {
		result.Allow = slices.DeleteFunc(result.Allow, func(tool string) bool { return tool == "image" })
	}
	return result
}

func explicit(t Tools) []string { return slices.Concat(t.Allow, t.AlsoAllow) }

func defaultSandboxAllow() []string {
	return []string{"exec", "process", "read", "write", "edit", "apply_patch", "image", "sessions_list", "sessions_history", "sessions_send",
		"sessions_spawn", "sessions_yield", "subagents", "session_status"}
}

func defaultSandboxDeny() []string { return []string{"browser", "canvas", "nodes", "cron", "gateway"} }
