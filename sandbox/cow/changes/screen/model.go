// Package screen is the screen at which a person looks through the changes of a layer, and brings
// them to the host or throws them away. It decides nothing itself: each key becomes a call of
// package changes, about what the screen has shown.
package screen

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile/text"
	"github.com/clairun/clai-sandbox/sandbox/cow/changes"
)

// A model is the state of the screen.
type model struct {
	ctx      context.Context
	layer    changes.Layer
	said     string // by the agent
	describe func(changes.Change) string
	differ   func(changes.Change, changes.Difference) string

	review  *changes.Review
	at      int
	chosen  map[string]bool
	read    changes.Shown // what was shown with its lines
	lines   []string      // of the change that is looked into; nil for the list
	top     int           // the first line on the screen
	message string
	busy    bool
	sure    bool // the next key may say that changes are to be thrown away
	width   int
	height  int
}

// ErrNoTerminal means that nobody could see the screen, or press a key.
var ErrNoTerminal = errors.New("changes review needs a terminal; in a script, use changes show, diff, apply and discard")

type doneMsg struct {
	word   string
	result *changes.Result
	review *changes.Review
	err    error
}

// Run shows the screen until the person leaves it. What the agent has said, if anything, stands
// above; the two functions put a change, and its difference, in words.
func Run(ctx context.Context, l changes.Layer, said string, describe func(changes.Change) string, differ func(changes.Change, changes.Difference) string, in, out *os.File) error {
	for _, stream := range []*os.File{in, out} {
		if _, err := unix.IoctlGetTermios(int(stream.Fd()), unix.TCGETS); err != nil {
			return ErrNoTerminal
		}
	}
	m, err := newModel(ctx, l, said, describe, differ)
	if err != nil {
		return err
	}
	_, err = tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out)).Run()
	if ctx.Err() != nil && errors.Is(err, tea.ErrProgramKilled) || errors.Is(err, tea.ErrInterrupted) {
		return nil
	}
	return err
}

func newModel(ctx context.Context, l changes.Layer, said string, describe func(changes.Change) string, differ func(changes.Change, changes.Difference) string) (*model, error) {
	review, err := l.Review(ctx)
	return &model{ctx: ctx, layer: l, said: said, describe: describe, differ: differ, review: review, chosen: map[string]bool{}, read: changes.Shown{}, width: 80, height: 24}, err
}

func (m *model) Init() tea.Cmd { return nil }

func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case doneMsg:
		m.done(msg)
	case tea.KeyPressMsg:
		return m, m.key(msg.String())
	}
	return m, nil
}

// key does what a key says.
func (m *model) key(key string) tea.Cmd {
	sure := m.sure
	m.sure, m.message = false, ""
	switch key {
	case "ctrl+c":
		return tea.Quit
	case "q", "esc":
		if m.lines == nil {
			return tea.Quit
		}
		m.lines, m.top = nil, 0
	case "j", "down":
		m.move(1)
	case "k", "up":
		m.move(-1)
	case "pgdown":
		m.move(max(m.room()-1, 1))
	case "pgup":
		m.move(-max(m.room()-1, 1))
	default:
		if m.busy {
			m.message = "one moment: the last key is not done yet"
			return nil
		}
		return m.act(key, sure)
	}
	return nil
}

// act does what a key says about changes.
func (m *model) act(key string, sure bool) tea.Cmd {
	c, ok := m.current()
	if !ok {
		m.message = "there is no change left"
		return nil
	}
	switch key {
	case "space", " ":
		if m.chosen[c.Path] = !m.chosen[c.Path]; m.lines == nil {
			m.move(1)
		}
	case "enter":
		m.open(c)
	case "a":
		return m.apply(changes.Selection{Paths: m.selected(c)})
	case "f":
		if c.Conflict == "" {
			m.message = "it is in no conflict: a applies it"
			return nil
		}
		return m.apply(changes.Selection{Paths: []string{c.Path}, Force: []string{c.Path}})
	case "d":
		m.sure = true
		m.message = fmt.Sprintf("throw %d away, for good? y", len(m.selected(c)))
	case "y":
		if sure {
			return m.discard(m.selected(c))
		}
	default:
		m.message = "enter lines   space choose   a apply   f apply in spite of a conflict   d discard   q back"
	}
	return nil
}

func (m *model) current() (c changes.Change, ok bool) {
	if m.at >= len(m.review.Changes) {
		return c, false
	}
	return m.review.Changes[m.at], true
}

// selected are the paths that were chosen, or the one that the cursor is at.
func (m *model) selected(c changes.Change) []string {
	var list []string
	for _, change := range m.review.Changes {
		if m.chosen[change.Path] {
			list = append(list, change.Path)
		}
	}
	if list == nil {
		return []string{c.Path}
	}
	return list
}

