package sandbox

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/profile/text"
	"github.com/clairun/clai-sandbox/sandbox/bus"
	"github.com/clairun/clai-sandbox/sandbox/descriptor"
	"github.com/clairun/clai-sandbox/sandbox/process"
	"github.com/clairun/clai-sandbox/sandbox/sshagent"
)

// A person's ssh-agent signs whatever whoever reaches it likes, with every key. A command never
// reaches it: where keys are named for it, a socket of the launcher's stands in its place, and a
// program that the launcher starts when somebody connects lets through what package sshagent/serve
// says.

// SSHAgent is what a plan lets a command have signed.
type SSHAgent struct {
	// Place is the socket inside; empty: there is none.
	Place string

	Keys        []profile.SSHKey
	KnownHosts  []string // files that say which key is whose; they lead to no other any more
	Server      string   // the person's agent
	Directories []string // see Bus
}

const (
	agentPlace    = "/run/clai-sandbox/ssh-agent"
	agentVariable = "SSH_AUTH_SOCK"
	// sshCommandVariable is how git starts ssh.
	sshCommandVariable = "GIT_SSH_COMMAND"
	agentSocket        = "ssh" // what the launcher's socket is called in its directory

	maxPublicKey  = 16 << 10
	maxKnownHosts = 2 << 20
	maxAgentTold  = 20 // refusals that are told
	// maxAgentStarts bounds how often the program is started again.
	maxAgentStarts = 8
)

// sshAgent shows the socket, and hides the person's own wherever a grant shows it.
func (b *builder) sshAgent() SSHAgent {
	p := &b.profile
	b.coverAgent(p.SSHAgentSocket)
	if len(p.SSHKeys) == 0 {
		return SSHAgent{}
	}
	notice := func(path, text string) {
		b.notices = append(b.notices, Notice{Kind: NoticeSSHAgent, Path: path, Text: text})
	}
	if p.SSHAgentSocket == "" {
		notice("", "no ssh-agent for the command: none of yours runs ($SSH_AUTH_SOCK is not set); to start one: eval \"$(ssh-agent)\" && ssh-add")
		return SSHAgent{}
	}
	a := SSHAgent{Server: p.SSHAgentSocket, Directories: b.busDirectories()}
	for _, k := range p.SSHKeys {
		if k.File != "" {
			w, err := follow(b.tree, k.File)
			if err == nil && !w.Object.Mode.IsRegular() {
				err = errors.New("not a file")
			}
			if err == nil && b.replaceable(w) {
				err = errors.New("the command can change it")
			}
			if err != nil {
				notice(k.File, fmt.Sprintf("no key %s for the command: %s: %s; the public half of a key stands there, or name it by its fingerprint, as ssh-add -l prints it",
					printable(k.Name), printable(k.File), reason(err)))
				continue
			}
			k.File = w.Real
			b.showForAgent(w)
		}
		a.Keys = append(a.Keys, k)
	}
	if len(a.Keys) == 0 {
		return SSHAgent{}
	}
	for _, path := range []string{filepath.Join(p.Home, ".ssh/known_hosts"), filepath.Join(p.Home, ".ssh/known_hosts2"), "/etc/ssh/ssh_known_hosts"} {
		w, err := follow(b.tree, path)
		if err != nil || !w.Object.Mode.IsRegular() {
			continue
		}
		if b.replaceable(w) {
			notice(path, printable(path)+" is not used to know hosts by: the command can change it")
			continue
		}
		a.KnownHosts = append(a.KnownHosts, w.Real)
		b.showForAgent(w)
	}
	a.Place = agentPlace
	b.layers.put(Step{Kind: Socket, Path: a.Place, Access: profile.ReadOnly, Origin: baseline})
	return a
}

// showForAgent shows a file that ssh reads and that holds nothing secret, where the home is not
// shown.
func (b *builder) showForAgent(w walk) {
	if !b.layers.shows(w.Real) && within(w.Real, b.profile.Home) {
		b.add(w, Step{Kind: Bind, Path: w.Real, Source: w.Real, Access: profile.ReadOnly, Origin: baseline, Pinned: true, file: true})
	}
}

