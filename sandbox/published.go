package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/publish"
)

// ports are those of a sandbox's own network that the host reaches, and those at which something
// listens in vain. The zero value has none.
type ports struct {
	mu       sync.Mutex
	attempt  *attempt
	stays    bool // a session's
	dialer   *publish.Dialer
	served   publish.Ports
	begun    []begunPort
	count    int             // of those that are served
	reached  map[uint16]bool // ports inside that are published
	told     map[uint16]bool // or not, and it was said
	unheard  []Notice        // what was said and has not been taken by news yet
	name     string          // by which a person reaches the session; empty: it is none, or cannot be reached
	isClosed bool
}

// A begunPort is one at which this process listens already.
type begunPort struct {
	listener net.Listener
	inside   uint16
}

// listenPublished listens at the ports that are published, before anything runs. What the
// configuration publishes for each of an agent's sandboxes may be another one's already.
func (a *attempt) listenPublished(l Launcher) error {
	a.ports.attempt, a.ports.stays = a, l.session != nil
	for _, port := range a.plan.Published {
		listener, err := a.plan.listen(port)
		if err != nil && port.Origin.Kind != profile.OriginFlag {
			a.plan.notice(NoticePort, "", fmt.Sprintf("port %d is not published (%s): %s", port.Inside, printable(port.Origin.String()), err))
			continue
		}
		if err != nil {
			return err
		}
		a.ports.begun = append(a.ports.begun, begunPort{listener, port.Inside})
	}
	return nil
}

// listen listens at a port that is to be published. The error is a *SetupError.
func (p *Plan) listen(port profile.PublishedPort) (net.Listener, error) {
	if p.Network == profile.NetworkEnabled {
		return nil, &SetupError{Why: "the sandbox has the host's own network, where its ports are reached as they are", Hint: "leave --publish out"}
	}
	if p.Network == profile.NetworkFiltered && port.Inside == proxyPort {
		return nil, &SetupError{Why: fmt.Sprintf("port %d inside is the filtered network's own", proxyPort), Hint: "have the command listen at another port"}
	}
	listener, err := publish.Listen(port.Host)
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return nil, &SetupError{Why: fmt.Sprintf("127.0.0.1:%d is in use on the host, so port %d cannot be published there", port.Host, port.Inside),
			Hint: fmt.Sprintf("choose another port of the host's, as %d:%d", another(port.Host), port.Inside)}
	case errors.Is(err, unix.EACCES):
		return nil, &SetupError{Why: fmt.Sprintf("you may not listen at port %d of the host", port.Host),
			Hint: fmt.Sprintf("choose one from 1024 on, as %d:%d", another(port.Host), port.Inside)}
	case err != nil:
		return nil, &SetupError{Why: fmt.Sprintf("listen at 127.0.0.1:%d: %s", port.Host, reason(err)), Hint: tryAgain}
	}
	return listener, nil
}

// another is a port to propose in place of one that cannot be had.
func another(port uint16) int {
	switch {
	case port < 1024:
		return int(port) + 8000
	case port == 1<<16-1:
		return int(port) - 1
	}
	return int(port) + 1
}

// servePublished leads to the ports inside from now on. The sandbox's network is there as soon as
// bwrap has made the namespaces, and the command has not begun.
func (a *attempt) servePublished() error {
	if len(a.ports.begun) == 0 {
		return nil
	}
	if init, err := a.awaitInit(); err != nil || init == 0 {
		return nil // assemble finds that out, too
	}
	for _, port := range a.ports.begun {
		if err := a.ports.serve(port); err != nil && !errors.Is(err, publish.ErrClosed) {
			return &SetupError{Why: "publish a port: " + printable(err.Error()), Hint: tryAgain}
		}
	}
	return nil
}

func (p *ports) serve(port begunPort) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	d, err := p.enter()
	if err != nil {
		port.listener.Close()
		return err
	}
	p.served.Dial = d.Dial
	if p.reached == nil {
		p.reached = map[uint16]bool{}
	}
	if p.count++; p.count > profile.MaxPublished {
		port.listener.Close()
		return fmt.Errorf("at most %d ports", profile.MaxPublished)
	}
	p.reached[port.inside] = true
	return p.served.Serve(port.listener, port.inside)
}

// enter is the dialer in the sandbox's network, started when it is needed first.
func (p *ports) enter() (*publish.Dialer, error) {
	if p.isClosed {
		return nil, publish.ErrClosed
	}
	if p.dialer != nil {
		return p.dialer, nil
	}
	namespace, err := p.attempt.networkNamespace()
	if err != nil {
		return nil, err
	}
	defer unix.Close(namespace)
	p.dialer, err = publish.Enter(namespace)
	return p.dialer, err
}

