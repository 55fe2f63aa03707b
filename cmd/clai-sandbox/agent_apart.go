package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/clairun/clai-sandbox/integration/instructions"
	"github.com/clairun/clai-sandbox/integration/rooms"
	"github.com/clairun/clai-sandbox/integration/session"
	"github.com/clairun/clai-sandbox/integration/shell"
	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/profile/preset"
	"github.com/clairun/clai-sandbox/sandbox"
)

// With --commands-apart there are two sandboxes of one session. The agent's has what its preset
// says, and this program in place of each of the system's shells: whatever the agent starts by a
// shell goes through a socket, the door, to the launcher, which starts it in the other one. No
// setting of the agent's, or of the project's, leads round that. From the agent's side come a line,
// a directory and three pipes, and nothing comes back but what is written to those.

// An apartRun is an agent whose commands run apart.
type apartRun struct {
	agent   agentRun
	path    string          // of its program
	more    profile.Request // what the agent has besides
	shells  []string        // programs of the system's in whose place this one stands
	control sandbox.Control // of the agent's sandbox
	session *session.Session
	door    func() // ends it

	mu       sync.Mutex
	over     bool
	commands *sandbox.Session // nil: none yet
	shell    string
	close    func()
	notices  []sandbox.Notice // of the commands' sandbox
}

// checkApart refuses an agent of which it is not known that its commands would be apart.
func (a agentRun) checkApart(path string) error {
	if a.program == nil {
		return &usage{"--commands-apart takes the name of an agent: which settings, keys and servers are the agent's, its preset says", "clai-sandbox agent --list shows them"}
	}
	if !a.program.ByShell {
		return &usage{"it is not known that " + a.program.Name + " starts each of its commands by one of the system's shells, and so they cannot be kept apart from it",
			"leave --commands-apart out: clai-sandbox agent " + a.program.Name + " has both in one sandbox"}
	}
	for i := 0; path != "" && i < 4; i++ {
		if shell.Is(path) {
			return &usage{a.program.Name + " is a script for a shell here, and with --commands-apart the agent has none", "name the program that it starts in its preset, or leave --commands-apart out"}
		}
		path = interpreter(path, false)
	}
	return nil
}

// systemsShells are the shells that every sandbox has, by their own paths.
func systemsShells() ([]string, error) {
	var paths []string
	dirs := append(filepath.SplitList(os.Getenv("PATH")), "/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/home/linuxbrew/.linuxbrew/bin", "/run/current-system/sw/bin")
	for _, dir := range dirs {
		for _, name := range shell.Names {
			if path := filepath.Join(dir, name); filepath.IsAbs(dir) && ofTheSystem(path) {
				paths = append(paths, path)
			}
		}
	}
	if list, err := os.Open("/etc/shells"); err == nil {
		defer list.Close()
		for lines := bufio.NewScanner(list); lines.Scan(); {
			if path := strings.TrimSpace(lines.Text()); filepath.IsAbs(path) && shell.Is(path) && ofTheSystem(path) {
				paths = append(paths, path)
			}
		}
	}
	return shellsAt(paths)
}

// shellsAt are the programs that paths of shells lead to, as far as they are there. One that is
// more than a shell (busybox) has no stand-in.
func shellsAt(paths []string) (found []string, err error) {
	for _, path := range paths {
		real, err := filepath.EvalSymlinks(path)
		if err != nil || slices.Contains(found, real) {
			continue // it is not there
		}
		if !shell.Is(real) {
			return nil, &usage{"the shell " + profile.Printable(path) + " is the program " + profile.Printable(real) + " here, which is more than a shell", "leave --commands-apart out"}
		}
		found = append(found, real)
	}
	if len(found) == 0 {
		return nil, &usage{"no shell of the system's is here, in whose place clai-shell could stand", "leave --commands-apart out"}
	}
	slices.SortStableFunc(found, func(a, b string) int { // the one that agents expect is the first
		return cmp.Compare(strings.Index(filepath.Base(b), "bash"), strings.Index(filepath.Base(a), "bash"))
	})
	return found, nil
}

// agents reports whether a preset is an agent's, and not a tool's.
func agents(p preset.Preset) bool { return p.Program != "" }

// prepare opens the door, and prepares the agent's sandbox.
func (r *apartRun) prepare(s *session.Session, _ func(*profile.Request)) (*session.Prepared, error) {
	dir, err := roomsDirectory()
	if err != nil {
		return nil, err
	}
	r.session = s
	door := rooms.NewDoor(dir)
	if r.door, err = (rooms.Door{Has: r.control.Has, Room: r.room}).Serve(door); err != nil {
		return nil, err
	}
	p, err := s.PrepareAgent(func(request *profile.Request) {
		request.Preset, request.AllowDomains, request.Environment = r.more.Preset, r.more.AllowDomains, r.more.Environment
	}, r.agent.furnish(func(preset.Preset) bool { return true }), door)
	if err != nil {
		return nil, err
	}
	if err := checkApartPlan(p, r.path); err != nil {
		p.Close()
		return nil, err
	}
	p.StandIn(r.shells)
	return p, nil
}

