package policy

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sort"
	"strings"
)

// Approvals is the approvals file of the host that runs commands. It is the authority: whoever
// sends a command can only be stricter.
type Approvals struct {
	Socket   Socket
	Defaults AgentApprovals
	Agents   map[string]*AgentApprovals // by agent; "*" is for every one
	Problems []string                   // what in the file counts for nothing, or as the strictest, and why
	Absent   bool                       // there is no file

	extra fields // what others keep in the file
}

// A Socket is where a program of the user's answers prompts. The token is a secret: it never leaves
// the host.
type Socket struct {
	Path  string
	Token string

	extra fields
}

// AgentApprovals is what the file says about one agent, or for all of them.
type AgentApprovals struct {
	Security        Word[Security]
	Ask             Word[Ask]
	AskFallback     Word[Security]
	AutoAllowSkills *bool
	PatternCase     string // of the defaults: "insensitive"
	Allowlist       []Entry
	Denylist        []Entry

	extra fields
}

// A Word is a word of the file. One that nobody knows counts as the strictest, and stays in the
// file as it was written.
type Word[T ~uint8] struct {
	Value T
	Set   bool
	raw   json.RawMessage
}

// say is a word with a value.
func say[T ~uint8](value T) Word[T] { return Word[T]{Value: value, Set: true} }

// Limits of the file.
const (
	MaxApprovals = 4 << 20 // bytes
	maxEntries   = 10000
	maxAgents    = 1000
)

// A FileError says why an approvals file counts for nothing. Everything is denied then.
type FileError struct {
	Path string
	Err  error
	Hint string
}

func (e *FileError) Error() string {
	if e.Path == "" {
		return e.Err.Error()
	}
	return e.Path + ": " + e.Err.Error()
}
func (e *FileError) Unwrap() error { return e.Err }

type fields map[string]json.RawMessage

// ParseApprovals reads the text of a file, of any age: entries that are bare words, an agent called
// default. What it cannot read is an error, and never an empty file.
func ParseApprovals(text []byte) (*Approvals, error) {
	a := &Approvals{Agents: map[string]*AgentApprovals{}}
	if len(text) > MaxApprovals {
		return nil, &FileError{Err: fmt.Errorf("is larger than %d bytes", MaxApprovals)}
	}
	top, err := object(text)
	if err != nil {
		return nil, &FileError{Err: err, Hint: "mend it by hand, or move it away and begin anew"}
	}
	var version any
	_ = json.Unmarshal(top.take("version"), &version)
	if version != float64(1) {
		return nil, &FileError{Err: fmt.Errorf("version %v is not known", version), Hint: `this program reads "version": 1`}
	}
	if err := a.socket(top.take("socket")); err != nil {
		return nil, err
	}
	if raw := top.take("defaults"); isSet(raw) {
		if err := a.agent("defaults", raw, &a.Defaults); err != nil {
			return nil, err
		}
	}
	if len(a.Defaults.Allowlist) > 0 {
		a.problem("defaults.allowlist", "allows nothing: entries for every agent stand in agents.*")
	}
	if raw := top.take("agents"); isSet(raw) {
		if err := a.agents(raw); err != nil {
			return nil, err
		}
	}
	if err := a.misspelt("", top, "version", "socket", "defaults", "agents"); err != nil {
		return nil, err
	}
	a.extra = top
	return a, nil
}

func isSet(raw json.RawMessage) bool { return raw != nil && string(raw) != "null" }

// object reads a JSON object with each of its names once, and nothing behind it.
func object(text []byte) (fields, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	token, err := decoder.Token()
	if err != nil {
		return nil, fmt.Errorf("is not JSON: %w", err)
	}
	if token != json.Delim('{') {
		return nil, errors.New("is not a JSON object")
	}
	f := fields{}
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return nil, fmt.Errorf("is not JSON: %w", err)
		}
		name, _ := token.(string)
		if _, twice := f[name]; twice {
			return nil, fmt.Errorf("has %q twice", name)
		}
		var raw json.RawMessage
		if err := decoder.Decode(&raw); err != nil {
			return nil, fmt.Errorf("is not JSON: %w", err)
		}
		f[name] = raw
	}
	if _, err := decoder.Token(); err != nil {
		return nil, fmt.Errorf("is not JSON: %w", err)
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, errors.New("has text behind its end")
	}
	return f, nil
}

func (f fields) take(name string) json.RawMessage {
	raw := f[name]
	delete(f, name)
	return raw
}

func (f fields) text(name string) string {
	var text string
	_ = json.Unmarshal(f.take(name), &text)
	return strings.TrimSpace(text)
}

