package review

import (
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/profile/text"
)

// The screen, from above: what waits, the request with its path first, the line that is typed, the
// keys. All that others wrote goes through profile.Printable: the only control characters are line
// ends and those of bold.

const (
	bold  = "\x1b[1m"
	plain = "\x1b[m"
)

func (m *model) View() tea.View {
	v := tea.NewView(m.screen())
	v.AltScreen = true
	v.WindowTitle = "clai-sandbox grants review"
	return v
}

// screen is the whole text, no more than the window takes.
func (m *model) screen() string {
	top, body, bottom := m.parts()
	room := max(m.height-len(top)-len(bottom), 0)
	if len(body) > room {
		body = body[:room]
		if room > 0 {
			body[room-1] = m.line("… more: enlarge the window")
		}
	}
	for len(body) < room {
		body = append(body, "")
	}
	lines := append(append(top, body...), bottom...)
	return strings.Join(lines[:min(len(lines), max(m.height, 1))], "\n")
}

// parts are the lines of the screen. Those of the body may be cut.
func (m *model) parts() (top, body, bottom []string) {
	at := m.at(m.chosen)
	switch {
	case m.lost != nil:
		top = append(top, m.line("The gateway cannot be reached: "+text.Line(m.lost.Error())))
	case at < 0:
		top = append(top, m.line("Nothing waits for an answer. Requests appear here as they come."))
	default:
		top = append(top, m.line(fmt.Sprintf("Request %d of %d", at+1, len(m.requests))))
	}
	top = append(top, "")
	if r, d, ok := m.current(); ok {
		path, rest := m.request(r, d)
		body = append(append(body, path...), rest...)
	}
	if m.help {
		body = append(body, "")
		for _, text := range []string{"o  allow for this session", "a  allow always, for this agent; asks for how long", "p  narrow the path; of a connection, choose how far", "r  to read only, and back", "c  to write to a copy only, and back",
			"d  deny; asks for a reason", "j, k  next and previous request", "q  leave; nothing is answered by that"} {
			body = append(body, m.line(text))
		}
	}
	if m.message != "" {
		bottom = append(bottom, m.wrapped("", m.message, 3)...)
	}
	if m.asking != askNothing {
		if m.over != "" {
			bottom = append(bottom, m.line(m.over+": what you type answers nothing"))
		}
		bottom = append(bottom, m.line(prompts[m.asking]), m.inputLine(), m.line("enter: done   esc: not after all"))
	} else {
		keys := "o once   a always   p path   r read only   c copy   d deny   ? keys   q quit"
		switch r, _, ok := m.current(); {
		case ok && r.Outside != nil:
			keys = "o once   a always   d deny   ? keys   q quit"
		case ok && r.Domain != nil:
			keys = "o once   a always   p how far   d deny   ? keys   q quit"
		case ok && r.Question != nil:
			keys = "o answer   d deny   ? keys   q quit"
		}
		bottom = append(bottom, m.line(keys))
	}
	return top, body, bottom
}

// inputLine is the end of what is typed, with the cursor as a bar.
func (m *model) inputLine() string {
	text := []rune(m.input.Value())
	at := min(m.input.Position(), len(text))
	shown := shownTyped(text[:at]) + "▏" + shownTyped(text[at:])
	if extra := ansi.StringWidth(shown) - (m.width - 2); extra > 0 {
		shown = ansi.TruncateLeft(shown, extra+1, "…")
	}
	return "> " + shown
}

// shownTyped is what a person has typed or pasted, which may hold anything.
func shownTyped(text []rune) string {
	quoted := profile.Printable("x" + string(text))
	if strings.HasPrefix(quoted, `"`) {
		return strings.TrimSuffix(strings.TrimPrefix(quoted, `"x`), `"`)
	}
	return quoted[1:]
}