func (m *model) move(by int) {
	if m.lines != nil {
		m.top = min(max(m.top+by, 0), max(len(m.lines)-m.room(), 0))
		return
	}
	m.at = min(max(m.at+by, 0), max(len(m.review.Changes)-1, 0))
}

// open shows the lines of a change.
func (m *model) open(c changes.Change) {
	err := m.layer.Diffs(m.ctx, &changes.Review{Changes: []changes.Change{c}}, nil, func(c changes.Change, d changes.Difference) bool {
		m.read.Add(&c, d)
		m.lines = strings.Split(strings.TrimSuffix(m.differ(c, d), "\n"), "\n")
		return false
	})
	if m.top = 0; err != nil {
		m.message = text.Line(err.Error())
	}
}

func (m *model) apply(s changes.Selection) tea.Cmd {
	s.Seen = m.review.Shown()
	for path, sight := range m.read { // what has changed since is not what the list has by now
		if s.Seen[path].Digest == sight.Digest {
			s.Seen[path] = sight
		}
	}
	return m.do("applied", func() (*changes.Result, error) { return m.layer.Apply(m.ctx, s) })
}

func (m *model) discard(paths []string) tea.Cmd {
	return m.do("discarded", func() (*changes.Result, error) { return m.layer.Discard(m.ctx, paths) })
}

// do does something apart from the screen, and looks again.
func (m *model) do(word string, what func() (*changes.Result, error)) tea.Cmd {
	m.busy = true
	return func() tea.Msg {
		result, err := what()
		review, again := m.layer.Review(m.ctx)
		return doneMsg{word, result, review, errors.Join(err, again)}
	}
}

// done tells what became of the last key.
func (m *model) done(d doneMsg) {
	m.busy = false
	var words []string
	if d.err != nil {
		words = append(words, text.Line(strings.ReplaceAll(d.err.Error(), "\n", "; ")))
	}
	if d.result != nil {
		words = append(words, fmt.Sprintf("%d %s", len(d.result.Applied), d.word))
		for _, s := range d.result.Skipped[:min(len(d.result.Skipped), 3)] {
			words = append(words, "left as it was: "+text.Value(s.Path)+": "+text.Line(s.Why))
		}
		for _, left := range d.result.Left {
			words = append(words, "what was there is kept as "+text.Value(left))
		}
	}
	if d.review != nil {
		m.review, m.lines, m.top, m.chosen = d.review, nil, 0, map[string]bool{}
		m.at = min(m.at, max(len(m.review.Changes)-1, 0))
	}
	m.message = strings.Join(words, "; ")
}

func (m *model) View() tea.View {
	v := tea.NewView(m.screen())
	v.AltScreen = true
	v.WindowTitle = "clai-sandbox changes review"
	return v
}

// room is how many lines the middle of the screen has.
func (m *model) room() int {
	if m.said != "" {
		return max(m.height-4, 1)
	}
	return max(m.height-3, 1)
}

// screen is the whole text, no more than the window takes.
func (m *model) screen() string {
	lines := []string{fmt.Sprintf("%d changes in %s, %d chosen", len(m.review.Changes), text.Value(m.layer.Path), len(m.chosenNow()))}
	if m.said != "" {
		lines = append(lines, m.said)
	}
	middle := m.lines
	if middle == nil {
		middle = m.list()
	} else {
		middle = middle[min(m.top, len(middle)):]
	}
	lines = append(lines, middle[:min(len(middle), m.room())]...)
	for len(lines) < m.height-2 {
		lines = append(lines, "")
	}
	lines = append(lines, m.message, "enter lines   space choose   a apply   d discard   q quit")
	for i, line := range lines {
		lines[i] = ansi.Truncate(line, max(m.width, 1), "…")
	}
	return strings.Join(lines[:min(len(lines), max(m.height, 1))], "\n")
}

func (m *model) chosenNow() []string {
	return slices.DeleteFunc(m.selected(changes.Change{}), func(path string) bool { return path == "" })
}

// list are the changes around the cursor, a few lines each.
func (m *model) list() []string {
	var lines []string
	for i := max(m.at-m.room()/2, 0); i < len(m.review.Changes) && len(lines) < m.room(); i++ {
		c := m.review.Changes[i]
		mark := []string{"  ", "> "}[boolean(i == m.at)] + []string{"[ ] ", "[x] "}[boolean(m.chosen[c.Path])]
		for n, line := range strings.Split(m.describe(c), "\n") {
			if n > 0 {
				mark = "      "
			}
			lines = append(lines, mark+line)
		}
	}
	return lines
}

func boolean(b bool) int {
	if b {
		return 1
	}
	return 0
}