// coverAgent keeps a grant that shows the socket of the person's agent from leading to it.
func (b *builder) coverAgent(path string) {
	if !filepath.IsAbs(path) {
		return
	}
	w, err := follow(b.tree, filepath.Clean(path))
	if err != nil || w.Object.Mode.Type() != fs.ModeSocket || !b.layers.shows(w.Real) {
		return
	}
	b.anchor(parent(w.Real))
	b.layers.put(Step{Kind: Socket, Path: w.Real, Source: os.DevNull, Access: profile.ReadOnly, Origin: baseline})
	b.notices = append(b.notices, Notice{Kind: NoticeSSHAgent, Path: w.Real,
		Text: "covered: " + printable(w.Real) + ", which a grant shows, is the socket of your ssh-agent; --ssh-agent lets a command use a key of it"})
}

// environment adds the variables that lead ssh to the socket, also where its settings name another.
func (a SSHAgent) environment(list []profile.Variable) []profile.Variable {
	if a.Place == "" {
		return list
	}
	const through = "-o IdentityAgent=" + agentVariable
	list = slices.DeleteFunc(slices.Clone(list), func(v profile.Variable) bool { return v.Name == agentVariable })
	list = append(list, profile.Variable{Name: agentVariable, Value: a.Place, Origin: baseline})
	at := slices.IndexFunc(list, func(v profile.Variable) bool { return v.Name == sshCommandVariable })
	if at < 0 {
		list = append(list, profile.Variable{Name: sshCommandVariable, Value: "ssh " + through, Origin: baseline})
	} else {
		list[at].Value += " " + through
	}
	return list
}

// setup reads what the program is told.
func (a SSHAgent) setup() (sshagent.Setup, error) {
	s := sshagent.Setup{Server: a.Server}
	for _, k := range a.Keys {
		key := sshagent.Key{Name: k.Name, Fingerprint: k.Fingerprint, Hosts: k.Hosts, SignCommits: k.SignCommits, Unbound: k.Unbound}
		if k.File != "" {
			public, err := readPlain(k.File, maxPublicKey)
			if err != nil {
				return s, err
			}
			key.Public = public
		}
		s.Keys = append(s.Keys, key)
	}
	for _, path := range a.KnownHosts {
		known, err := readPlain(path, maxKnownHosts)
		if err != nil {
			return s, err
		}
		s.KnownHosts = append(s.KnownHosts, known)
	}
	return s, nil
}

// readPlain reads a regular file that no link leads to, up to so many bytes.
func readPlain(path string, most int64) (string, error) {
	how := unix.OpenHow{Flags: unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &how)
	if err != nil {
		return "", fmt.Errorf("%s: %w", printable(path), err)
	}
	file := os.NewFile(uintptr(fd), path)
	defer file.Close()
	info, err := file.Stat()
	if err == nil && (!info.Mode().IsRegular() || info.Size() > most) {
		err = fmt.Errorf("no file, or larger than %d bytes", most)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", printable(path), err)
	}
	content, err := io.ReadAll(io.LimitReader(file, most))
	return string(content), err
}

// An agentListener is the socket that stands in a sandbox for the ssh-agent. The program that
// serves it is started when somebody connects.
type agentListener struct {
	program []string
	ask     func(context.Context, sshagent.Question) sshagent.Answer
	setup   sshagent.Setup
	socket  *bus.Socket
	served  sync.WaitGroup
	once    sync.Once
	context context.Context
	end     context.CancelFunc

	mu      sync.Mutex
	refused []string
	more    int
}

// listenAgent makes the socket and begins to listen.
func (l Launcher) listenAgent(plan *Plan) (*agentListener, error) {
	if len(l.SSHAgent) == 0 {
		return nil, errors.New("nothing serves one here")
	}
	if dir := plan.writes(l.SSHAgent[0], Host{}); dir != "" {
		return nil, fmt.Errorf("%s, which serves it outside, lies in %s, which the command can write; install clai-sandbox elsewhere: make install",
			printable(l.SSHAgent[0]), printable(dir))
	}
	a := plan.SSHAgent
	s := &agentListener{program: l.SSHAgent, ask: l.AskSSH}
	var err error
	if s.setup, err = a.setup(); err != nil {
		return nil, err
	}
	s.setup.Asks = s.ask != nil
	if s.socket, err = bus.NewSocket(a.Directories); err != nil {
		return nil, err
	}
	s.context, s.end = context.WithCancel(context.Background())
	s.served.Go(s.serve)
	return s, nil
}