// networkNamespace opens the sandbox's. That of this process is refused: pid 1 of the sandbox may
// have gone, and its number been given to another.
func (a *attempt) networkNamespace() (int, error) {
	fd, err := -1, error(publish.ErrClosed)
	a.process.While(func(int) {
		if init := a.init(); init != 0 {
			fd, err = unix.Open(fmt.Sprintf("/proc/%d/ns/net", init), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		}
	})
	if err != nil {
		return -1, err
	}
	var theirs, ours unix.Stat_t
	if err := errors.Join(unix.Fstat(fd, &theirs), unix.Stat("/proc/self/ns/net", &ours)); err != nil || theirs.Ino == ours.Ino {
		unix.Close(fd)
		return -1, errors.Join(err, publish.ErrClosed)
	}
	return fd, nil
}

// lookEvery is how often it is looked what listens inside. What does so for two looks is told: a
// test's server comes and goes.
const lookEvery = 1500 * time.Millisecond

// maxPortsTold bounds of how many ports it is said that nothing outside reaches them.
const maxPortsTold = 5

// watchPorts tells of ports inside that nothing outside reaches, until the command has ended.
func (a *attempt) watchPorts(l Launcher) {
	if a.plan.Network == profile.NetworkEnabled || l.bare {
		return
	}
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var before []uint16
	for {
		select {
		case <-a.ended:
			return
		case <-look.C:
		}
		now, err := a.ports.listening()
		if err != nil {
			return
		}
		for _, port := range now {
			n, is := a.ports.unpublished(port, slices.Contains(before, port), l.AskPublish != nil)
			if is && l.Unpublished != nil {
				l.Unpublished(n)
			}
			if is && l.AskPublish != nil {
				go a.askPublish(ctx, l, port)
			}
		}
		before = now
	}
}

// askPublish has somebody decide whether a port is published, and publishes it.
func (a *attempt) askPublish(ctx context.Context, l Launcher, port uint16) {
	if !l.AskPublish(ctx, port) {
		return
	}
	text := fmt.Sprintf("port %d in the sandbox is reached at 127.0.0.1:%[1]d of the host from now on", port)
	listener, err := a.plan.listen(profile.PublishedPort{Host: port, Inside: port})
	if err == nil {
		err = a.ports.serve(begunPort{listener, port})
	}
	switch {
	case errors.Is(err, publish.ErrClosed):
		return
	case err != nil:
		text = fmt.Sprintf("port %d in the sandbox is not published: %s", port, printable(err.Error()))
	}
	n := Notice{Kind: NoticePort, Text: text}
	a.ports.mu.Lock()
	a.ports.unheard = append(a.ports.unheard, n)
	a.ports.mu.Unlock()
	if l.Unpublished != nil {
		l.Unpublished(n)
	}
}

func (p *ports) listening() ([]uint16, error) {
	p.mu.Lock()
	d, err := p.enter()
	p.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return d.Listening()
}

// unpublished says once of a port that nothing outside reaches it, if it stays.
func (p *ports) unpublished(port uint16, stays, asked bool) (Notice, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.told == nil {
		p.told = map[uint16]bool{}
	}
	own := port == proxyPort && p.attempt.plan.Network == profile.NetworkFiltered
	if !stays || own || p.reached[port] || p.told[port] || len(p.told) == maxPortsTold {
		return Notice{}, false
	}
	p.told[port] = true
	how := fmt.Sprintf("start the command with --publish %d", port)
	switch {
	case asked:
		how = "a person is asked, and answers with clai-sandbox grants review"
	case p.stays:
		how = fmt.Sprintf("a person can type: clai-sandbox sessions publish %s %d", p.called(), port)
	}
	n := Notice{Kind: NoticePort, Text: fmt.Sprintf("port %d in the sandbox is reached from nowhere else; to reach it at 127.0.0.1:%[1]d of the host: %s", port, how)}
	p.unheard = append(p.unheard, n)
	return n, true
}

func (p *ports) called() string {
	if p.name == "" {
		return "ID"
	}
	return p.name
}

// news is what was told since the last news.
func (p *ports) news() []Notice {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.unheard
	p.unheard = nil
	return list
}

// close ends all connections, on both sides.
func (p *ports) close() {
	p.mu.Lock()
	p.isClosed = true
	d, begun := p.dialer, p.begun
	p.dialer, p.begun = nil, nil
	p.mu.Unlock()
	p.served.Close()
	for _, port := range begun {
		port.listener.Close() // once more, where it is served
	}
	if d != nil {
		d.Close()
	}
}

// Publish leads from a port of the host's loopback interface to one of the session's sandbox, as
// long as that stays. The error is a *SetupError, or ErrSessionEnded.
func (s *Session) Publish(port profile.PublishedPort) error {
	s.settling.Lock()
	defer s.settling.Unlock()
	if s.gone {
		return ErrSessionEnded
	}
	listener, err := s.plan.listen(port)
	if err != nil {
		return err
	}
	err = s.attempt.ports.serve(begunPort{listener, port.Inside})
	switch {
	case errors.Is(err, publish.ErrClosed):
		return ErrSessionEnded
	case err != nil:
		return &SetupError{Why: "publish a port: " + printable(err.Error()), Hint: tryAgain}
	}
	return nil
}

// Named sets the name by which a person reaches the session; notices about ports give it.
func (s *Session) Named(name string) {
	p := &s.attempt.ports
	p.mu.Lock()
	defer p.mu.Unlock()
	p.name = name
}
