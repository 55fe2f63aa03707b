package shell

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// A call is what an agent tells a hook before it runs a tool. Claude Code, codex and Crush call it
// PreToolUse, Gemini CLI BeforeTool.
type call struct {
	Event string                     `json:"hook_event_name"`
	Tool  string                     `json:"tool_name"`
	Input map[string]json.RawMessage `json:"tool_input"`
}

// maxCall bounds what a hook reads.
const maxCall = 16 << 20

// Hook answers such a call: the line that is to run becomes another, which words makes of it. The
// answer allows it, because else an agent asks about a line that nobody knows, or as codex, runs
// the one that it had.
func Hook(in io.Reader, words func(line string) string) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(in, maxCall+1))
	switch {
	case err != nil:
		return nil, err
	case len(text) > maxCall:
		return nil, fmt.Errorf("longer than %d bytes", maxCall)
	}
	var c call
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, fmt.Errorf("what the agent says is not understood: %w", err)
	}
	var line string
	if err := json.Unmarshal(c.Input["command"], &line); err != nil || line == "" {
		return nil, errors.New("the agent names no command")
	}
	if c.Input["command"], err = json.Marshal(words(line)); err != nil {
		return nil, err
	}
	type object = map[string]any
	if c.Event == "BeforeTool" {
		return json.Marshal(object{"decision": "allow", "hookSpecificOutput": object{"hookEventName": c.Event, "tool_input": c.Input}})
	}
	if c.Event != "PreToolUse" {
		return nil, fmt.Errorf("it is a hook for what comes before a command, not for %.100q", c.Event)
	}
	return json.Marshal(object{"hookSpecificOutput": object{"hookEventName": c.Event, "permissionDecision": "allow",
		"permissionDecisionReason": "it runs in a sandbox", "updatedInput": c.Input}})
}