// serve waits until somebody connects, and starts the program, again if it ends.
func (s *agentListener) serve() {
	s.socket.Sweep()
	for range maxAgentStarts {
		if err := s.socket.Wait(); err != nil || s.context.Err() != nil {
			return
		}
		if err := s.run(); err != nil {
			s.refuse("it could not be served: " + err.Error())
		}
		if s.context.Err() != nil {
			return
		}
	}
	s.refuse("it ended too often")
	s.socket.Shut() // who connects is told at once
}

// run starts the program and stays with it. It gets the listener, and a socket of ours.
func (s *agentListener) run() error {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	theirs := descriptor.File(ends[1])
	unix.SetNonblock(ends[0], true)
	ours := os.NewFile(uintptr(ends[0]), "ssh agent")
	defer ours.Close()
	listening, err := s.socket.Listening()
	if err != nil {
		theirs.Close()
		return err
	}
	said := process.KeepAtMost(1 << 10)
	started, ended := make(chan error), make(chan struct{})
	var p *process.Process
	go func() {
		runtime.LockOSThread() // never unlocked: the kernel ends the program with this thread
		defer close(ended)
		err := process.DropCapabilities()
		if err == nil {
			err = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
		}
		if err == nil {
			attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
			p, err = process.Start(s.program[0], s.program, process.Stdio{Err: said}, []descriptor.File{listening, theirs}, attr)
		}
		started <- err
		if err == nil {
			p.Wait()
		}
	}()
	err = <-started
	listening.Close()
	theirs.Close()
	if err != nil {
		<-ended
		return fmt.Errorf("%s: %w", printable(s.program[0]), err)
	}
	stop := context.AfterFunc(s.context, func() {
		ours.Close()
		p.Kill()
	})
	defer stop()
	s.talk(ours)
	ours.Close() // with it, the program ends
	p.Kill()
	<-ended
	if s.context.Err() == nil {
		return fmt.Errorf("%s ended: %s", printable(s.program[0]), printable(said.String()))
	}
	return nil
}

// talk tells the program what it may let through, and answers it.
func (s *agentListener) talk(conn io.ReadWriter) {
	to := json.NewEncoder(conn)
	if to.Encode(s.setup) != nil {
		return
	}
	ctx, cancel := context.WithCancel(s.context)
	defer cancel()
	var writing sync.Mutex
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		var r sshagent.Report
		if json.Unmarshal(lines.Bytes(), &r) != nil {
			return
		}
		if r.Refused != "" {
			s.refuse(r.Refused)
		}
		if r.Ask == nil || s.ask == nil {
			continue
		}
		go func() {
			answer := s.ask(ctx, *r.Ask)
			answer.ID = r.ID
			writing.Lock()
			defer writing.Unlock()
			_ = to.Encode(answer) // the program has ended, else
		}()
	}
}

func (s *agentListener) refuse(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Contains(s.refused, why) {
		return
	}
	if len(s.refused) == maxAgentTold {
		s.more++
		return
	}
	s.refused = append(s.refused, why)
}

func (s *agentListener) close() {
	if s == nil {
		return
	}
	s.once.Do(func() {
		s.end()
		s.socket.Shut()
		s.served.Wait()
		s.socket.Close()
	})
}

// notices closes the listener, and tells what was refused after those notices that there are.
func (s *agentListener) notices(list []Notice) []Notice {
	s.close()
	if s == nil {
		return list
	}
	list = slices.Clone(list)
	for _, why := range s.refused {
		list = append(list, Notice{Kind: NoticeSSHAgent, Text: "the ssh-agent refused: " + text.Line(why)})
	}
	if s.more > 0 {
		list = append(list, Notice{Kind: NoticeSSHAgent, Text: fmt.Sprintf("the ssh-agent refused %d more requests", s.more)})
	}
	return list
}

// agentOperand makes the socket for the plan's agent, and gives it to bwrap. Without one, the
// command has none and is told.
func (a *attempt) agentOperand(l Launcher, step Step, byDescriptor bool) (operand, bool) {
	var err error
	if a.agent == nil {
		a.agent, err = l.listenAgent(a.plan)
	}
	if err == nil {
		var socket descriptor.File
		if socket, err = a.agent.socket.Place(); err == nil {
			return a.bindDescriptor(step, socket, byDescriptor), true
		}
	}
	a.plan.notice(NoticeSSHAgent, "", "no ssh-agent for the command: "+text.Line(err.Error()))
	return operand{}, false
}
