package serve

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile/text"
	"github.com/clairun/clai-sandbox/sandbox/sshagent"
)

const (
	// maxConnections bounds what one sandbox has open at a time; further clients wait.
	maxConnections = 32
	// maxMessage is OpenSSH's own bound (AGENT_MAX_LEN), in bytes.
	maxMessage = 256 << 10
	// maxRequests bounds what is asked on one connection, and maxSignatures what is signed for one
	// sandbox.
	maxRequests   = 1000
	maxSignatures = 10_000
	// maxBound bounds the sessions of one sandbox; each counts once.
	maxBound = 10_000
	// idle is how long a connection may say nothing, and agentTimeout how long the person's agent
	// may take: it may wait for a touch or a confirmation.
	idle         = 10 * time.Minute
	agentTimeout = 2 * time.Minute
	// maxReports bounds what is told of refusals.
	maxReports = 20
	// maxQuestions bounds what a person is asked for one sandbox.
	maxQuestions = 50
)

// The messages of the protocol (draft-miller-ssh-agent, section 6.1).
const (
	agentFailure           = 5
	agentSuccess           = 6
	agentRequestIdentities = 11
	agentIdentitiesAnswer  = 12
	agentSignRequest       = 13
	agentSignResponse      = 14
	agentExtension         = 27

	sessionBind = "session-bind@openssh.com"
)

// A Server is the agent of one sandbox.
type Server struct {
	setup sshagent.Setup
	known knownHosts
	keys  []key
	ask   func(context.Context, sshagent.Question) sshagent.Answer
	tell  func(refused string)

	mu     sync.Mutex
	bound  map[string]bool // sessions, by their ids
	signed int
	told   map[string]bool

	asking   sync.Mutex // one question at a time
	asked    int
	answered map[sshagent.Question]sshagent.Answer
}

// key is one of the setup's, understood.
type key struct {
	sshagent.Key
	public []byte // nil: by its fingerprint
}

// New reads a setup. ask is for a host that nobody named, and tell hears of what was refused.
func New(setup sshagent.Setup, ask func(context.Context, sshagent.Question) sshagent.Answer, tell func(refused string)) *Server {
	s := &Server{setup: setup, known: readKnownHosts(setup.KnownHosts), ask: ask, tell: tell, bound: map[string]bool{}, answered: map[sshagent.Question]sshagent.Answer{}, told: map[string]bool{}}
	for _, k := range setup.Keys {
		if k.Fingerprint != "" {
			s.keys = append(s.keys, key{Key: k})
			continue
		}
		public, _, _, _, err := ssh.ParseAuthorizedKey([]byte(k.Public))
		if err != nil {
			s.refuse("key " + text.Value(k.Name) + ": its file has no public key")
			continue
		}
		s.keys = append(s.keys, key{k, plain(public).Marshal()})
	}
	return s
}

// plain is the key that a certificate is about.
func plain(k ssh.PublicKey) ssh.PublicKey {
	if c, is := k.(*ssh.Certificate); is {
		return c.Key
	}
	return k
}

// keyOf is what was said about a key, nil if it was not named.
func (s *Server) keyOf(blob []byte) *key {
	if len(blob) > 2*maxHostKey {
		return nil
	}
	public, err := ssh.ParsePublicKey(blob)
	if err != nil {
		return nil
	}
	bare := plain(public)
	for i, k := range s.keys {
		if k.public != nil && string(k.public) == string(bare.Marshal()) || k.Fingerprint != "" && k.Fingerprint == ssh.FingerprintSHA256(bare) {
			return &s.keys[i]
		}
	}
	return nil
}

// Serve serves all who connect, until the context ends.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	stop := context.AfterFunc(ctx, func() { listener.Close() })
	defer stop()
	slots := make(chan struct{}, maxConnections)
	for {
		slots <- struct{}{}
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer func() { <-slots }()
			defer conn.Close()
			stop := context.AfterFunc(ctx, func() { conn.Close() })
			defer stop()
			c := client{server: s, pid: peer(conn).pid}
			c.serve(ctx, conn)
		}()
	}
}

// refuse tells of a refusal, of each once, and of so many.
func (s *Server) refuse(why string) {
	s.mu.Lock()
	tell := !s.told[why] && len(s.told) < maxReports
	if tell {
		s.told[why] = true
	}
	s.mu.Unlock()
	if tell {
		s.tell(why)
	}
}

// A client is one connection.
type client struct {
	server  *Server
	pid     int
	binding *binding
	spoilt  bool // a session was to be bound, and was not
}

