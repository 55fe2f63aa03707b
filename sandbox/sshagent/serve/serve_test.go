package serve

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
	"golang.org/x/crypto/ssh/knownhosts"
	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/sshagent"
)

// world is a person's agent with three keys, two hosts, and the agent of a sandbox.
type world struct {
	t           *testing.T
	setup       sshagent.Setup
	keyring     *counting
	named, rest ssh.PublicKey
	rsa         ssh.PublicKey
	host, other ssh.Signer
	conn        net.Conn

	mu    sync.Mutex
	told  []string
	asked []sshagent.Question
	// undecided: nobody answered.
	undecided bool
	answers   bool
}

// counting is an agent that counts what reached it.
type counting struct {
	agent.ExtendedAgent
	mu      sync.Mutex
	signed  int
	changed int
}

func (c *counting) SignWithFlags(key ssh.PublicKey, data []byte, flags agent.SignatureFlags) (*ssh.Signature, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.signed++
	return c.ExtendedAgent.SignWithFlags(key, data, flags)
}

func (c *counting) Sign(key ssh.PublicKey, data []byte) (*ssh.Signature, error) {
	return c.SignWithFlags(key, data, 0)
}

func (c *counting) change() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changed++
	return nil
}

func (c *counting) Add(agent.AddedKey) error     { return c.change() }
func (c *counting) Remove(ssh.PublicKey) error   { return c.change() }
func (c *counting) RemoveAll() error             { return c.change() }
func (c *counting) Lock(passphrase []byte) error { return c.change() }

func (c *counting) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.signed
}

func signer(t testing.TB, key crypto.Signer) ssh.Signer {
	t.Helper()
	s, err := ssh.NewSignerFromSigner(key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newKey(t testing.TB) (ed25519.PrivateKey, ssh.Signer) {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return private, signer(t, private)
}

// rsaKey is one for all: it takes a second to make.
var rsaKey = sync.OnceValue(func() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
})

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, keyring: &counting{ExtendedAgent: agent.NewKeyring().(agent.ExtendedAgent)}}
	for i, into := range []*ssh.PublicKey{&w.named, &w.rest, &w.rsa} {
		var private crypto.Signer
		private, _ = newKey(t)
		if i == 2 {
			private = rsaKey()
		}
		if ed, is := private.(ed25519.PrivateKey); is {
			if err := w.keyring.ExtendedAgent.Add(agent.AddedKey{PrivateKey: &ed}); err != nil {
				t.Fatal(err)
			}
		} else if err := w.keyring.ExtendedAgent.Add(agent.AddedKey{PrivateKey: private}); err != nil {
			t.Fatal(err)
		}
		*into = signer(t, private).PublicKey()
	}
	_, w.host = newKey(t)
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	w.other = signer(t, curve)
	dir, err := os.MkdirTemp("", "agent") // its path is short, as a socket's name has to be
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "agent")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go agent.ServeAgent(w.keyring, conn)
		}
	}()
	line := func(key ssh.PublicKey) string { return string(ssh.MarshalAuthorizedKey(key)) }
	w.setup = sshagent.Setup{Server: socket, KnownHosts: []string{
		knownhosts.Line([]string{knownhosts.HashHostname("github.com")}, w.host.PublicKey()) + "\n" + knownhosts.Line([]string{"[example.org]:2222"}, w.other.PublicKey()) + "\n"},
		Keys: []sshagent.Key{
			{Name: "named", Public: line(w.named), Hosts: []profile.SSHHost{{User: "git", Name: "github.com"}}},
			{Name: "rsa", Fingerprint: ssh.FingerprintSHA256(w.rsa), Hosts: []profile.SSHHost{{Name: "github.com"}}, SignCommits: true},
		}}
	return w
}

// start serves the sandbox's side, and connects to it.
func (w *world) start() {
	w.t.Helper()
	s := New(w.setup, func(_ context.Context, q sshagent.Question) sshagent.Answer {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.asked = append(w.asked, q)
		return sshagent.Answer{Allowed: w.answers, Why: "a person said no", Undecided: w.undecided}
	}, func(refused string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.told = append(w.told, refused)
	})
	w.conn = w.again(s)
}

// again connects to a server.
func (w *world) again(s *Server) net.Conn {
	inside, outside := net.Pipe()
	w.t.Cleanup(func() { inside.Close(); outside.Close() })
	go func() {
		defer outside.Close()
		(&client{server: s}).serve(w.t.Context(), outside)
	}()
	return inside
}