// request describes a request. The path comes apart from the rest: a person must see all of it.
func (m *model) request(r grants.Request, d draft) (path, rest []string) {
	add := func(name, text string) { rest = append(rest, m.wrapped(name, text, 6)...) }
	if r.Question != nil {
		path = append(path, m.line(bold+profile.Printable(r.Agent)+plain+" asks "+bold+"you"+plain))
		for _, f := range r.Question.Facts() {
			path = append(path, m.wrapped(f.Name, f.Text, maxPathLines)...)
		}
		m.describe(r, add)
		return path, rest
	}
	if r.Domain != nil {
		path = append(path, m.line(bold+profile.Printable(r.Agent)+plain+" asks to "+bold+"reach"+plain))
		path = append(path, m.wrapped("", profile.Printable(r.Domain.To), maxPathLines)...)
		chosen := r.Domain.Rules[min(d.rule, len(r.Domain.Rules)-1)]
		path = append(path, m.wrapped("you give", profile.Printable(chosen.Rule), maxPathLines)...)
		if chosen.Warning != "" {
			path = append(path, m.wrapped("warning", text.Line(chosen.Warning), 6)...)
		}
		m.describe(r, add)
		return path, rest
	}
	if r.Outside != nil {
		path = append(path, m.line(bold+profile.Printable(r.Agent)+plain+" asks to "+bold+"run, outside of any sandbox"+plain))
		first, facts := r.Outside.Facts()
		for _, f := range first {
			path = append(path, m.wrapped(f.Name, f.Text, maxPathLines)...)
		}
		for _, f := range facts {
			add(f.Name, f.Text)
		}
		m.describe(r, add)
		return path, rest
	}
	path = append(path, m.line(bold+profile.Printable(r.Agent)+plain+" asks to "+bold+r.RequestedAccess.Verb()+plain))
	path = append(path, m.wrapped("", profile.Printable(r.RequestedPath), maxPathLines)...)
	if r.ResolvedPath != r.RequestedPath {
		path = append(path, m.wrapped("leads to", profile.Printable(r.ResolvedPath), maxPathLines)...)
	}
	if (d != draft{path: r.ResolvedPath, access: r.RequestedAccess}) {
		path = append(path, m.wrapped("you give", d.access.Verb()+" "+profile.Printable(d.path), maxPathLines)...)
	}
	m.describe(r, add)
	return path, rest
}

// describe adds what paths and commands have.
func (m *model) describe(r grants.Request, add func(name, text string)) {
	for _, w := range r.Warnings {
		add("warning", text.Line(w.Text))
	}
	if r.Reason != "" {
		add("because", profile.Printable(r.Reason))
	}
	if r.Command != "" {
		add("command", profile.Printable(r.Command))
	}
	if r.Outside == nil {
		add("in", profile.Printable(r.Workspace))
	}
	now := m.now()
	add("asked", fmt.Sprintf("%s ago; it waits %s more", span(now.Sub(time.UnixMilli(r.AskedAtUnixMs))), span(time.UnixMilli(r.ExpiresAtUnixMs).Sub(now))))
}

// maxPathLines is more than any path of the kernel's takes on a window that is 40 wide.
const maxPathLines = 1000

func span(d time.Duration) string { return max(d, 0).Round(time.Second).String() }

// fits reports whether the window shows the whole path of the request.
func (m *model) fits() bool {
	r, d, ok := m.current()
	if !ok || m.width < 20 {
		return false
	}
	path, _ := m.request(r, d)
	top, _, bottom := m.parts()
	return len(top)+len(path)+len(bottom) <= m.height
}

// line cuts a line to the window.
func (m *model) line(text string) string { return ansi.Truncate(text, max(m.width, 1), "…") }

// wrapped writes a text in at most so many lines, with a name before the first.
func (m *model) wrapped(name, text string, most int) []string {
	indent := ""
	if name != "" {
		indent = strings.Repeat(" ", 10)
		name += strings.Repeat(" ", max(10-len(name), 1))
	}
	lines := strings.Split(ansi.Hardwrap(text, max(m.width-len(indent), 8), true), "\n")
	if left := len(lines) - most; left > 0 {
		lines = append(lines[:most-1], fmt.Sprintf("… %d lines more", left+1))
	}
	for i := range lines {
		if i == 0 {
			lines[i] = name + lines[i]
		} else {
			lines[i] = indent + lines[i]
		}
	}
	return lines
}