func (a *Approvals) socket(raw json.RawMessage) error {
	if !isSet(raw) {
		return nil
	}
	f, err := object(raw)
	if err != nil {
		return &FileError{Err: fmt.Errorf("socket %w", err)}
	}
	a.Socket = Socket{Path: f.text("path"), Token: f.text("token"), extra: f}
	return nil
}

func (a *Approvals) agents(raw json.RawMessage) error {
	list, err := object(raw)
	if err != nil {
		return &FileError{Err: fmt.Errorf("agents %w", err)}
	}
	if len(list) > maxAgents {
		return &FileError{Err: fmt.Errorf("has more than %d agents", maxAgents)}
	}
	for _, id := range sortedNames(list) {
		agent := &AgentApprovals{}
		if isSet(list[id]) {
			if err := a.agent("agents."+id, list[id], agent); err != nil {
				return err
			}
		}
		a.Agents[id] = agent
	}
	a.adoptDefault()
	return nil
}

// adoptDefault gives main what the agent called default has, which it was before. Where both say
// something, main wins. An agent that is called default now keeps its own.
func (a *Approvals) adoptDefault() {
	old := a.Agents["default"]
	if old == nil {
		return
	}
	main := a.Agents["main"]
	if main == nil {
		copied := *old
		copied.extra = maps.Clone(old.extra)
		a.Agents["main"] = &copied
		return
	}
	if !main.Security.Set {
		main.Security = old.Security
	}
	if !main.Ask.Set {
		main.Ask = old.Ask
	}
	if !main.AskFallback.Set {
		main.AskFallback = old.AskFallback
	}
	if main.AutoAllowSkills == nil {
		main.AutoAllowSkills = old.AutoAllowSkills
	}
	main.Allowlist = joinEntries(slices.Clone(main.Allowlist), old.Allowlist)
	main.Denylist = joinEntries(slices.Clone(main.Denylist), old.Denylist)
	for name, raw := range old.extra {
		if _, ok := main.extra[name]; !ok {
			main.extra[name] = raw
		}
	}
}

func joinEntries(a, b []Entry) []Entry {
	for _, e := range b {
		if !slices.ContainsFunc(a, func(have Entry) bool { return have.Pattern == e.Pattern && have.ArgPattern == e.ArgPattern }) {
			a = append(a, e)
		}
	}
	return a
}

func (a *Approvals) agent(place string, raw json.RawMessage, into *AgentApprovals) error {
	f, err := object(raw)
	if err != nil {
		return &FileError{Err: fmt.Errorf("%s %w", place, err)}
	}
	into.Security = readWord[Security](a, place+".security", f.take("security"), securityNames[:])
	into.Ask = readWord[Ask](a, place+".ask", f.take("ask"), askNames[:])
	into.AskFallback = readWord[Security](a, place+".askFallback", f.take("askFallback"), securityNames[:])
	if raw := f.take("autoAllowSkills"); isSet(raw) {
		skills := false
		if err := json.Unmarshal(raw, &skills); err != nil {
			a.problem(place+".autoAllowSkills", "is neither true nor false and counts as false")
		}
		into.AutoAllowSkills = &skills
	}
	into.PatternCase = f.text("patternCase")
	switch into.PatternCase {
	case "":
	case "insensitive":
		a.problem(place+".patternCase", "makes /opt/tool and /OPT/Tool the same: another program may pass")
	default:
		a.problem(place+".patternCase", "is not a known word: patterns are case-sensitive")
	}
	if into.Allowlist, err = a.entries(place+".allowlist", f.take("allowlist"), true); err != nil {
		return err
	}
	if into.Denylist, err = a.entries(place+".denylist", f.take("denylist"), false); err != nil {
		return err
	}
	if err := a.misspelt(place+".", f, agentNames...); err != nil {
		return err
	}
	into.extra = f
	return nil
}

func (a *Approvals) problem(place, text string) { a.Problems = append(a.Problems, place+" "+text) }

// readWord reads one of the known words, exactly as it is spelled.
func readWord[T ~uint8](a *Approvals, place string, raw json.RawMessage, names []string) Word[T] {
	i, ok := exactWord(a, place, raw, names)
	w := Word[T]{Value: T(i), Set: isSet(raw), raw: raw}
	if ok {
		w.raw = nil
	}
	return w
}