func (w *world) tells() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.told, "\n")
}

// say sends a message and returns the answer; nil if the connection was closed.
func say(t testing.TB, conn net.Conn, message []byte) []byte {
	t.Helper()
	if _, err := conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(message))), message...)); err != nil {
		return nil
	}
	var length [4]byte
	if _, err := io.ReadFull(conn, length[:]); err != nil {
		return nil
	}
	answer := make([]byte, binary.BigEndian.Uint32(length[:]))
	if _, err := io.ReadFull(conn, answer); err != nil {
		t.Fatal(err)
	}
	return answer
}

type bindMessage struct {
	HostKey, Session, Signature []byte
	Forwarding                  bool
}

func bindFor(t testing.TB, host ssh.Signer, session []byte) bindMessage {
	t.Helper()
	signature, err := host.Sign(rand.Reader, session)
	if err != nil {
		t.Fatal(err)
	}
	return bindMessage{host.PublicKey().Marshal(), session, ssh.Marshal(signature), false}
}

func (m bindMessage) bytes() []byte {
	return append([]byte{agentExtension}, ssh.Marshal(struct {
		Name string
		Rest []byte `ssh:"rest"`
	}{sessionBind, ssh.Marshal(m)})...)
}

func request(key ssh.PublicKey, data []byte, flags uint32) []byte {
	return append([]byte{agentSignRequest}, ssh.Marshal(struct {
		Key, Data []byte
		Flags     uint32
	}{key.Marshal(), data, flags})...)
}

func signIn(key ssh.PublicKey, session []byte) userAuth {
	a := userAuth{session, messageUserAuth, "git", "ssh-connection", methodPlain, true, key.Type(), key.Marshal(), nil}
	if key.Type() == ssh.KeyAlgoRSA {
		a.Algorithm = ssh.KeyAlgoRSASHA512
	}
	return a
}

func commit(namespace, reserved, hash string, sum int) []byte {
	return append([]byte(magicSSHSIG), ssh.Marshal(struct {
		Namespace, Reserved, Hash string
		Sum                       []byte
	}{namespace, reserved, hash, make([]byte, sum)})...)
}

var session = bytes.Repeat([]byte{7}, 32)

