package policy

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"
	"strings"
)

// A Binding is what an approval is for, and nothing else: these words, here, by this agent in this
// session, with this environment.
type Binding struct {
	Argv    []string `json:"argv"`
	Cwd     string   `json:"cwd,omitempty"`
	Agent   string   `json:"agentId,omitempty"`
	Session string   `json:"sessionKey,omitempty"`
	EnvHash string   `json:"envHash,omitempty"` // empty: no overrides
	EnvKeys []string `json:"-"`
}

// newBinding binds to words and to the hash of the overrides.
func newBinding(argv []string, cwd, agent, session string, env map[string]string) Binding {
	hash, keys := hashEnvironment(env)
	return Binding{argv, cwd, agent, session, hash, keys}
}

// hashEnvironment is the hex SHA-256 of the overrides as sorted pairs, and their names. Without any
// it is empty.
func hashEnvironment(env map[string]string) (hash string, keys []string) {
	values := make(map[string]string, len(env))
	for name, value := range env {
		// Space around a name is none of it, as the protocol's other end has it.
		if trimmed := strings.TrimSpace(name); bindableName(trimmed) {
			if _, twice := values[trimmed]; !twice || trimmed == name {
				values[trimmed] = value
			}
		}
	}
	keys = slices.Collect(maps.Keys(values))
	if len(keys) == 0 {
		return "", nil
	}
	sort.Slice(keys, func(i, j int) bool { return collatesBefore(keys[i], keys[j]) })
	pairs := make([][2]string, len(keys))
	for i, name := range keys {
		pairs[i] = [2]string{name, values[name]}
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(pairs); err != nil {
		panic(err) // strings
	}
	sum := sha256.Sum256(bytes.TrimSuffix(text.Bytes(), []byte("\n")))
	return hex.EncodeToString(sum[:]), keys
}

// bindableName is a portable name, or one with parentheses as Windows has them.
func bindableName(name string) bool {
	return portableName(strings.NewReplacer("(", "", ")", "").Replace(name)) && name[0] != '(' && name[0] != ')'
}

// collatesBefore orders names as the protocol's other end does, which is not by bytes: "_",
// parentheses, digits, then letters whatever their case; among equals the small letter first.
func collatesBefore(a, b string) bool {
	for i := 0; i < len(a) && i < len(b); i++ {
		if x, y := collationKey(a[i]), collationKey(b[i]); x != y {
			return x < y
		}
	}
	if len(a) != len(b) {
		return len(a) < len(b)
	}
	for i := range len(a) {
		if a[i] != b[i] {
			return a[i] > b[i]
		}
	}
	return false
}

func collationKey(c byte) int {
	switch {
	case c == '_':
		return 0
	case c == '(' || c == ')':
		return int(c)
	case c >= '0' && c <= '9':
		return 100 + int(c)
	}
	return 200 + int(c|0x20)
}

// A BindingError says how a run differs from what was approved.
type BindingError struct {
	Code                 string
	EnvKeys              []string
	ExpectedEnv, ActualE string
}

// Codes of the protocol.
const (
	codeRequestMismatch = "APPROVAL_REQUEST_MISMATCH"
	codeEnvMissing      = "APPROVAL_ENV_BINDING_MISSING"
	codeEnvMismatch     = "APPROVAL_ENV_MISMATCH"
)

func (e *BindingError) Error() string {
	switch e.Code {
	case codeEnvMissing:
		return "approval id missing env binding for requested env overrides"
	case codeEnvMismatch:
		return "approval id env binding mismatch"
	default:
		return "approval id does not match request"
	}
}

// Check holds a run against what was approved. Words are compared exactly: a space at the end makes
// another command.
func (b Binding) Check(run Binding) error {
	same := len(b.Argv) > 0 && slices.Equal(b.Argv, run.Argv) && b.Cwd == run.Cwd && b.Agent == run.Agent && b.Session == run.Session
	switch {
	case !same:
		return &BindingError{Code: codeRequestMismatch, EnvKeys: run.EnvKeys}
	case b.EnvHash == "" && run.EnvHash != "":
		return &BindingError{Code: codeEnvMissing, EnvKeys: run.EnvKeys}
	case subtle.ConstantTimeCompare([]byte(b.EnvHash), []byte(run.EnvHash)) != 1:
		return &BindingError{codeEnvMismatch, run.EnvKeys, b.EnvHash, run.EnvHash}
	}
	return nil
}

// A Plan is exactly what runs once a person has approved it.
type Plan struct {
	Argv        []string     `json:"argv"`
	Cwd         string       `json:"cwd"`
	CommandText string       `json:"commandText"`
	Preview     string       `json:"commandPreview,omitempty"`
	Agent       string       `json:"agentId,omitempty"`
	Session     string       `json:"sessionKey,omitempty"`
	File        *boundFile   `json:"mutableFileOperand,omitempty"`
	Executable  string       `json:"executable,omitempty"` // the real path of argv[0], or of the program that a wrapper starts
	words       []Executable // what was looked up
}

// A boundFile is a script in the words of a plan. It must not have changed when the plan runs.
type boundFile struct {
	Index  int    `json:"argvIndex"`
	Path   string `json:"path"`
	SHA256 string `json:"sha256"`
}

// Trimmed is a plan that came over the wire: no space around what is not a word of the command.
func (p Plan) Trimmed() Plan {
	for _, text := range [...]*string{&p.Cwd, &p.CommandText, &p.Preview, &p.Agent, &p.Session} {
		*text = strings.TrimSpace(*text)
	}
	if p.File != nil {
		p.File = &boundFile{p.File.Index, strings.TrimSpace(p.File.Path), strings.TrimSpace(p.File.SHA256)}
	}
	return p
}

// ParsePlan reads a plan that came over the wire, or was stored. It is not ok where it has no words
// or no text, or where what it says of its script is not whole: it would run without being held
// against that.
func ParsePlan(raw json.RawMessage) (Plan, bool) {
	var p struct {
		Argv                                                                   []any
		Cwd, CommandText, RawCommand, CommandPreview, AgentID, SessionKey, Exe any
		MutableFileOperand                                                     any
	}
	if json.Unmarshal(raw, &p) != nil {
		return Plan{}, false
	}
	text := func(values ...any) string {
		for _, value := range values {
			if s, ok := value.(string); ok && strings.TrimSpace(s) != "" {
				return strings.TrimSpace(s)
			}
		}
		return ""
	}
	plan := Plan{Cwd: text(p.Cwd), CommandText: text(p.CommandText, p.RawCommand), Preview: text(p.CommandPreview), Agent: text(p.AgentID), Session: text(p.SessionKey)}
	for _, word := range p.Argv {
		s, ok := word.(string)
		if !ok {
			s = fmt.Sprint(word)
		}
		plan.Argv = append(plan.Argv, s)
	}
	if len(plan.Argv) == 0 || plan.CommandText == "" {
		return Plan{}, false
	}
	switch operand := p.MutableFileOperand.(type) {
	case nil:
	case map[string]any:
		index, ok := operand["argvIndex"].(float64)
		file := boundFile{int(index), text(operand["path"]), text(operand["sha256"])}
		if !ok || index != math.Trunc(index) || index < 0 || file.Path == "" || file.SHA256 == "" {
			return Plan{}, false
		}
		plan.File = &file
	default:
		return Plan{}, false
	}
	return plan, true
}

// A ChangedError says what is no longer as it was when a person approved it.
type ChangedError struct{ What string }

func (e *ChangedError) Error() string {
	return fmt.Sprintf("SYSTEM_RUN_DENIED: %s changed after the approval", e.What)
}

// Recheck looks right before the run whether everything that was approved is still the same.
func (m *Machine) Recheck(p Plan) error {
	if real, err := m.Files.Real(p.Cwd); err != nil || real != p.Cwd {
		return &ChangedError{"the working directory"}
	}
	for _, word := range p.words {
		now, err := m.Find(word.Word, p.Cwd)
		if err != nil || now.Real != word.Real {
			return &ChangedError{"the program " + DisplayText(word.Word)}
		}
	}
	if p.File == nil {
		return nil
	}
	if real, err := m.Files.Real(p.File.Path); err != nil || real != p.File.Path {
		return &ChangedError{"the script"}
	}
	sum, err := m.Files.Hash(p.File.Path)
	if err != nil || subtle.ConstantTimeCompare([]byte(sum), []byte(p.File.SHA256)) != 1 {
		return &ChangedError{"the script"}
	}
	return nil
}
