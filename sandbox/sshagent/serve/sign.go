package serve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/profile/text"
	"github.com/clairun/clai-sandbox/sandbox/sshagent"
)

// A binding is the session that a connection is for.
type binding struct {
	host    ssh.PublicKey
	session []byte
	raw     []byte
}

// maxHostKey bounds a host's key, in bytes: what it costs to check a signature grows with the
// square.
const maxHostKey = 4096

// bind takes a connection for one session: the host's signature proves that its key is at the other
// end of that session, and each session counts once.
func (c *client) bind(raw []byte) error {
	var said struct {
		HostKey, Session, Signature []byte
		Forwarding                  bool
	}
	if err := ssh.Unmarshal(raw, &said); err != nil {
		return errors.New("what ssh says of its session cannot be read")
	}
	var host ssh.PublicKey
	err := errors.New("too long")
	if len(said.HostKey) <= maxHostKey {
		host, err = ssh.ParsePublicKey(said.HostKey)
	}
	if err != nil {
		return errors.New("the host's key is of a kind that is not understood")
	}
	if _, is := host.(*ssh.Certificate); is {
		return errors.New("the host's key is a certificate, which is not understood here; connect to it outside")
	}
	signature := new(ssh.Signature)
	switch err := ssh.Unmarshal(said.Signature, signature); {
	case said.Forwarding:
		return errors.New("forwarding the agent to a host (ssh -A, ForwardAgent) is refused: leave it out, or sign in from there with a key of its own")
	case c.binding != nil || c.spoilt:
		return errors.New("a second session on one connection to the agent")
	case len(said.Session) < 20 || len(said.Session) > 64: // a hash
		return errors.New("a session's id that is none")
	case err != nil || signature.Format == ssh.KeyAlgoRSA || signature.Format == "ssh-dss" || host.Verify(said.Session, signature) != nil: // not by SHA-1
		return errors.New("a session that its host has not signed")
	}
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bound[string(said.Session)] || len(s.bound) == maxBound {
		return errors.New("a session for a second time")
	}
	s.bound[string(said.Session)] = true
	c.binding = &binding{host, said.Session, bytes.Clone(raw)}
	return nil
}

// userAuth is what a sign-in has signed (RFC 4252, section 7; PROTOCOL of OpenSSH,
// publickey-hostbound-v00@openssh.com).
type userAuth struct {
	Session   []byte
	Message   byte
	User      string
	Service   string
	Method    string
	Signed    bool
	Algorithm string
	Key       []byte
	Rest      []byte `ssh:"rest"`
}

const (
	messageUserAuth = 50
	methodPlain     = "publickey"
	methodHostBound = "publickey-hostbound-v00@openssh.com"
)

// sign has the person's agent sign what may be signed.
func (c *client) sign(ctx context.Context, blob, data []byte, flags uint32) ([]byte, error) {
	k := c.server.keyOf(blob)
	if k == nil {
		return nil, errors.New("a signature by a key that was not named")
	}
	public, err := ssh.ParsePublicKey(blob)
	if err != nil {
		return nil, err
	}
	if flags&^uint32(agent.SignatureFlagRsaSha256|agent.SignatureFlagRsaSha512) != 0 {
		return nil, errors.New("a signature of a kind that is not understood")
	}
	if plain(public).Type() == ssh.KeyAlgoRSA && flags == 0 {
		return nil, errors.New("a signature by SHA-1")
	}
	if bytes.HasPrefix(data, []byte(magicSSHSIG)) {
		err = checkCommit(k, data)
	} else {
		err = c.checkSignIn(ctx, k, blob, data)
	}
	if err != nil {
		return nil, err
	}
	return c.pass(public, data, flags)
}

// pass has the person's agent sign.
func (c *client) pass(public ssh.PublicKey, data []byte, flags uint32) ([]byte, error) {
	s := c.server
	s.mu.Lock()
	s.signed++
	tooMany := s.signed > maxSignatures
	s.mu.Unlock()
	if tooMany {
		return nil, fmt.Errorf("more than %d signatures for one sandbox", maxSignatures)
	}
	up, err := s.dial()
	if err != nil {
		return nil, err
	}
	defer up.conn.Close()
	if c.binding != nil {
		up.Extension(sessionBind, c.binding.raw) // for a key that the person has bound to hosts; without an answer it is theirs to refuse
	}
	signature, err := up.SignWithFlags(public, data, agent.SignatureFlags(flags))
	if err != nil {
		return nil, errors.New("your ssh-agent did not sign: " + text.Line(err.Error()))
	}
	return append([]byte{agentSignResponse}, ssh.Marshal(struct{ Signature []byte }{ssh.Marshal(signature)})...), nil
}