func TestASignInToANamedHostIsSigned(t *testing.T) {
	for name, c := range map[string]struct {
		key   func(*world) ssh.PublicKey
		flags uint32
		auth  func(*world, *userAuth)
	}{
		"plain": {key: func(w *world) ssh.PublicKey { return w.named }},
		"rsa":   {key: func(w *world) ssh.PublicKey { return w.rsa }, flags: uint32(agent.SignatureFlagRsaSha512)},
		"host-bound": {key: func(w *world) ssh.PublicKey { return w.named }, auth: func(w *world, a *userAuth) {
			a.Method, a.Rest = methodHostBound, ssh.Marshal(struct{ Host []byte }{w.host.PublicKey().Marshal()})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.start()
			if got := say(t, w.conn, bindFor(t, w.host, session).bytes()); !bytes.Equal(got, []byte{agentSuccess}) {
				t.Fatalf("bind: %v, %s", got, w.tells())
			}
			key := c.key(w)
			auth := signIn(key, session)
			if c.auth != nil {
				c.auth(w, &auth)
			}
			data := ssh.Marshal(auth)
			got := say(t, w.conn, request(key, data, c.flags))
			if len(got) == 0 || got[0] != agentSignResponse {
				t.Fatalf("%v, %s", got, w.tells())
			}
			var answer struct{ Signature []byte }
			signature := new(ssh.Signature)
			if err := ssh.Unmarshal(got[1:], &answer); err != nil {
				t.Fatal(err)
			}
			if err := ssh.Unmarshal(answer.Signature, signature); err != nil {
				t.Fatal(err)
			}
			if err := key.Verify(data, signature); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestOnlyNamedKeysThatThereAreAreListed(t *testing.T) {
	w := newWorld(t)
	_, absent := newKey(t)
	w.setup.Keys = append(w.setup.Keys, sshagent.Key{Name: "absent", Public: string(ssh.MarshalAuthorizedKey(absent.PublicKey()))})
	w.start()
	list, err := agent.NewClient(w.conn).List()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, k := range list {
		got = append(got, ssh.FingerprintSHA256(k))
	}
	want := []string{ssh.FingerprintSHA256(w.named), ssh.FingerprintSHA256(w.rsa)}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// Each row changes one thing of a sign-in that passes.
func TestNothingElseIsSigned(t *testing.T) {
	type attempt struct {
		bind  *bindMessage // nil: none
		auth  userAuth
		key   ssh.PublicKey
		data  []byte // in place of auth
		flags uint32
		first []byte // said before all else
	}
	for name, c := range map[string]struct {
		change func(*testing.T, *world, *attempt)
		told   string
	}{
		"without a session":            {func(_ *testing.T, w *world, a *attempt) { a.bind = nil }, "OpenSSH 8.9 or later"},
		"a key that was not named":     {func(_ *testing.T, w *world, a *attempt) { a.key, a.auth = w.rest, signIn(w.rest, session) }, "a key that was not named"},
		"for another key":              {func(_ *testing.T, w *world, a *attempt) { a.auth.Key = w.rest.Marshal() }, "neither a sign-in"},
		"another session":              {func(_ *testing.T, w *world, a *attempt) { a.auth.Session = bytes.Repeat([]byte{8}, 32) }, "for another session"},
		"another message":              {func(_ *testing.T, w *world, a *attempt) { a.auth.Message = 51 }, "neither a sign-in"},
		"another service":              {func(_ *testing.T, w *world, a *attempt) { a.auth.Service = "ssh-userauth" }, "neither a sign-in"},
		"another method":               {func(_ *testing.T, w *world, a *attempt) { a.auth.Method = "hostbased" }, "neither a sign-in"},
		"a question and no signature":  {func(_ *testing.T, w *world, a *attempt) { a.auth.Signed = false }, "neither a sign-in"},
		"another algorithm":            {func(_ *testing.T, w *world, a *attempt) { a.auth.Algorithm = ssh.KeyAlgoRSASHA512 }, "neither a sign-in"},
		"something behind it":          {func(_ *testing.T, w *world, a *attempt) { a.auth.Rest = []byte{0} }, "neither a sign-in"},
		"another user":                 {func(_ *testing.T, w *world, a *attempt) { a.auth.User = "root" }, "root@github.com"},
		"a user with a terminal's own": {func(_ *testing.T, w *world, a *attempt) { a.auth.User = "a\x1b[2Jb" }, "which is no name of a user"},
		"a user that reads as a host, where a person is asked": {func(_ *testing.T, w *world, a *attempt) {
			w.setup.Asks, w.answers, a.auth.User = true, true, "x at github.com. May it? ("
		}, "which is no name of a user"},
		"no user, where a person is asked": {func(_ *testing.T, w *world, a *attempt) {
			w.setup.Asks, w.answers, a.auth.User = true, true, ""
		}, "which is no name of a user"},
		"host-bound to another host": {func(_ *testing.T, w *world, a *attempt) {
			a.auth.Method, a.auth.Rest = methodHostBound, ssh.Marshal(struct{ Host []byte }{w.other.PublicKey().Marshal()})
		}, "for another host"},
		"host-bound to none": {func(_ *testing.T, w *world, a *attempt) { a.auth.Method = methodHostBound }, "for another host"},
		"text":               {func(_ *testing.T, w *world, a *attempt) { a.data = []byte("tree 4b825dc") }, "neither a sign-in"},
		"nothing":            {func(_ *testing.T, w *world, a *attempt) { a.data = []byte{} }, "neither a sign-in"},
		"by SHA-1": {func(_ *testing.T, w *world, a *attempt) {
			a.key, a.auth = w.rsa, signIn(w.rsa, session)
			a.auth.Algorithm = ssh.KeyAlgoRSA
		}, "SHA-1"},
		"flags that nobody knows": {func(_ *testing.T, w *world, a *attempt) { a.flags = 1 }, "a kind that is not understood"},
		"a host that is known and was not named": {func(t *testing.T, w *world, a *attempt) {
			*a.bind = bindFor(t, w.other, session)
		}, "--ssh-agent example.org:2222=named"},
		"a host that nobody knows": {func(t *testing.T, w *world, a *attempt) {
			_, unknown := newKey(t)
			*a.bind = bindFor(t, unknown, session)
		}, "your known_hosts does not have"},
		"a host whose key was revoked": {func(t *testing.T, w *world, a *attempt) {
			w.setup.KnownHosts = append(w.setup.KnownHosts, "@revoked * "+string(ssh.MarshalAuthorizedKey(w.host.PublicKey())))
		}, "your known_hosts does not have"},
		"a host that another has signed for": {func(t *testing.T, w *world, a *attempt) {
			a.bind.Signature = bindFor(t, w.other, session).Signature
		}, "that its host has not signed"},
		"a host's signature for another session": {func(t *testing.T, w *world, a *attempt) {
			a.bind.Session, a.auth.Session = bytes.Repeat([]byte{8}, 32), bytes.Repeat([]byte{8}, 32)
		}, "that its host has not signed"},
		"a session's id that is a text": {func(t *testing.T, w *world, a *attempt) {
			*a.bind = bindFor(t, w.host, bytes.Repeat([]byte{7}, 65))
			a.auth.Session = a.bind.Session
		}, "id that is none"},
		"a session's id that is short": {func(t *testing.T, w *world, a *attempt) {
			*a.bind = bindFor(t, w.host, []byte{7})
			a.auth.Session = a.bind.Session
		}, "id that is none"},
		"a forwarded agent": {func(_ *testing.T, w *world, a *attempt) { a.bind.Forwarding = true }, "forwarding the agent"},
		"a second session": {func(t *testing.T, w *world, a *attempt) {
			a.first = bindFor(t, w.host, bytes.Repeat([]byte{9}, 32)).bytes()
		}, "a second session"},
		"a host's key that takes long": {func(t *testing.T, w *world, a *attempt) {
			a.bind.HostKey = ssh.Marshal(struct {
				Kind string
				E, N []byte
			}{ssh.KeyAlgoRSA, []byte{1, 0, 1}, append([]byte{0x7f}, make([]byte, 100_000)...)})
		}, "a kind that is not understood"},
		"a host's key that is long": {func(t *testing.T, w *world, a *attempt) {
			a.bind.HostKey = ssh.Marshal(struct {
				Kind        string
				Key         []byte
				Application string
			}{ssh.KeyAlgoSKED25519, make([]byte, ed25519.PublicKeySize), strings.Repeat("x", maxHostKey)})
		}, "a kind that is not understood"},
		"a long certificate of a key that was named": {func(_ *testing.T, w *world, a *attempt) {
			certificate := &ssh.Certificate{Key: w.named, CertType: ssh.UserCert, KeyId: strings.Repeat("x", 2*maxHostKey), ValidBefore: ssh.CertTimeInfinity}
			if err := certificate.SignCert(rand.Reader, w.other); err != nil {
				w.t.Fatal(err)
			}
			a.key, a.auth = certificate, signIn(certificate, session)
		}, "a key that was not named"},
		"a host with a certificate": {func(t *testing.T, w *world, a *attempt) {
			host := certified(t, w.host)
			w.setup.KnownHosts = append(w.setup.KnownHosts, knownhosts.Line([]string{"github.com"}, host.PublicKey())+"\n")
			*a.bind = bindFor(t, host, session)
		}, "is a certificate"},
		"an unbound key after a session that was refused": {func(_ *testing.T, w *world, a *attempt) {
			w.setup.Keys[0].Unbound, a.bind.Forwarding = true, true
		}, "after a session that was refused"},
		"an unbound key after a session without a host": {func(_ *testing.T, w *world, a *attempt) {
			w.setup.Keys[0].Unbound, a.bind, a.first = true, nil, bindMessage{}.bytes()
		}, "after a session that was refused"},
		"an unbound key in another session than the one it is bound to": {func(_ *testing.T, w *world, a *attempt) {
			w.setup.Keys[0].Unbound, a.auth.Session = true, bytes.Repeat([]byte{8}, 32)
		}, "for another session"},
		"a host that nobody named, where nobody is asked and the answer would be yes": {func(t *testing.T, w *world, a *attempt) {
			w.answers = true
			*a.bind = bindFor(t, w.other, session)
		}, "--ssh-agent example.org:2222=named"},
		"a host's key that is none":         {func(_ *testing.T, w *world, a *attempt) { a.bind.HostKey = []byte("x") }, "a kind that is not understood"},
		"a commit by a key that signs none": {func(_ *testing.T, w *world, a *attempt) { a.data = commit("git", "", "sha512", 64) }, "--sign-commits named"},
		"a file": {func(_ *testing.T, w *world, a *attempt) {
			a.key, a.flags, a.data = w.rsa, 4, commit("file", "", "sha512", 64)
		}, "a signature for file"},
		"a commit with another hash": {func(_ *testing.T, w *world, a *attempt) {
			a.key, a.flags, a.data = w.rsa, 4, commit("git", "", "md5", 16)
		}, "cannot be read"},
		"a commit with a hash that is longer": {func(_ *testing.T, w *world, a *attempt) {
			a.key, a.flags, a.data = w.rsa, 4, commit("git", "", "sha512", 65)
		}, "cannot be read"},
		"a commit with something reserved": {func(_ *testing.T, w *world, a *attempt) {
			a.key, a.flags, a.data = w.rsa, 4, commit("git", "x", "sha512", 64)
		}, "cannot be read"},
		"a commit with something behind it": {func(_ *testing.T, w *world, a *attempt) {
			a.key, a.flags, a.data = w.rsa, 4, append(commit("git", "", "sha512", 64), 0)
		}, "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			bind := bindFor(t, w.host, session)
			a := attempt{bind: &bind, auth: signIn(w.named, session), key: w.named}
			c.change(t, w, &a)
			w.start()
			if a.first != nil {
				say(t, w.conn, a.first)
			}
			if a.bind != nil {
				say(t, w.conn, a.bind.bytes())
			}
			data := a.data
			if data == nil {
				data = ssh.Marshal(a.auth)
			}
			if got := say(t, w.conn, request(a.key, data, a.flags)); !bytes.Equal(got, []byte{agentFailure}) {
				t.Errorf("answered %v", got)
			}
			if n := w.keyring.count(); n != 0 {
				t.Errorf("the person's agent signed %d times", n)
			}
			if len(w.asked) != 0 {
				t.Errorf("a person was asked: %+v", w.asked)
			}
			if !strings.Contains(w.tells(), c.told) || strings.ContainsRune(w.tells(), '\x1b') {
				t.Errorf("told %q, want %q", w.tells(), c.told)
			}
		})
	}
}

// certified is a host whose key is a certificate.
func certified(t *testing.T, host ssh.Signer) ssh.Signer {
	t.Helper()
	certificate := &ssh.Certificate{Key: host.PublicKey(), CertType: ssh.HostCert, ValidPrincipals: []string{"github.com"}, ValidBefore: ssh.CertTimeInfinity}
	err := certificate.SignCert(rand.Reader, host)
	if err != nil {
		t.Fatal(err)
	}
	s, err := ssh.NewCertSigner(certificate, host)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestASessionCountsOnce(t *testing.T) {
	w := newWorld(t)
	s := New(w.setup, nil, func(string) {})
	for i, want := range []byte{agentSuccess, agentFailure} {
		conn := w.again(s)
		if got := say(t, conn, bindFor(t, w.host, session).bytes()); !bytes.Equal(got, []byte{want}) {
			t.Errorf("%d: %v, want %d", i, got, want)
		}
		want := []byte{agentSignResponse, agentFailure}[i]
		if got := say(t, conn, request(w.named, ssh.Marshal(signIn(w.named, session)), 0)); got[0] != want {
			t.Errorf("%d: the sign-in: %d, want %d", i, got[0], want)
		}
	}
}

func TestNobodyInsideChangesTheAgent(t *testing.T) {
	w := newWorld(t)
	w.start()
	_, extra := newKey(t)
	c := agent.NewClient(w.conn)
	private, _ := newKey(t)
	for name, err := range map[string]error{
		"add": c.Add(agent.AddedKey{PrivateKey: &private}), "remove": c.Remove(w.named), "remove another": c.Remove(extra.PublicKey()), "remove all": c.RemoveAll(),
		"lock": c.Lock([]byte("x")), "unlock": c.Unlock([]byte("x")),
	} {
		if err == nil {
			t.Errorf("%s: done", name)
		}
	}
	conn := w.again(New(w.setup, nil, func(string) {}))
	for _, kind := range []byte{0, 1, 3, 9, 20, 21, 26, 28, 255} { // smart cards, protocol 1, what does not exist
		if got := say(t, conn, []byte{kind, 1, 2, 3}); !bytes.Equal(got, []byte{agentFailure}) {
			t.Errorf("message %d: %v", kind, got)
		}
	}
	if _, err := c.Extension("query", nil); err == nil {
		t.Error("an extension is answered")
	}
	if w.keyring.changed != 0 {
		t.Errorf("%d changes", w.keyring.changed)
	}
}

func TestACommitIsSignedByAKeyThatMay(t *testing.T) {
	w := newWorld(t)
	w.start()
	for _, size := range []struct {
		hash string
		sum  int
	}{{"sha512", 64}, {"sha256", 32}} {
		if got := say(t, w.conn, request(w.rsa, commit("git", "", size.hash, size.sum), 4)); len(got) == 0 || got[0] != agentSignResponse {
			t.Errorf("%v: %s", size, w.tells())
		}
	}
}

func TestAPersonIsAskedOnceForAHostThatNobodyNamed(t *testing.T) {
	for _, allowed := range []bool{true, false} {
		w := newWorld(t)
		w.setup.Asks, w.answers = true, allowed
		w.start()
		want := agentFailure
		if allowed {
			want = agentSignResponse
		}
		if got := say(t, w.conn, bindFor(t, w.other, session).bytes()); !bytes.Equal(got, []byte{agentSuccess}) {
			t.Fatal(w.tells())
		}
		for range 2 {
			if got := say(t, w.conn, request(w.named, ssh.Marshal(signIn(w.named, session)), 0)); int(got[0]) != want {
				t.Errorf("allowed %v: %v, %s", allowed, got, w.tells())
			}
		}
		question := sshagent.Question{Key: "named", User: "git", Host: "[example.org]:2222", HostKey: ssh.FingerprintSHA256(w.other.PublicKey())}
		if len(w.asked) != 1 || w.asked[0] != question {
			t.Errorf("asked %+v", w.asked)
		}
		if !allowed && !strings.Contains(w.tells(), "a person said no") {
			t.Error(w.tells())
		}
	}
}

func TestAQuestionThatNobodyAnsweredIsAskedAgain(t *testing.T) {
	w := newWorld(t)
	w.setup.Asks, w.undecided = true, true
	w.start()
	say(t, w.conn, bindFor(t, w.other, session).bytes())
	for range maxQuestions + 5 {
		if got := say(t, w.conn, request(w.named, ssh.Marshal(signIn(w.named, session)), 0)); got[0] != agentFailure {
			t.Fatal(got)
		}
	}
	if len(w.asked) != maxQuestions {
		t.Errorf("asked %d times", len(w.asked))
	}
}

func TestAKeyThatMayBeUsedUnboundNeedsNoSession(t *testing.T) {
	w := newWorld(t)
	w.setup.Keys[0].Unbound = true
	w.start()
	if got := say(t, w.conn, request(w.named, ssh.Marshal(signIn(w.named, session)), 0)); got[0] != agentSignResponse {
		t.Error(w.tells())
	}
	if got := say(t, w.conn, request(w.named, []byte("text"), 0)); got[0] != agentFailure {
		t.Error("what is no sign-in is signed")
	}
}

func TestWhatComesFromInsideIsBounded(t *testing.T) {
	w := newWorld(t)
	w.start()
	for _, length := range []uint32{0, maxMessage + 1, 1<<32 - 1} {
		conn := w.again(New(w.setup, nil, func(string) {}))
		go conn.Write(binary.BigEndian.AppendUint32(nil, length))
		if n, err := io.ReadFull(conn, make([]byte, 1)); err != io.EOF {
			t.Errorf("a message of %d bytes: %d, %v", length, n, err)
		}
	}
	answered := 0
	for answered <= maxRequests && say(t, w.conn, []byte{255}) != nil {
		answered++
	}
	if answered != maxRequests {
		t.Errorf("%d requests on one connection", answered)
	}
	// What one sandbox may have signed, and how many sessions it may name: of each the last one,
	// and no more.
	full := New(w.setup, nil, func(string) {})
	full.signed = maxSignatures - 1
	for i := range maxBound - 1 {
		full.bound[fmt.Sprint(i)] = true
	}
	for i, want := range [][]byte{{agentSuccess}, {agentFailure}} {
		if got := say(t, w.again(full), bindFor(t, w.host, bytes.Repeat([]byte{byte(i)}, 32)).bytes()); !bytes.Equal(got, want) {
			t.Errorf("session %d: %v", maxBound+i, got)
		}
	}
	for i, want := range []byte{agentSignResponse, agentFailure} {
		if got := say(t, w.again(full), request(w.rsa, commit("git", "", "sha512", 64), 4)); got[0] != want {
			t.Errorf("signature %d: %v", maxSignatures+i, got)
		}
	}
	told := 0
	s := New(w.setup, nil, func(string) { told++ })
	for i := range 10 * maxReports {
		s.refuse(fmt.Sprint(i))
	}
	if told != maxReports {
		t.Errorf("%d refusals told", told)
	}
}

func TestAnotherUsersAgentIsNotAsked(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("it takes another user")
	}
	w := newWorld(t)
	s := New(w.setup, nil, func(string) {})
	if _, err := s.dial(); err != nil {
		t.Fatal(err)
	}
	w.setup.Server = anotherUsers(t)
	if _, err := New(w.setup, nil, nil).dial(); err == nil || !strings.Contains(err.Error(), "belongs to another user") {
		t.Errorf("another user's: %v", err)
	}
	w.setup.Server = filepath.Join(t.TempDir(), "none")
	if _, err := New(w.setup, nil, nil).dial(); err == nil {
		t.Error("an agent that is not there")
	}
}

// anotherUsers is a socket at which another user listens.
func anotherUsers(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "agent")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		t.Cleanup(func() { unix.Close(fd) })
		err = unix.Bind(fd, &unix.SockaddrUnix{Name: path})
	}
	if err != nil {
		t.Fatal(err)
	}
	listening := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread is another user's from here on
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, ^uintptr(0), 65534, ^uintptr(0)); errno != 0 {
			listening <- errno
			return
		}
		listening <- unix.Listen(fd, 1)
	}()
	if err := <-listening; err != nil {
		t.Fatal(err)
	}
	return path
}

