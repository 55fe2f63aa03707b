package session

import (
	"context"
	"time"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox"
	"github.com/clairun/clai-sandbox/sandbox/sshagent"
)

// A part is what one sandbox of a session has by itself.
type part struct {
	request  profile.Request
	home     *home
	commands string // see profile.Profile.CommandSocket
}

// Prepare builds the sandbox of one command. change, if there is one, adds to the session's request
// what is this command's own.
func (s *Session) Prepare(change func(*profile.Request)) (*Prepared, error) {
	return s.prepare(part{home: &s.home}, change, false)
}

// PrepareRun is Prepare for a command that is run right away, and once: see sandbox.Lookout.
func (s *Session) PrepareRun(change func(*profile.Request)) (*Prepared, error) {
	return s.prepare(part{home: &s.home}, change, true)
}

// PrepareAgent is PrepareRun for the agent itself, where its commands run apart. change adds what
// the commands' sandboxes must not have, furnish is as in Options, and commands is the socket at
// which the agent has its commands run.
func (s *Session) PrepareAgent(change func(*profile.Request), furnish func(home string) error, commands string) (*Prepared, error) {
	s.agent.furnish = furnish
	return s.prepare(part{home: &s.agent, commands: commands}, change, true)
}

func (s *Session) prepare(of part, change func(*profile.Request), watched bool) (*Prepared, error) {
	s.mu.Lock()
	told := s.told
	s.mu.Unlock()
	if !told {
		s.read(time.Now())
	}
	swept := sandbox.Sweep(s.state)
	moveHomes(s.state)
	p := &Prepared{part: of, session: s, watched: watched}
	p.request = s.options.Request
	if change != nil {
		change(&p.request)
	}
	if err := p.build(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p.Plan.Notices = append(append(swept, s.left...), p.Plan.Notices...)
	if why := p.Profile.Closed(); why != "" && s.options.Broker == nil {
		p.Plan.Notices = append(p.Plan.Notices, sandbox.Notice{Kind: NoticeClosed, Text: why})
	}
	s.left = nil
	return p, nil
}

// Prepared is a sandbox before its command.
type Prepared struct {
	Profile profile.Profile
	Plan    sandbox.Plan

	part
	session  *Session
	version  int      // of what is granted
	programs []string // that the plan shows besides
	standIns []string // programs of the system's in whose place it has this one
	watched  bool     // it is run next
	lookout  *sandbox.Lookout
}

// ShowProgram shows this program inside under a name, and returns its path there; see
// sandbox.Plan.ShowProgram. It stays when Run builds the plan anew, because something was granted
// meanwhile.
func (p *Prepared) ShowProgram(name string) string {
	p.programs = append(p.programs, name)
	return p.Plan.ShowProgram(name, "")
}

// StandIn puts this program in place of others inside; see sandbox.Plan.StandIn. It stays as with
// ShowProgram.
func (p *Prepared) StandIn(paths []string) {
	p.standIns = append(p.standIns, paths...)
	for _, path := range paths {
		p.Plan.StandIn(path)
	}
}

func (p *Prepared) build() (err error) {
	p.session.mu.Lock()
	p.version = p.session.version
	p.session.mu.Unlock()
	if p.Profile, err = p.session.resolve(p.part); err == nil {
		err = p.session.makeHome(p.home, &p.Profile)
	}
	if err == nil {
		err = p.session.openWorkspace(&p.Profile)
	}
	if err != nil {
		return err
	}
	var host sandbox.Tree = sandbox.Host{}
	if p.lookout.Close(); p.watched {
		p.lookout = sandbox.NewLookout()
		host = p.lookout
	}
	if p.Plan, err = sandbox.Build(p.Profile, host); err == nil {
		err = checkLinks(p.Profile.OwnLinks, &p.Plan)
	}
	if err != nil {
		p.lookout.Close()
		return err
	}
	for _, name := range p.programs {
		p.Plan.ShowProgram(name, "")
	}
	for _, path := range p.standIns {
		p.Plan.StandIn(path)
	}
	return nil
}

// checkLinks refuses a sandbox that may put another link in the place of one that leads to this
// program's own files.
func checkLinks(links []string, plan *sandbox.Plan) error {
	for _, link := range links {
		for _, step := range plan.Steps {
			if step.Kind == sandbox.Bind && step.Access == profile.ReadWrite && profile.Within(link, step.Path) {
				return &sandbox.SetupError{Path: step.Path, Why: "cannot be writable: the link " + profile.Printable(link) + " in it leads to clai-sandbox's own files",
					Hint: "link to the file itself, or choose another directory with --workspace DIR"}
			}
		}
	}
	return nil
}

// narrowed is a profile with what the workspace's own file takes away. The file is read once: no
// command of the session loosens it.
func (s *Session) narrowed(r profile.Request) (profile.Profile, error) {
	p, err := profile.Resolve(s.options.Config, s.options.Caller, r)
	if err != nil || r.NoProject {
		return p, err
	}
	s.mu.Lock()
	if s.projectOf != p.Workspace {
		s.project, err = profile.ReadProject(p.Workspace)
		s.projectOf = p.Workspace
		if err != nil {
			s.projectOf = ""
		}
	}
	r.Project = s.project
	s.mu.Unlock()
	if err != nil || r.Project == nil {
		return p, err
	}
	return profile.Resolve(s.options.Config, s.options.Caller, r)
}

// resolve joins a request with what is granted now.
func (s *Session) resolve(of part) (profile.Profile, error) {
	r := of.request
	r.Stored, r.StoredDomains = s.stored(), s.domainRules()
	p, err := s.narrowed(r)
	p.AskSocket, p.PrivateTmp, p.PrivateHome, p.SandboxWorkspace = s.Socket(), s.options.PrivateTmp, of.home.directory(), s.work.directory()
	if p.CommandSocket = of.commands; of.commands != "" { // what its commands serve, and sign, is theirs
		p.Published, p.SSHKeys = nil, nil
	}
	return p, err
}

// Close is for what was prepared to be run, and is not.
func (p *Prepared) Close() { p.lookout.Close() }

// Run runs the command. See sandbox.Launcher.Run.
func (p *Prepared) Run(ctx context.Context, l sandbox.Launcher, command []string, stdio sandbox.Stdio) (sandbox.Result, error) {
	defer p.Close()
	ctx, leave, err := p.enter(ctx, &l)
	if err != nil {
		return sandbox.Result{}, err
	}
	defer leave()
	return l.Run(ctx, p.Plan, command, stdio)
}

// Open makes a sandbox in which commands are started one by one. See sandbox.Launcher.Open. What is
// granted comes and goes there, too.
func (p *Prepared) Open(ctx context.Context, l sandbox.Launcher) (*sandbox.Session, error) {
	ctx, leave, err := p.enter(ctx, &l)
	if err != nil {
		return nil, err
	}
	opened, err := l.Open(ctx, p.Plan)
	if err != nil {
		leave()
		p.Close()
		return nil, err
	}
	go func() {
		<-opened.Ended()
		leave()
		p.Close()
	}()
	return opened, nil
}

// enter makes a sandbox that is about to be made one that shows what is granted from now on, until
// leave.
func (p *Prepared) enter(ctx context.Context, l *sandbox.Launcher) (_ context.Context, leave func(), err error) {
	leave = func() {}
	if err := p.takeHome(); err != nil {
		return nil, nil, err
	}
	if o := p.session.options; len(p.Plan.SSHAgent.Keys) > 0 && o.SSHAgent != nil {
		if l.SSHAgent, err = o.SSHAgent(); err != nil {
			return nil, nil, err
		}
	}
	if p.session.options.Broker != nil {
		l.AskSSH = func(ctx context.Context, q sshagent.Question) sshagent.Answer {
			return p.session.askSSH(ctx, p.Profile.SSHKeys, q)
		}
		l.AskPublish = p.session.askPublish
	}
	s := p.session
	live := s.options.Live && s.options.Broker != nil && sandbox.CanBeLive(p.Profile) == ""
	filtered := s.options.Broker != nil && p.Profile.Network == profile.NetworkFiltered
	if live || filtered {
		r := &running{part: p.part}
		ctx, r.end = context.WithCancel(ctx)
		if live {
			r.live = &sandbox.Live{}
			l.Live = r.live
		}
		if filtered {
			r.reach = &sandbox.Reach{}
			l.Reach, l.AskNetwork, l.JudgedNetwork = r.reach, s.askNetwork, s.connected.note
		}
		s.mu.Lock()
		s.running[r] = true
		outdated := s.version != p.version
		s.mu.Unlock()
		leave = func() {
			s.mu.Lock()
			delete(s.running, r)
			s.mu.Unlock()
			r.end()
		}
		if outdated {
			notices := p.Plan.Notices
			if err := p.build(); err != nil {
				leave()
				return nil, nil, err
			}
			p.Plan.Notices = notices
		}
	}
	return ctx, leave, nil
}
