package review

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"charm.land/bubbles/v2/textinput"
	tea "charm.land/bubbletea/v2"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/profile/text"
)

// guard is how long no key must have been pressed since a request stands on the screen before one
// can answer it: what comes while somebody types is not answered by what they type for the one
// before.
const guard = time.Second

// via names this way of answering.
const via = "terminal"

// A model is the state of the screen. It is changed by update alone.
type model struct {
	ctx    context.Context
	broker grants.Broker
	now    func() time.Time

	requests []grants.Request
	chosen   string           // the id of the request on the screen
	since    time.Time        // when it came there
	pressed  time.Time        // the last key
	settled  bool             // the person has paused since then
	drafts   map[string]draft // what a person has changed, by request
	asking   question         // what the input line is for
	over     string           // what has become of the request meanwhile, so that the line answers nothing any more
	input    textinput.Model
	message  string          // what became of the last key
	busy     map[string]bool // decisions on their way
	help     bool
	width    int
	height   int
	lost     error // the broker cannot be reached
}

// A draft is a narrower answer in the making.
type draft struct {
	path   string
	access profile.Access
	rule   int // of a connection: which of the request's rules
}

// A question is what a person is typing.
type question uint8

const (
	askNothing question = iota
	askPath
	askExpiry
	askReason
	askAnswer
)

var prompts = []string{"", "path: ", "for how long, such as 2h (nothing: until you revoke it): ", "why not (may be empty): ", "your answer, or the number of a choice: "}

// Messages.
type (
	pendingMsg []grants.Request
	eventMsg   grants.Event
	lostMsg    struct{ err error } // the events ended
	decidedMsg struct {
		id     string
		what   string
		answer grants.Answer
		err    error
	}
	tickMsg time.Time
)

func newModel(ctx context.Context, broker grants.Broker) *model {
	input := textinput.New()
	input.CharLimit = 4096
	input.SetVirtualCursor(false) // the screen draws its own
	return &model{ctx: ctx, broker: broker, now: time.Now, drafts: map[string]draft{}, busy: map[string]bool{}, input: input, width: 80, height: 24}
}

func (m *model) Init() tea.Cmd { return tick() }

// tick keeps ages right.
func tick() tea.Cmd { return tea.Tick(time.Second, func(t time.Time) tea.Msg { return tickMsg(t) }) }

func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tickMsg:
		return m, tick()
	case pendingMsg:
		m.lost = nil
		m.take(msg)
	case eventMsg:
		m.event(grants.Event(msg))
	case lostMsg:
		m.lost = msg.err
	case decidedMsg:
		m.decided(msg)
	case tea.KeyPressMsg:
		return m, m.key(msg)
	case tea.PasteMsg:
		if m.asking != askNothing { // anywhere else, pasted text is not keys
			return m, m.edit(msg)
		}
	}
	return m, nil
}

// take replaces the list by what the broker says.
func (m *model) take(list []grants.Request) {
	if at := m.at(m.chosen); at >= 0 && m.asking != askNothing {
		now := slices.IndexFunc(list, func(r grants.Request) bool { return r.ID == m.chosen })
		switch {
		case now < 0:
			list, m.over = append(slices.Clone(list), m.requests[at]), "it has ended without you"
		case list[now].ResolvedPath != m.requests[at].ResolvedPath:
			m.over = elsewhere
		}
	}
	m.requests = list
	m.choose(m.chosen)
}

func (m *model) at(id string) int {
	return slices.IndexFunc(m.requests, func(r grants.Request) bool { return r.ID == id })
}

// choose puts a request on the screen, or the first one if there is none of that id.
func (m *model) choose(id string) {
	if m.at(id) < 0 {
		id = ""
		if len(m.requests) > 0 {
			id = m.requests[0].ID
		}
	}
	if id != m.chosen {
		m.chosen = id
		m.asking = askNothing
		m.unsettle()
	}
}

// unsettle makes what is on the screen something that has only just come.
func (m *model) unsettle() { m.since, m.settled = m.now(), false }

const elsewhere = "the path leads elsewhere than before: look again"

func (m *model) event(e grants.Event) {
	if e.Request == nil {
		return
	}
	at := m.at(e.Request.ID)
	switch e.Kind {
	case grants.EventRequestPending:
		if at < 0 {
			m.requests = append(m.requests, *e.Request)
		}
	case grants.EventRequestChanged:
		if at >= 0 {
			m.requests[at] = *e.Request
			delete(m.drafts, e.Request.ID)
			if m.chosen == e.Request.ID { // it is another question now
				m.unsettle()
				m.message = elsewhere
				if m.asking != askNothing {
					m.over = elsewhere
				}
			}
		}
	case grants.EventRequestEnded:
		switch {
		case at < 0:
		case m.chosen == e.Request.ID && m.asking != askNothing: // the screen stays until the person has finished typing
			m.over = "ended without you: " + ended(e.Outcome)
		default:
			m.requests = slices.Delete(m.requests, at, at+1)
			delete(m.drafts, e.Request.ID)
			if m.chosen == e.Request.ID && !m.busy[e.Request.ID] {
				m.message = "ended without you: " + ended(e.Outcome)
			}
		}
	}
	m.choose(m.chosen)
}