func TestKnownHostsAreReadAsSSHReadsThem(t *testing.T) {
	_, a := newKey(t)
	_, b := newKey(t)
	line := func(patterns string, k ssh.Signer) string {
		return patterns + " " + string(ssh.MarshalAuthorizedKey(k.PublicKey()))
	}
	hash := knownhosts.HashHostname("hashed.org")
	for _, c := range []struct {
		file, host string
		is         bool
	}{
		{line("example.org", a), "example.org", true},
		{line("EXAMPLE.org", a), "example.org", true},
		{line("example.org", b), "example.org", false},
		{line("a.org,example.org", a), "example.org", true},
		{line("*.example.org", a), "x.example.org", true},
		{line("*.example.org", a), "example.org", false},
		{line("?.org", a), "a.org", true},
		{line("*.org,!bad.org", a), "bad.org", false},
		{line("*.org,!bad.org", a), "good.org", true},
		{line(hash, a), "hashed.org", true},
		{line(hash, a), "other.org", false},
		{line("[example.org]:2222", a), "[example.org]:2222", true},
		{line("[example.org]:2222", a), "example.org", false},
		{line("example.org", a), "[example.org]:2222", false},
		{line("example.org", a) + "@revoked * " + string(ssh.MarshalAuthorizedKey(a.PublicKey())), "example.org", false},
		{"@cert-authority example.org " + string(ssh.MarshalAuthorizedKey(a.PublicKey())), "example.org", false},
		{"# a comment\n\nno line\n" + line("example.org", a), "example.org", true},
		{line("[a-z].org", a), "b.org", false},
	} {
		if got := readKnownHosts([]string{c.file}).has(c.host, a.PublicKey().Marshal()); got != c.is {
			t.Errorf("%q has %s: %v", c.file, c.host, got)
		}
	}
}

func FuzzWhatComesFromInside(f *testing.F) {
	private, host := newKey(f)
	named := signer(f, private)
	known := knownhosts.Line([]string{"github.com"}, host.PublicKey())
	f.Add([]byte{agentRequestIdentities})
	f.Add(bindFor(f, host, session).bytes())
	f.Add(request(named.PublicKey(), ssh.Marshal(signIn(named.PublicKey(), session)), 0))
	f.Add(request(named.PublicKey(), commit("git", "", "sha512", 64), 0))
	f.Fuzz(func(t *testing.T, message []byte) {
		if len(message) == 0 || len(message) > maxMessage {
			return
		}
		s := New(sshagent.Setup{Server: "/nonexistent", KnownHosts: []string{known}, Keys: []sshagent.Key{{Name: "named", Public: string(ssh.MarshalAuthorizedKey(named.PublicKey()))}}},
			nil, func(string) {})
		// Without a host of the key's, nothing may come as far as the person's agent.
		c := client{server: s}
		if _, err := c.answer(t.Context(), message); err != nil && message[0] == agentSignRequest && strings.Contains(err.Error(), "does not answer") {
			t.Error("it came through")
		}
	})
}
