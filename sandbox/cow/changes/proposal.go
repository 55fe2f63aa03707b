package changes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
)

// A Proposal is what an agent wants a person to look at. It is the agent's word: what it says
// decides nothing.
type Proposal struct {
	Message string     `json:"message"` // not to be shown unescaped
	At      int64      `json:"atUnixMs"`
	Paths   []Proposed `json:"paths"`
}

// Proposed is what became of one path.
type Proposed struct {
	Path  []byte `json:"path"`
	State State  `json:"state"`
}

// A State is that of a proposed change.
type State string

const (
	Waiting   State = "waiting"         // nobody has decided
	Ruled     State = "applied_by_rule" // the configuration's rules did
	Applied   State = "applied"         // a person did
	Discarded State = "discarded"
	Refused   State = "never"  // a rule never applies it
	Undone    State = "undone" // there is no change any more, and nobody decided
)

const (
	proposalName = "proposal.json"
	// MaxMessage bounds what an agent says, in bytes, MaxProposed how many changes it may propose
	// at a time.
	MaxMessage  = 2000
	MaxProposed = 1000
	maxProposal = 16 << 20 // bytes of the file
)

// Proposal is the one of a layer of which something waits, or nil.
func (l Layer) Proposal() (*Proposal, error) {
	p, err := readProposal(l.Dir)
	if err != nil || p == nil || !slices.ContainsFunc(p.Paths, func(o Proposed) bool { return o.State == Waiting }) {
		return nil, err
	}
	return p, nil
}

func readProposal(dir string) (*Proposal, error) {
	file, err := os.OpenFile(filepath.Join(dir, proposalName), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	p := &Proposal{}
	info, err := file.Stat()
	if err == nil && info.Size() > maxProposal {
		err = errors.New("too large")
	}
	if err == nil {
		err = json.NewDecoder(file).Decode(p)
	}
	if err != nil {
		return nil, fmt.Errorf("what the agent proposed: %w", err)
	}
	return p, nil
}

func (p *Proposal) write(dir string) error {
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return writeWhole(dir, proposalName, text)
}

// decided notes what became of changes that were proposed. An agent is told by it; nothing else
// goes by it.
func (l Layer) decided(state State, is func(name string) bool) {
	p, err := readProposal(l.Dir)
	if p == nil || err != nil {
		return
	}
	noted := false
	for i := range p.Paths {
		if o := &p.Paths[i]; o.State == Waiting && is(string(o.Path)) {
			o.State, noted = state, true
		}
	}
	if noted {
		_ = p.write(l.Dir)
	}
}

// A ProposalError says why something cannot be proposed, to whoever proposes it.
type ProposalError struct {
	Why     string
	Nothing bool // because there is nothing to propose
}

func (e *ProposalError) Error() string { return e.Why }

// Propose has a person look at changes, with all that is below the paths; none is all. What the
// layer's rules apply is applied at once, unless somebody has the layer in use for longer than
// timeout; then the rules are asked by the next call. Without a message and paths, nothing new is
// proposed. The answer is what became of all that was proposed, and does not tell what the host has
// that commands do not see.
func (l Layer) Propose(ctx context.Context, message string, selected []string, timeout time.Duration) (list []Proposed, inUse bool, err error) {
	switch {
	case len(message) > MaxMessage:
		return nil, false, &ProposalError{Why: fmt.Sprintf("the message has more than %d bytes", MaxMessage)}
	case !utf8.ValidString(message):
		return nil, false, &ProposalError{Why: "the message is not UTF-8"}
	}
	p, err := readProposal(l.Dir)
	if err != nil {
		return nil, false, err
	}
	if p == nil {
		p = &Proposal{}
	}
	review, err := l.seen(ctx)
	if err != nil {
		return nil, false, err
	}
	if message != "" || len(selected) > 0 || len(p.Paths) == 0 {
		if err := p.add(review, message, selected); err != nil {
			return nil, false, err
		}
		if err := p.write(l.Dir); err != nil {
			return nil, false, err
		}
	}
	if inUse, err = l.applyProposed(ctx, p, timeout); err != nil {
		return nil, inUse, err
	}
	if p, err = readProposal(l.Dir); err != nil || p == nil {
		return nil, inUse, err
	}
	if review, err = l.seen(ctx); err != nil {
		return nil, inUse, err
	}
	p.look(review)
	return p.Paths, inUse, nil
}

// seen are the changes of a layer but for those in the place of something hidden: an agent is not
// told how these compare with it.
func (l Layer) seen(ctx context.Context) (*Review, error) {
	review, err := l.Review(ctx)
	if err != nil {
		return nil, err
	}
	veiled, err := l.veiled()
	review.Changes = slices.DeleteFunc(review.Changes, func(c Change) bool { return isVeiled(veiled, c.Path) })
	return review, err
}

// add proposes changes, besides what was proposed before.
func (p *Proposal) add(r *Review, message string, selected []string) error {
	var paths []Proposed
	for i := range r.Changes {
		if covers(selected, r.Changes[i].Path) {
			paths = append(paths, Proposed{[]byte(r.Changes[i].Path), Waiting})
		}
	}
	for _, name := range selected {
		if !slices.ContainsFunc(paths, func(o Proposed) bool { return covers([]string{name}, string(o.Path)) }) {
			return &ProposalError{Why: fmt.Sprintf("nothing was changed in %q", name)}
		}
	}
	if len(paths) == 0 {
		return &ProposalError{"nothing was changed", true}
	}
	if len(paths) > MaxProposed {
		return &ProposalError{Why: fmt.Sprintf("%d changes are more than %d at a time: name the paths that matter", len(paths), MaxProposed)}
	}
	again := map[string]bool{}
	for _, o := range paths {
		again[string(o.Path)] = true
	}
	for _, o := range p.Paths {
		if !again[string(o.Path)] && len(paths) < 2*MaxProposed {
			paths = append(paths, o)
		}
	}
	slices.SortFunc(paths, func(a, b Proposed) int { return strings.Compare(string(a.Path), string(b.Path)) })
	p.Paths, p.At = paths, time.Now().UnixMilli()
	if message != "" {
		p.Message = message
	}
	return nil
}

// applyProposed applies what the rules do, of what waits.
func (l Layer) applyProposed(ctx context.Context, p *Proposal, timeout time.Duration) (inUse bool, err error) {
	var paths []string
	for _, o := range p.Paths {
		if o.State == Waiting {
			paths = append(paths, string(o.Path))
		}
	}
	if l.Rules == nil || len(paths) == 0 {
		return false, nil
	}
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		_, err = l.Apply(ctx, Selection{Paths: paths, ByRules: true})
		if held := (*InUseError)(nil); !errors.As(err, &held) {
			return false, err
		}
		if time.Since(began) > timeout || ctx.Err() != nil {
			return true, nil
		}
	}
}

// look says what became of what nobody decided.
func (p *Proposal) look(r *Review) {
	now := map[string]*Change{}
	for i := range r.Changes {
		now[r.Changes[i].Path] = &r.Changes[i]
	}
	for i := range p.Paths {
		o := &p.Paths[i]
		switch c := now[string(o.Path)]; {
		case o.State != Waiting:
		case c == nil:
			o.State = Undone
		case c.Never != "" || c.Verdict == profile.VerdictNever:
			o.State = Refused
		}
	}
}