// ended says how a request ended.
func ended(o grants.Outcome) string {
	switch o {
	case grants.OutcomeGranted:
		return "granted elsewhere"
	case grants.OutcomeDenied:
		return "denied elsewhere"
	case grants.OutcomeTimeout:
		return "nobody answered in time"
	case grants.OutcomeWithdrawn:
		return "whoever asked is gone"
	}
	return string(o)
}

func (m *model) decided(d decidedMsg) {
	delete(m.busy, d.id)
	if d.err != nil {
		m.message = "not done: " + text.Line(d.err.Error())
		return
	}
	m.message = d.what
	if at := m.at(d.id); at >= 0 {
		m.requests = slices.Delete(m.requests, at, at+1)
		delete(m.drafts, d.id)
		m.choose(m.chosen)
	}
}

// current is the request on the screen, with what the person has changed.
func (m *model) current() (r grants.Request, d draft, ok bool) {
	at := m.at(m.chosen)
	if at < 0 {
		return r, d, false
	}
	r = m.requests[at]
	d, changed := m.drafts[r.ID]
	if !changed {
		d = draft{path: r.ResolvedPath, access: r.RequestedAccess}
	}
	return r, d, true
}

// key does what a key says.
func (m *model) key(msg tea.KeyPressMsg) tea.Cmd {
	if msg.String() == "ctrl+c" {
		return tea.Quit
	}
	from := m.since
	if m.pressed.After(from) {
		from = m.pressed
	}
	m.pressed = m.now()
	m.settled = m.settled || m.pressed.Sub(from) >= guard
	if m.asking != askNothing {
		return m.typed(msg)
	}
	m.message = ""
	switch msg.String() {
	case "q", "esc":
		return tea.Quit
	case "?":
		m.help = !m.help
		return nil
	case "j", "down", "tab", "n":
		m.move(1)
		return nil
	case "k", "up", "shift+tab":
		m.move(-1)
		return nil
	}
	r, d, ok := m.current()
	if !ok {
		return nil
	}
	switch key := msg.String(); {
	case !strings.Contains("oaprcd", key):
		m.message = "press ? for the keys"
	case !m.settled:
		m.message = "this request has only just come: look at it, and press the key again in a second"
	case !m.fits():
		m.message = "the window is too small to show the whole path: enlarge it first"
	case m.busy[r.ID]:
		m.message = "the answer is on its way"
	case r.Question != nil && key == "o":
		return m.ask(askAnswer, "")
	case r.Question != nil && key != "d":
		m.message = "this is a question: o answers it, d does not"
	case r.Outside != nil:
		return m.command(key, r)
	case r.Domain != nil:
		return m.domain(key, r, d)
	case key == "o":
		return m.decide(r, grants.Decision{Kind: grants.AllowOnce, Path: d.path, Access: d.access})
	case key == "a":
		return m.ask(askExpiry, "")
	case key == "p":
		return m.ask(askPath, d.path)
	case key == "d":
		return m.ask(askReason, "")
	case key == "r":
		if r.RequestedAccess == profile.ReadOnly {
			m.message = "it asks for no more than to read"
			return nil
		}
		m.narrow(r, d, profile.ReadOnly)
	case key == "c":
		if r.RequestedAccess < profile.ReadWrite {
			m.message = "it does not ask to write"
			return nil
		}
		m.narrow(r, d, profile.CopyOnWrite)
	}
	return nil
}

// command is a key for a command, which is allowed as it is or not at all.
func (m *model) command(key string, r grants.Request) tea.Cmd {
	switch key {
	case "o":
		return m.decide(r, grants.Decision{Kind: grants.AllowOnce, Shown: r.Outside.Shown})
	case "a":
		if len(r.Outside.Always) == 0 {
			m.message = "this cannot be allowed for always: o lets it run once"
			return nil
		}
		return m.decide(r, grants.Decision{Kind: grants.AllowAlways, Shown: r.Outside.Shown})
	case "d":
		return m.ask(askReason, "")
	}
	m.message = "a command runs as it is, or not"
	return nil
}

// domain is a key for a connection. What is allowed is one of the rules that are shown, at first
// the narrowest.
func (m *model) domain(key string, r grants.Request, d draft) tea.Cmd {
	switch key {
	case "o":
		return m.decide(r, grants.Decision{Kind: grants.AllowOnce, Domain: r.Domain.Rules[d.rule].Rule})
	case "a":
		return m.ask(askExpiry, "")
	case "p":
		d.rule = (d.rule + 1) % len(r.Domain.Rules)
		m.drafts[r.ID] = d
		return nil
	case "d":
		return m.ask(askReason, "")
	}
	m.message = "a connection is allowed or not: p chooses how far"
	return nil
}