// serve answers requests until one of the two has enough.
func (c *client) serve(ctx context.Context, conn net.Conn) {
	for range maxRequests {
		conn.SetReadDeadline(time.Now().Add(idle))
		var length [4]byte
		if _, err := io.ReadFull(conn, length[:]); err != nil {
			return
		}
		n := binary.BigEndian.Uint32(length[:])
		if n == 0 || n > maxMessage {
			return
		}
		conn.SetReadDeadline(time.Now().Add(time.Minute)) // it has begun to say it
		message := make([]byte, n)
		if _, err := io.ReadFull(conn, message); err != nil {
			return
		}
		answer, err := c.answer(ctx, message)
		if err != nil {
			c.server.refuse(err.Error())
			answer = []byte{agentFailure}
		}
		conn.SetWriteDeadline(time.Now().Add(time.Minute))
		if _, err := conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(answer))), answer...)); err != nil {
			return
		}
	}
}

// answer carries out one request. The error says why not.
func (c *client) answer(ctx context.Context, message []byte) ([]byte, error) {
	switch message[0] {
	case agentRequestIdentities:
		return c.server.list()
	case agentSignRequest:
		var request struct {
			Key   []byte
			Data  []byte
			Flags uint32
		}
		if err := ssh.Unmarshal(message[1:], &request); err != nil {
			return nil, errors.New("a request to sign that cannot be read")
		}
		return c.sign(ctx, request.Key, request.Data, request.Flags)
	case agentExtension:
		var request struct {
			Name string
			Rest []byte `ssh:"rest"`
		}
		if err := ssh.Unmarshal(message[1:], &request); err != nil || request.Name != sessionBind {
			return []byte{agentFailure}, nil // as an agent answers that knows no such extension
		}
		if err := c.bind(request.Rest); err != nil {
			c.spoilt = true
			return nil, err
		}
		return []byte{agentSuccess}, nil
	}
	return nil, errors.New("adding, removing and locking keys is refused: do that outside")
}

// list are the keys that were named and that the person's agent has.
func (s *Server) list() ([]byte, error) {
	upstream, err := s.dial()
	if err != nil {
		return nil, err
	}
	defer upstream.conn.Close()
	have, err := upstream.List()
	if err != nil {
		return nil, errors.New("your ssh-agent does not list its keys: " + text.Line(err.Error()))
	}
	var answer []byte
	n := uint32(0)
	for _, k := range have {
		if s.keyOf(k.Blob) == nil || len(answer) > maxMessage/2 {
			continue
		}
		n++
		answer = append(answer, ssh.Marshal(struct {
			Blob    []byte
			Comment string
		}{k.Blob, k.Comment})...)
	}
	if n == 0 {
		s.refuse(fmt.Sprintf("your ssh-agent has none of the named keys (%s): ssh-add adds one", s.names()))
	}
	return append(binary.BigEndian.AppendUint32([]byte{agentIdentitiesAnswer}, n), answer...), nil
}

func (s *Server) names() string {
	var list []string
	for _, k := range s.setup.Keys {
		list = append(list, text.Value(k.Name))
	}
	return strings.Join(list, ", ")
}

// upstream is a connection to the person's agent.
type upstream struct {
	agent.ExtendedAgent
	conn net.Conn
}

// dial connects to the person's agent, if it is the person's.
func (s *Server) dial() (upstream, error) {
	conn, err := net.DialTimeout("unix", s.setup.Server, agentTimeout)
	if err != nil {
		return upstream{}, errors.New("your ssh-agent does not answer: " + text.Line(err.Error()))
	}
	if uid := peer(conn).uid; uid != 0 && uid != os.Getuid() {
		conn.Close()
		return upstream{}, errors.New("what listens at $SSH_AUTH_SOCK belongs to another user")
	}
	conn.SetDeadline(time.Now().Add(agentTimeout))
	return upstream{agent.NewClient(conn), conn}, nil
}

// process is who is at the other end of a socket; -1 where that is not known.
type process struct{ uid, pid int }

func peer(conn net.Conn) process {
	none := process{-1, -1}
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		return none
	}
	raw, err := unixConn.SyscallConn()
	if err != nil {
		return none
	}
	var found *unix.Ucred
	raw.Control(func(fd uintptr) { found, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err != nil || found == nil {
		return none
	}
	return process{int(found.Uid), int(found.Pid)}
}

// allowedAt reports whether a key may sign in at an address as a user without a question.
func (k *key) allowedAt(known knownHosts, hostKey []byte, user string) bool {
	for _, h := range k.Hosts {
		if (h.User == "" || h.User == user) && known.has(address(h), hostKey) {
			return true
		}
	}
	return false
}

// mayHave asks a person, once for each question.
func (s *Server) mayHave(ctx context.Context, q sshagent.Question) sshagent.Answer {
	s.asking.Lock()
	defer s.asking.Unlock()
	answer, is := s.answered[q]
	if !is && s.asked < maxQuestions {
		s.asked++
		if answer = s.ask(ctx, q); !answer.Undecided {
			s.answered[q] = answer
		}
	}
	return answer
}
