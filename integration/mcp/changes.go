package mcp

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox"
	"github.com/clairun/clai-sandbox/sandbox/cow/changes"
)

// ProposeChanges are the arguments of changes_propose.
type ProposeChanges struct {
	Paths   []string `json:"paths,omitempty" jsonschema:"what a person shall look at, with all that is below; absolute or below the workspace; absent with a message: everything"`
	Message string   `json:"message,omitempty" jsonschema:"what they are, and why, in a few words; without paths and message, the call only asks what became of them"`
	Release bool     `json:"release,omitempty" jsonschema:"end the session's sandbox first, with its shell and what runs in it in the background, if there is one: it has the changes in use"`
}

// ProposedChanges answers them.
type ProposedChanges struct {
	Changes []ProposedChange `json:"changes" jsonschema:"at most 200, those that wait first"`
	More    int              `json:"more,omitempty" jsonschema:"how many are not listed"`
	Waiting int              `json:"waiting" jsonschema:"how many wait for a person"`
	InUse   bool             `json:"inUse,omitempty" jsonschema:"whether a command that still runs keeps the rules from being asked"`
	Message string           `json:"message"`
}

// ProposedChange is what became of one.
type ProposedChange struct {
	Path  string `json:"path"`
	State string `json:"state" jsonschema:"waiting, applied, applied_by_rule, discarded, never (a rule keeps it from the host) or undone"`
}

const (
	maxProposedPaths = 100
	maxListedChanges = 200
	// layerTimeout is how long a proposal waits for a command of the agent's to end.
	layerTimeout = 3 * time.Second
)

// addChanges offers changes_propose where something is seen copy on write.
func (s *clientSession) addChanges(server *sdk.Server) {
	if !s.copies() {
		return
	}
	add(s, server, "changes_propose", "Propose changes", "Has a person look at what was changed where changes are kept apart (copy on write). What the person's rules "+
		"allow is applied at once; the rest waits. Call again without arguments to learn what became of it.", writes,
		func(ctx context.Context, _ *sdk.CallToolRequest, in ProposeChanges) (ProposedChanges, string, bool, error) {
			r, err := s.propose(ctx, in)
			return r, r.Message, false, err
		})
}

// copies reports whether something is seen copy on write.
func (s *clientSession) copies() bool {
	o := s.options.Session
	p, err := profile.Resolve(o.Config, o.Caller, o.Request)
	return err == nil && slices.ContainsFunc(p.Grants, func(g profile.Grant) bool { return g.Access == profile.CopyOnWrite })
}

func (s *clientSession) propose(ctx context.Context, in ProposeChanges) (ProposedChanges, error) {
	r := ProposedChanges{Changes: []ProposedChange{}}
	if len(in.Paths) > maxProposedPaths {
		return r, fmt.Errorf("more than %d paths; name a directory above them", maxProposedPaths)
	}
	layers, p, err := s.layers()
	if err != nil {
		return r, err
	}
	if in.Release {
		s.endRoom()
	}
	by := make([][]string, len(layers)) // the paths, by the layer that they are in
	for _, path := range in.Paths {
		path, err := s.absolute(path, p)
		if err != nil {
			return r, err
		}
		if real, err := filepath.EvalSymlinks(p.Workspace); err == nil && profile.Within(path, p.Workspace) {
			path = filepath.Join(real, strings.TrimPrefix(path, p.Workspace)) // layers go by what a link leads to
		}
		at := -1
		for i, l := range layers {
			if profile.Within(path, l.Path) && (at < 0 || len(l.Path) > len(layers[at].Path)) {
				at = i
			}
		}
		if at < 0 {
			return r, fmt.Errorf("nothing was changed copy on write in %s", profile.Printable(path))
		}
		below, err := filepath.Rel(layers[at].Path, path)
		if err != nil {
			return r, err
		}
		by[at] = append(by[at], below)
	}
	var all []ProposedChange
	nothing := true
	for i, l := range layers {
		if len(in.Paths) > 0 && by[i] == nil {
			continue
		}
		list, inUse, err := l.Propose(ctx, in.Message, by[i], layerTimeout)
		var refused *changes.ProposalError
		if errors.As(err, &refused) {
			if len(in.Paths) > 0 || !refused.Nothing {
				return r, refused
			}
			continue
		}
		if err != nil {
			return r, errors.New("the changes cannot be looked at: " + profile.Printable(err.Error()))
		}
		nothing = false
		r.InUse = r.InUse || inUse
		for _, o := range list {
			all = append(all, ProposedChange{profile.Printable(filepath.Join(l.Path, string(o.Path))), string(o.State)})
		}
	}
	if nothing {
		return r, errors.New("nothing was changed copy on write")
	}
	r.list(all)
	return r, nil
}

// layers are those that the session's commands write, with the rules as they are written now.
func (s *clientSession) layers() ([]changes.Layer, profile.Profile, error) {
	prepared, err := s.session.Prepare(nil)
	if err != nil {
		return nil, profile.Profile{}, errors.New(explained(err))
	}
	p := prepared.Profile
	directories := s.options.Session.Caller.Directories()
	config, err := profile.Load(directories)
	if err != nil {
		return nil, p, errors.New("the person's configuration cannot be read")
	}
	rules, err := config.ChangeRules(p.Agent)
	if err != nil {
		return nil, p, errors.New("the person's configuration cannot be read")
	}
	known, err := changes.List(directories.State)
	if err != nil {
		return nil, p, errors.New("the changes cannot be looked at")
	}
	var list []changes.Layer
	for _, step := range prepared.Plan.Steps {
		if step.Layer == "" || step.Purpose == sandbox.Caches {
			continue
		}
		for _, l := range known {
			if l.Dir == step.Layer {
				l.Rules, l.Leads = rules, sandbox.ExecutedIn(p, l.Path, sandbox.Host{})
				list = append(list, l)
			}
		}
	}
	return list, p, nil
}

// list takes over what became of changes, and puts it in words.
func (r *ProposedChanges) list(all []ProposedChange) {
	counts := map[string]int{}
	for _, c := range all {
		counts[c.State]++
	}
	r.Waiting = counts[string(changes.Waiting)]
	slices.SortStableFunc(all, func(a, b ProposedChange) int { return rank(a) - rank(b) })
	r.Changes = append(r.Changes, all[:min(len(all), maxListedChanges)]...)
	r.More = len(all) - len(r.Changes)
	var words []string
	for _, w := range []struct {
		state changes.State
		text  string
	}{
		{changes.Ruled, "applied by the person's rules"}, {changes.Applied, "applied by a person"}, {changes.Discarded, "discarded"},
		{changes.Refused, "never applied, by the person's rules"}, {changes.Undone, "no change any more"}, {changes.Waiting, "waiting for a person"},
	} {
		if n := counts[string(w.state)]; n > 0 {
			words = append(words, fmt.Sprintf("%d %s", n, w.text))
		}
	}
	r.Message = "Of the proposed changes: " + strings.Join(words, ", ") + "."
	if r.InUse {
		r.Message += " Something still runs there: what the rules allow is applied when this is called after it has ended. The session's sandbox itself, release ends."
	}
	if r.Waiting > 0 {
		r.Message += " The person sees them with clai-sandbox changes review; go on with something else, and call again without arguments to learn the outcome."
	}
}

func rank(c ProposedChange) int {
	if c.State == string(changes.Waiting) {
		return 0
	}
	return 1
}