// exactWord is the place of a word in names, and 0, the strictest, for one that is not there.
func exactWord(a *Approvals, place string, raw json.RawMessage, names []string) (uint8, bool) {
	if !isSet(raw) {
		return 0, true
	}
	var text string
	if err := json.Unmarshal(raw, &text); err == nil {
		if i := slices.Index(names, text); i >= 0 {
			return uint8(i), true
		}
	}
	a.problem(place, fmt.Sprintf("is %s, which is none of %s, and counts as %s", DisplayText(string(raw)), strings.Join(names, ", "), names[0]))
	return 0, false
}

// entries reads a list. A mistake in an allowlist loses an entry, and is told; a mistake in a deny
// list is an error.
func (a *Approvals) entries(place string, raw json.RawMessage, lenient bool) ([]Entry, error) {
	if !isSet(raw) {
		return nil, nil
	}
	mistake := func(text string) error {
		if lenient {
			a.problem(place, text)
			return nil
		}
		return &FileError{Err: fmt.Errorf("%s %s", place, text)}
	}
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, mistake("is not a list")
	}
	if len(list) > maxEntries {
		return nil, &FileError{Err: fmt.Errorf("%s has more than %d entries", place, maxEntries)}
	}
	entries := make([]Entry, 0, len(list))
	seen := map[string]int{}
	for i, item := range list {
		var e Entry
		if json.Unmarshal(item, &e.Pattern) != nil {
			if f, err := object(item); err == nil {
				for _, name := range entryNames {
					delete(f, name)
				}
				if err := a.misspelt(fmt.Sprintf("%s[%d].", place, i), f, entryNames...); err != nil {
					return nil, err
				}
			} else if strings.HasPrefix(strings.TrimSpace(string(item)), "{") {
				return nil, &FileError{Err: fmt.Errorf("%s[%d] %w", place, i, err)}
			}
			if err := json.Unmarshal(item, &e); err != nil {
				if err := mistake(fmt.Sprintf("[%d] is no entry", i)); err != nil {
					return nil, err
				}
				continue
			}
		}
		if strings.TrimSpace(e.Pattern) == "" {
			if err := mistake(fmt.Sprintf("[%d] has no pattern", i)); err != nil {
				return nil, err
			}
			continue
		}
		if text := strings.TrimSpace(e.Pattern); lenient && text != "*" && !strings.ContainsAny(text, "/~") && !strings.HasPrefix(text, commandPrefix) {
			a.problem(place, fmt.Sprintf("[%d] %s is a bare name, which allows nothing: name the program by its path", i, quote(DisplayText(text))))
		}
		if e.ArgPattern != "" {
			if _, err := NewArgPattern(e.ArgPattern); err != nil {
				if err := mistake(fmt.Sprintf("[%d] has an argument pattern that cannot be read (%v)", i, err)); err != nil {
					return nil, err
				}
			}
		}
		if e.ID == "" {
			what := place + "\x00" + e.Pattern + "\x00" + e.ArgPattern
			e.ID = stableID(what, seen[what])
			seen[what]++
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// NewID is a random UUID.
func NewID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// stableID is a UUID for an entry that has none: the same each time that the file is read.
func stableID(what string, nth int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d\x00%s", nth, what))
	b := sum[:16]
	b[6], b[8] = b[6]&0x0f|0x80, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// JSON is the file's text: two spaces, a newline at the end.
func (a *Approvals) JSON() []byte { return a.encode(true) }

// Shown is the text of JSON without the token, for whoever asks.
func (a *Approvals) Shown() json.RawMessage { return bytes.TrimSpace(a.encode(false)) }

func (a *Approvals) encode(secret bool) []byte {
	agents := ordered{}
	names := sortedNames(a.Agents)
	// The older name stands behind all others.
	slices.SortStableFunc(names, func(x, y string) int {
		switch {
		case x == "default" && y != "default":
			return 1
		case y == "default" && x != "default":
			return -1
		}
		return 0
	})
	for _, id := range names {
		agents.add(id, a.Agents[id].ordered())
	}
	socket := ordered{}
	if a.Socket.Path != "" {
		socket.add("path", a.Socket.Path)
	}
	if secret && a.Socket.Token != "" {
		socket.add("token", a.Socket.Token)
	}
	socket.extra(a.Socket.extra)
	top := ordered{}
	top.add("version", 1)
	top.add("socket", socket)
	top.add("defaults", a.Defaults.ordered())
	top.add("agents", agents)
	top.extra(a.extra)
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(top); err != nil {
		panic(err) // plain data
	}
	return b.Bytes()
}

func (g *AgentApprovals) ordered() ordered {
	o := ordered{}
	addWord(&o, "security", g.Security.Set, g.Security.raw, g.Security.Value.String())
	addWord(&o, "ask", g.Ask.Set, g.Ask.raw, g.Ask.Value.String())
	addWord(&o, "askFallback", g.AskFallback.Set, g.AskFallback.raw, g.AskFallback.Value.String())
	if g.AutoAllowSkills != nil {
		o.add("autoAllowSkills", *g.AutoAllowSkills)
	}
	if g.PatternCase != "" {
		o.add("patternCase", g.PatternCase)
	}
	if g.Allowlist != nil {
		o.add("allowlist", g.Allowlist)
	}
	if g.Denylist != nil {
		o.add("denylist", g.Denylist)
	}
	o.extra(g.extra)
	return o
}

func addWord(o *ordered, name string, set bool, raw json.RawMessage, text string) {
	switch {
	case raw != nil && isSet(raw):
		o.add(name, raw)
	case set:
		o.add(name, text)
	}
}

// ordered is a JSON object whose names keep their order.
type ordered []struct {
	name  string
	value any
}

func (o *ordered) add(name string, value any) {
	*o = append(*o, struct {
		name  string
		value any
	}{name, value})
}

func (o *ordered) extra(f fields) {
	for _, name := range sortedNames(f) {
		o.add(name, f[name])
	}
}

func (o ordered) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, field := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		for j, value := range [...]any{field.name, field.value} {
			if j == 1 {
				b.WriteByte(':')
			}
			encoder := json.NewEncoder(&b)
			encoder.SetEscapeHTML(false)
			if err := encoder.Encode(value); err != nil {
				return nil, err
			}
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

func sortedNames[T any](m map[string]T) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// Resolved is what the file says for one agent.
type Resolved struct {
	Agent           string
	Security        Security
	Ask             Ask
	AskFallback     Security
	AutoAllowSkills bool
	CaseInsensitive bool
	Allow, Deny     []Entry
	Sources         sources
}

// sources say which part of the file a value is from: "agents.main.ask"; empty is none.
type sources struct{ Security, Ask, AskFallback string }

// MainAgent is the agent that is meant where none is named.
const MainAgent = "main"

// Resolve joins the layers of the file for an agent, field by field: agent, "*", defaults, what the
// caller would have, built-in.
func (a *Approvals) Resolve(agent string, caller Preference) Resolved {
	r := a.resolveFields(agent, caller)
	for _, list := range a.allowLists(r.Agent) {
		r.Allow = append(r.Allow, list...)
	}
	for _, list := range a.denyLists(r.Agent) {
		r.Deny = append(r.Deny, list...)
	}
	return r
}

func (a *Approvals) resolveFields(agent string, caller Preference) Resolved {
	if agent = strings.TrimSpace(agent); agent == "" {
		agent = MainAgent
	}
	r := Resolved{Agent: agent, Security: SecurityDeny, Ask: AskOnMiss, AskFallback: SecurityDeny,
		CaseInsensitive: a.Defaults.PatternCase == "insensitive"}
	if caller.Security != nil {
		r.Security = *caller.Security
	}
	if caller.Ask != nil {
		r.Ask = *caller.Ask
	}
	// The last layer first: an earlier one overwrites it.
	r.overlay("defaults", &a.Defaults)
	r.overlay("agents.*", a.Agents["*"])
	r.overlay("agents."+agent, a.Agents[agent])
	return r
}

func (r *Resolved) overlay(name string, layer *AgentApprovals) {
	if layer == nil {
		return
	}
	if layer.Security.Set {
		r.Security, r.Sources.Security = layer.Security.Value, name+".security"
	}
	if layer.Ask.Set {
		r.Ask, r.Sources.Ask = layer.Ask.Value, name+".ask"
	}
	if layer.AskFallback.Set {
		r.AskFallback, r.Sources.AskFallback = layer.AskFallback.Value, name+".askFallback"
	}
	if layer.AutoAllowSkills != nil {
		r.AutoAllowSkills = *layer.AutoAllowSkills
	}
}

// allowLists are those of "*" and of the agent. Older files have none in the defaults, and what
// stands there allows nothing.
func (a *Approvals) allowLists(agent string) (lists [2][]Entry) {
	for i, name := range [...]string{"*", agent} {
		if layer := a.Agents[name]; layer != nil && (i == 0 || agent != "*") {
			lists[i] = layer.Allowlist
		}
	}
	return lists
}

func (a *Approvals) denyLists(agent string) (lists [3][]Entry) {
	lists[0] = a.Defaults.Denylist
	for i, name := range [...]string{"*", agent} {
		if layer := a.Agents[name]; layer != nil && (i == 0 || agent != "*") {
			lists[i+1] = layer.Denylist
		}
	}
	return lists
}