// narrow makes the answer this access, or what was asked for if it is that already.
func (m *model) narrow(r grants.Request, d draft, to profile.Access) {
	if d.access == to {
		to = r.RequestedAccess
	}
	d.access = to
	m.drafts[r.ID] = d
}

func (m *model) move(by int) {
	if at := m.at(m.chosen); at >= 0 {
		next := (at + by + len(m.requests)) % len(m.requests)
		m.choose(m.requests[next].ID)
	}
}

// ask begins an input line.
func (m *model) ask(what question, text string) tea.Cmd {
	m.asking = what
	m.input.Prompt = ""
	m.input.SetValue(text)
	m.input.CursorEnd()
	return m.input.Focus()
}

func (m *model) edit(msg tea.Msg) (cmd tea.Cmd) {
	m.input, cmd = m.input.Update(msg)
	return cmd
}

// typed is a key while the person types.
func (m *model) typed(msg tea.KeyPressMsg) tea.Cmd {
	switch key := msg.String(); {
	case key != "esc" && key != "enter":
		return m.edit(msg)
	case m.over != "":
		m.endOver()
		return nil
	case key == "esc":
		m.asking = askNothing
		return nil
	}
	r, d, ok := m.current()
	what, text := m.asking, strings.TrimSpace(m.input.Value())
	m.asking = askNothing
	if !ok {
		return nil
	}
	switch what {
	case askPath:
		d.path = text
		if !profile.Within(text, r.ResolvedPath) && !profile.Within(text, r.RequestedPath) {
			m.message = "not taken: the path must be " + profile.Printable(r.ResolvedPath) + " or one below it"
			return nil
		}
		m.drafts[r.ID] = d
		return nil
	case askAnswer:
		if choices := r.Question.Choices; len(choices) > 0 {
			n, err := strconv.Atoi(text)
			if err != nil || n < 1 || n > len(choices) {
				m.message = fmt.Sprintf("not taken: the number of a choice, from 1 to %d", len(choices))
				return nil
			}
			text = choices[n-1]
		}
		return m.decide(r, grants.Decision{Kind: grants.GiveAnswer, Answer: text})
	case askReason:
		return m.decide(r, grants.Decision{Kind: grants.Deny, Reason: text})
	}
	var expiry time.Duration
	if text != "" {
		var err error
		if expiry, err = time.ParseDuration(text); err != nil || expiry <= 0 {
			m.message = "not understood: " + profile.Printable(text) + "; for example 90m or 24h"
			return nil
		}
	}
	if r.Domain != nil {
		return m.decide(r, grants.Decision{Kind: grants.AllowAlways, Domain: r.Domain.Rules[d.rule].Rule, Scope: grants.ScopeAlways, ExpiresIn: grants.Duration(expiry)})
	}
	return m.decide(r, grants.Decision{Kind: grants.AllowAlways, Path: d.path, Access: d.access, Scope: grants.ScopeAlways, ExpiresIn: grants.Duration(expiry)})
}

// endOver ends an input line whose request has ended, or become another.
func (m *model) endOver() {
	at := m.at(m.chosen)
	if m.over != elsewhere && at >= 0 {
		m.requests = slices.Delete(m.requests, at, at+1)
		delete(m.drafts, m.chosen)
	}
	m.asking, m.message, m.over = askNothing, m.over, ""
	m.unsettle()
	m.choose(m.chosen)
}

// decide sends an answer on its way.
func (m *model) decide(r grants.Request, d grants.Decision) tea.Cmd {
	d.Via = via
	m.busy[r.ID] = true
	return func() tea.Msg {
		answer, err := m.broker.Decide(m.ctx, r.ID, d)
		return decidedMsg{r.ID, done(r, d), answer, err}
	}
}

// done says what an answer did.
func done(r grants.Request, d grants.Decision) string {
	agent, path := profile.Printable(r.Agent), profile.Printable(d.Path)
	if r.Question != nil {
		if d.Kind == grants.Deny {
			return agent + " gets no answer"
		}
		return agent + " is told: " + text.Line(d.Answer)
	}
	if r.Domain != nil {
		switch rule := profile.Printable(d.Domain); d.Kind {
		case grants.AllowOnce:
			return agent + " may reach " + rule + ", in this session"
		case grants.AllowAlways:
			return agent + " may reach " + rule
		}
		return agent + " may not reach " + profile.Printable(r.Domain.To)
	}
	if r.Outside != nil {
		command := text.Line(r.Outside.Text)
		switch d.Kind {
		case grants.AllowOnce:
			return agent + " may run, once: " + command
		case grants.AllowAlways:
			return agent + " may run, now and later: " + command
		}
		return agent + " may not run: " + command
	}
	switch d.Kind {
	case grants.AllowOnce:
		return agent + " may " + d.Access.Verb() + " " + path + ", in this session"
	case grants.AllowAlways:
		return agent + " may " + d.Access.Verb() + " " + path
	}
	return agent + " may not " + r.RequestedAccess.Verb() + " " + profile.Printable(r.ResolvedPath)
}