// checkApartPlan refuses what two sandboxes cannot have at once, or the agent not for itself.
func checkApartPlan(p *session.Prepared, program string) error {
	if real, err := filepath.EvalSymlinks(program); err == nil && (p.Plan.Writes(program) || p.Plan.Writes(real)) {
		return &sandbox.SetupError{Path: program, Why: "is the agent's program, where its commands could write: what they made of it would have its key", Hint: "install it elsewhere, or leave --commands-apart out"}
	}
	if p.Profile.PrivateHome == "" {
		return &sandbox.SetupError{Path: p.Profile.Home, Why: "the agent's home is not one of its own, as --commands-apart takes it: commands would see its settings, or its next start none", Hint: "--home private, or leave --commands-apart out"}
	}
	if p.Profile.Image != "" {
		return &sandbox.SetupError{Why: "an image has shells of its own, in whose place nothing stands", Hint: "leave it or --commands-apart out"}
	}
	for _, step := range p.Plan.Steps {
		if step.Layer != "" && step.Purpose != sandbox.Caches && step.Purpose != sandbox.Worktree {
			return &sandbox.SetupError{Path: step.Path, Why: "the agent and its commands cannot both have it copy on write", Hint: "leave it or --commands-apart out"}
		}
	}
	return nil
}

// begins says what the agent is told, which is about its commands' sandbox.
func (r *apartRun) begins(j job) (told, reached string, err error) {
	p, err := r.session.Prepare(nil)
	if err != nil {
		return "", "", err
	}
	p.Close()
	for _, step := range j.plan.Steps {
		if step.Layer != "" && step.Purpose == sandbox.Worktree { // one of them can commit
			if _, err := r.room(); err != nil {
				return "", "", err
			}
			break
		}
	}
	text := instructions.Text(instructions.About{Profile: p.Profile, Plan: &p.Plan, CanAsk: j.session.ID() != "", Apart: true})
	return text, reaches(p.Profile, j.session.ID() != ""), nil
}

// room is the commands' sandbox. It begins with the first command, and anew where a person has
// ended it.
func (r *apartRun) room() (rooms.Opened, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	opened := func() rooms.Opened { return rooms.Opened{Sandbox: r.commands, Shell: r.shell, Ended: r.news} }
	if r.over {
		return rooms.Opened{}, errors.New(explainError(&sandbox.SetupError{Why: "the agent has ended", Hint: "start it again"}))
	}
	if r.commands != nil {
		select {
		case <-r.commands.Ended():
			r.end()
		default:
			return opened(), nil
		}
	}
	err := r.open()
	if err != nil {
		return rooms.Opened{}, errors.New(explainError(err))
	}
	return opened(), nil
}

func (r *apartRun) open() error {
	p, err := r.session.PrepareRun(nil)
	if err != nil {
		return err
	}
	p.ShowProgram(shellName)
	j := job{profile: p.Profile, plan: p.Plan, directories: r.agent.caller.Directories(), session: r.session, prepared: p}
	bwrap, err := j.bwrap()
	if err != nil {
		p.Close()
		return err
	}
	s, err := p.Open(context.Background(), sandbox.Launcher{Bwrap: bwrap, State: j.directories.State})
	if err != nil {
		return err
	}
	dir, err := roomsDirectory()
	var unreached func()
	if err == nil {
		about := rooms.About{Agent: j.profile.Agent, Workspace: j.profile.Workspace, Command: "commands of " + profile.Printable(r.agent.program.Name), Shell: j.shellIn()}
		_, unreached, err = rooms.Serve(dir, about, s, nil)
	}
	if err != nil {
		s.Close()
		return err
	}
	r.commands, r.shell, r.close = s, j.shellIn(), unreached
	return nil
}

// end ends the commands' sandbox. The lock is held.
func (r *apartRun) end() {
	r.commands.Close()
	r.close()
	if result, err := r.commands.Result(); err == nil {
		r.note(result.Notices)
	}
	r.commands = nil
}

// note keeps what a person is told at the end.
func (r *apartRun) note(notices []sandbox.Notice) {
	for _, n := range notices {
		if n.Kind == session.NoticeClosed { // it was told at the beginning
			continue
		}
		if !slices.ContainsFunc(r.notices, func(other sandbox.Notice) bool {
			return n.Kind == other.Kind && n.Path == other.Path && n.Text == other.Text
		}) && len(r.notices) < maxApartNotices {
			r.notices = append(r.notices, n)
		}
	}
}

// maxApartNotices bounds what is kept for the end.
const maxApartNotices = 100

// news is what there is to tell the agent after a command, and a person at the end. What it changed
// of repositories' settings is carried over to the host.
func (r *apartRun) news() []sandbox.Notice {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.commands == nil {
		return nil
	}
	s := r.commands
	time.AfterFunc(settleAfter, func() {
		notices := s.Settle()
		r.mu.Lock()
		defer r.mu.Unlock()
		r.note(notices)
	})
	list := s.News()
	r.note(list)
	return list
}

// ended ends what is left when the agent has ended, and returns what there is to tell. It may be
// called again.
func (r *apartRun) ended() []sandbox.Notice {
	if r.door == nil {
		return nil
	}
	r.door()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	if r.commands != nil {
		r.end()
	}
	list := r.notices
	r.notices = nil
	return list
}