// checkSignIn lets nothing pass but a sign-in to a host that the key may be used for.
func (c *client) checkSignIn(ctx context.Context, k *key, blob, data []byte) error {
	var said userAuth
	switch err := ssh.Unmarshal(data, &said); {
	case err != nil || said.Message != messageUserAuth || said.Service != "ssh-connection" || !said.Signed || !bytes.Equal(said.Key, blob) ||
		said.Method != methodPlain && said.Method != methodHostBound || said.Method == methodPlain && len(said.Rest) > 0 || !fits(said.Algorithm, blob):
		return errors.New("a signature for something that is neither a sign-in by ssh nor a commit of git's")
	case c.spoilt:
		return errors.New("a sign-in after a session that was refused")
	case c.binding == nil && !k.Unbound:
		return fmt.Errorf("a sign-in with %s to nobody knows where: it takes OpenSSH 8.9 or later, which says so (ssh -V), or \"unbound\": true for this key in sshKeys in the configuration", text.Value(k.Name))
	case c.binding == nil:
		return nil
	case !bytes.Equal(said.Session, c.binding.session):
		return errors.New("a sign-in for another session")
	}
	host := c.binding.host.Marshal()
	if said.Method == methodHostBound {
		var bound struct{ Host []byte }
		if err := ssh.Unmarshal(said.Rest, &bound); err != nil || !bytes.Equal(bound.Host, host) {
			return errors.New("a sign-in for another host")
		}
	}
	if k.Unbound || k.allowedAt(c.server.known, host, said.User) {
		return nil
	}
	return c.mayAsk(ctx, k, said.User)
}

// fits reports whether an algorithm is one of a key's own.
func fits(algorithm string, blob []byte) bool {
	public, err := ssh.ParsePublicKey(blob)
	if err != nil {
		return false
	}
	switch public.Type() {
	case ssh.KeyAlgoRSA:
		return algorithm == ssh.KeyAlgoRSASHA256 || algorithm == ssh.KeyAlgoRSASHA512
	case ssh.CertAlgoRSAv01:
		return algorithm == ssh.CertAlgoRSASHA256v01 || algorithm == ssh.CertAlgoRSASHA512v01
	}
	return algorithm == public.Type()
}

// mayAsk asks whether a key may sign in at a host that nobody named for it.
func (c *client) mayAsk(ctx context.Context, k *key, user string) error {
	host := c.binding.host
	fingerprint := ssh.FingerprintSHA256(host)
	names := candidates(c.pid)
	for _, h := range k.Hosts {
		names = append(names, address(h))
	}
	name := c.server.known.nameOf(host.Marshal(), names)
	if name == "" {
		return fmt.Errorf("a sign-in with %s to a host that your known_hosts does not have, or by a hash alone (its key is %s): sign in there once outside of the sandbox, or name it: --ssh-agent HOST=%s", text.Value(k.Name), fingerprint, text.Value(k.Name))
	}
	if _, err := profile.ParseSSHHost(user + "@host"); err != nil { // in a question it could read as one about another host
		return fmt.Errorf("a sign-in with %s to %s as %s, which is no name of a user", text.Value(k.Name), name, text.Value(user))
	}
	where := text.Line(user) + "@" + name
	line := fmt.Sprintf("a sign-in with %s to %s, which nobody has named: to let it, --ssh-agent %s=%s", text.Value(k.Name), where, typedHost(name), text.Value(k.Name))
	if !c.server.setup.Asks {
		return errors.New(line)
	}
	q := sshagent.Question{Key: k.Name, User: user, Host: name, HostKey: fingerprint}
	if answer := c.server.mayHave(ctx, q); !answer.Allowed {
		if answer.Why != "" {
			return errors.New(line + " (" + text.Line(answer.Why) + ")")
		}
		return errors.New(line)
	}
	return nil
}

// typedHost is a host of known_hosts as --ssh-agent takes it.
func typedHost(name string) string {
	if host, port, is := strings.Cut(strings.TrimPrefix(name, "["), "]:"); is && !strings.Contains(host, ":") {
		return host + ":" + port
	}
	return name
}

// candidates are what the words of a program may name a host by: ssh has it as one of its
// arguments. They are anybody's words.
func candidates(pid int) (list []string) {
	if pid <= 0 {
		return nil
	}
	file, err := os.Open("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil {
		return nil
	}
	defer file.Close()
	buffer := make([]byte, 4096)
	n, _ := file.Read(buffer)
	words := strings.Split(string(buffer[:n]), "\x00")
	port := ""
	for i, word := range words {
		if word == "-p" && i+1 < len(words) {
			port = words[i+1]
		}
	}
	for _, word := range words {
		word = strings.TrimPrefix(word, "ssh://")
		if len(list) == 20 || word == "" || word[0] == '-' {
			continue
		}
		word = strings.ToLower(word[strings.LastIndexByte(word, '@')+1:])
		if host, behind, is := strings.Cut(word, ":"); is {
			list = append(list, "["+host+"]:"+strings.TrimSuffix(behind, "/"))
			continue
		}
		if port != "" {
			list = append(list, "["+word+"]:"+port)
		}
		list = append(list, word)
	}
	return list
}

const magicSSHSIG = "SSHSIG"

// checkCommit lets nothing pass but what ssh-keygen -Y sign -n git has signed (PROTOCOL.sshsig):
// the hash of a commit or a tag, or of anything else that somebody calls so.
func checkCommit(k *key, data []byte) error {
	var said struct {
		Namespace, Reserved, Hash string
		Sum                       []byte
	}
	err := ssh.Unmarshal(data[len(magicSSHSIG):], &said)
	sizes := map[string]int{"sha256": 32, "sha512": 64}
	switch size := sizes[said.Hash]; {
	case err != nil || said.Reserved != "" || size == 0 || len(said.Sum) != size:
		return errors.New("a signature that cannot be read")
	case said.Namespace != "git":
		return fmt.Errorf("a signature for %s: only git's commits and tags are signed", text.Value(said.Namespace))
	case !k.SignCommits:
		return fmt.Errorf("a commit signed with %s: to let it, --sign-commits %s", text.Value(k.Name), text.Value(k.Name))
	}
	return nil
}
