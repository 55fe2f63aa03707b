package sandbox

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/sshagent"
)

// sshHosts are two servers of OpenSSH's on loopback, a person's agent with two keys, and a home
// that knows the hosts by their hashes.
type sshHosts struct {
	*host
	named, other int // ports
	repository   string
	key          string // the public half that is named
	keys         string // directory
}

func newSSHHosts(t *testing.T) *sshHosts {
	t.Helper()
	for _, program := range []string{"/usr/sbin/sshd", "/usr/bin/ssh-agent", "/usr/bin/ssh-keygen"} {
		if _, err := os.Stat(program); err != nil {
			t.Skip(program + " is not installed: packaging/setup.sh test")
		}
	}
	s := &sshHosts{host: newHost(t), keys: newDirectory(t)}
	s.write(s.keys+"/none", "")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s.launcher.SSHAgent = []string{self, agentProgram}
	for _, name := range []string{"named-host", "other-host", "id_work", "id_private"} {
		s.outside("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", filepath.Join(s.keys, name))
	}
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(s.keys, name+".pub"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	s.write(s.keys+"/authorized", read("id_work")+read("id_private"))
	s.named, s.other = s.sshd("named-host"), s.sshd("other-host")
	known := s.write(filepath.Join(s.profile.Home, ".ssh/known_hosts"),
		fmt.Sprintf("[127.0.0.1]:%d %s[127.0.0.1]:%d %s", s.named, read("named-host"), s.other, read("other-host")))
	s.outside("ssh-keygen", "-q", "-H", "-f", known)
	if err := os.Remove(known + ".old"); err != nil {
		t.Fatal(err)
	}
	s.key = s.write(filepath.Join(s.profile.Home, ".ssh/id_work.pub"), read("id_work"))
	s.write(filepath.Join(s.profile.Home, ".ssh/config"), "UserKnownHostsFile "+known+"\nBatchMode yes\nIdentityAgent /nonexistent\n")
	s.profile.SSHAgentSocket = filepath.Join(s.keys, "agent")
	agent := exec.Command("ssh-agent", "-D", "-a", s.profile.SSHAgentSocket)
	said, err := agent.StdoutPipe()
	if err == nil {
		err = agent.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		agent.Process.Kill()
		agent.Wait()
	})
	if _, err := said.Read(make([]byte, 1)); err != nil { // it listens, and says so
		t.Fatal(err)
	}
	s.outside("ssh-add", "-q", filepath.Join(s.keys, "id_work"), filepath.Join(s.keys, "id_private"))
	s.repository = filepath.Join(s.keys, "repository.git")
	s.outside("git", "init", "-q", "--bare", "-b", "main", s.repository)
	s.profile.SSHKeys = []profile.SSHKey{{Name: "id_work", File: s.key, Hosts: []profile.SSHHost{{Name: "127.0.0.1", Port: s.named}}}}
	s.profile.Environment = append(s.profile.Environment, profile.Variable{Name: "GIT_CONFIG_NOSYSTEM", Value: "1"})
	return s
}

// outside runs a program without a sandbox.
func (s *sshHosts) outside(name string, args ...string) string {
	s.t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "HOME="+s.profile.Home, "SSH_AUTH_SOCK="+s.profile.SSHAgentSocket)
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// sshd serves with a host key of its own. Each connection has an sshd, which sees a user database
// in which whoever tests may sign in.
func (s *sshHosts) sshd(key string) (port int) {
	s.t.Helper()
	name := "root"
	if os.Getuid() != 0 {
		name = "nobody"
	}
	users := s.write(filepath.Join(s.keys, "passwd"), fmt.Sprintf("%s:x:%d:%d::%s:/bin/sh\nsshd:x:101:65534::/run/sshd:/usr/sbin/nologin\n", name, os.Getuid(), os.Getgid(), s.keys))
	passwords := s.write(filepath.Join(s.keys, "shadow"), name+":NP:19000:0:99999:7:::\n")
	config := s.write(filepath.Join(s.keys, key+".conf"), fmt.Sprintf("HostKey %s/%s\nAuthorizedKeysFile %[1]s/authorized\nStrictModes no\nUsePAM no\nPermitRootLogin yes\nPidFile none\n", s.keys, key))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			file, err := conn.(*net.TCPConn).File()
			conn.Close()
			if err != nil {
				continue
			}
			cmd := exec.Command(s.launcher.Bwrap.Path, "--dev-bind", "/", "/", "--ro-bind", users, "/etc/passwd", "--ro-bind", passwords, "/etc/shadow",
				"--tmpfs", "/run", "--dir", "/run/sshd", "/usr/sbin/sshd", "-i", "-f", config)
			cmd.Stdin, cmd.Stdout = file, file
			if cmd.Start() == nil {
				go cmd.Wait()
			}
			file.Close()
		}
	}()
	return listener.Addr().(*net.TCPAddr).Port
}

// told are the notices about the agent.
func told(r ran) string {
	var list []string
	for _, n := range r.Notices {
		if n.Kind == NoticeSSHAgent {
			list = append(list, n.Text)
		}
	}
	return strings.Join(list, "\n")
}

const sshGit = `export GIT_SSH_COMMAND="$GIT_SSH_COMMAND -F $HOME/.ssh/config"; export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b; `

func TestGitWorksOverSSHWithTheNamedKeyAtTheNamedHost(t *testing.T) {
	s := newSSHHosts(t)
	url := fmt.Sprintf("ssh://127.0.0.1:%d%s", s.named, s.repository)
	r := s.run("/bin/sh", "-ec", sshGit+`
		git init -q -b main first; cd first; git commit -q --allow-empty -m one; git push -q `+url+` main; cd ..
		git clone -q `+url+` second; cd first; git commit -q --allow-empty -m two; git push -q `+url+` main
		cd ../second; git fetch -q; git merge -q --ff-only origin/main; git log --format=%s; ssh-add -L`)
	key, _ := os.ReadFile(s.key)
	if want := "two\none\n" + string(key); r.Failure != nil || r.ExitCode != 0 || r.Out != want {
		t.Fatalf("%v %d %q, want %q\n%s%s", r.Failure, r.ExitCode, r.Out, want, r.Err, told(r))
	}
	if told(r) != "" {
		t.Errorf("told %s", told(r))
	}
}

func TestNoOtherHostAndNoOtherKeyAndNoChangeOfTheAgent(t *testing.T) {
	s := newSSHHosts(t)
	at := func(port int, more string) string {
		return fmt.Sprintf(`ssh -F "$HOME/.ssh/config" -o IdentityAgent=SSH_AUTH_SOCK %s -p %d 127.0.0.1 true`, more, port)
	}
	s.write(filepath.Join(s.profile.Home, ".ssh/id_private.pub"), s.outside("cat", s.keys+"/id_private.pub"))
	for name, c := range map[string]struct{ script, told string }{
		"another host":             {at(s.other, ""), fmt.Sprintf("--ssh-agent 127.0.0.1:%d=id_work", s.other)},
		"another key":              {at(s.named, `-o IdentitiesOnly=yes -i "$HOME/.ssh/id_private.pub"`), ""},
		"a forwarded agent":        {fmt.Sprintf(`ssh -A -F "$HOME/.ssh/config" -o IdentityAgent=SSH_AUTH_SOCK -p %d 127.0.0.1 ssh-add -l`, s.named), "forwarding the agent"},
		"a key is added":           {"ssh-keygen -q -t ed25519 -N '' -f /tmp/k && ssh-add -q /tmp/k", "adding, removing and locking"},
		"all are removed":          {"ssh-add -D", "adding, removing and locking"},
		"a file is signed":         {`echo x >/tmp/f; ssh-keygen -q -Y sign -n file -f "$HOME/.ssh/id_work.pub" /tmp/f`, "a signature for file"},
		"a commit is signed":       {`echo x >/tmp/f; ssh-keygen -q -Y sign -n git -f "$HOME/.ssh/id_work.pub" /tmp/f`, "--sign-commits id_work"},
		"the person's own is used": {"SSH_AUTH_SOCK=" + s.profile.SSHAgentSocket + " ssh-add -l", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := s.run("/bin/sh", "-c", c.script)
			if r.Failure != nil || r.ExitCode == 0 && name != "a forwarded agent" {
				t.Errorf("%v, exit status %d\n%s%s", r.Failure, r.ExitCode, r.Out, r.Err)
			}
			if !strings.Contains(told(r), c.told) || c.told == "" && told(r) != "" {
				t.Errorf("told %q, want %q\n%s", told(r), c.told, r.Err)
			}
		})
	}
	if got := s.outside("ssh-add", "-l"); strings.Count(got, "\n") != 2 {
		t.Errorf("the person's agent has\n%s", got)
	}
}

func TestAnotherHostIsAskedFor(t *testing.T) {
	s := newSSHHosts(t)
	var asked []sshagent.Question
	s.launcher.AskSSH = func(_ context.Context, q sshagent.Question) sshagent.Answer {
		asked = append(asked, q)
		return sshagent.Answer{Allowed: true}
	}
	r := s.run("/bin/sh", "-c", fmt.Sprintf(`for i in 1 2; do ssh -F "$HOME/.ssh/config" -o IdentityAgent=SSH_AUTH_SOCK -p %d 127.0.0.1 echo there; done`, s.other))
	if r.Out != "there\nthere\n" || len(asked) != 1 || asked[0].Host != fmt.Sprintf("[127.0.0.1]:%d", s.other) || asked[0].Key != "id_work" {
		t.Errorf("%q, asked %+v\n%s%s", r.Out, asked, r.Err, told(r))
	}
}

func TestCommitsAreSignedByAKeyThatMaySignThem(t *testing.T) {
	s := newSSHHosts(t)
	s.profile.SSHKeys[0].Hosts, s.profile.SSHKeys[0].SignCommits = nil, true
	r := s.run("/bin/sh", "-ec", sshGit+`git init -q r; cd r; git -c gpg.format=ssh -c user.signingKey="$HOME/.ssh/id_work.pub" commit -q -S --allow-empty -m one
		git -c gpg.format=ssh -c user.signingKey="$HOME/.ssh/id_work.pub" tag -s -m one v1`)
	if r.Failure != nil || r.ExitCode != 0 {
		t.Fatalf("%v %d\n%s%s", r.Failure, r.ExitCode, r.Err, told(r))
	}
	key, _ := os.ReadFile(s.key)
	signers := s.write(s.keys+"/signers", "a@b "+string(key))
	for _, verify := range [][]string{{"verify-commit", "HEAD"}, {"verify-tag", "v1"}} {
		got := s.outside("git", append([]string{"-C", s.profile.Workspace + "/r", "-c", "gpg.ssh.allowedSignersFile=" + signers}, verify...)...)
		if !strings.Contains(got, `Good "git" signature for a@b`) {
			t.Errorf("%q: %s", verify, got)
		}
	}
}

func TestThePersonsAgentIsCoveredWhereAGrantShowsIt(t *testing.T) {
	s := newSSHHosts(t)
	s.profile.SSHKeys = nil
	s.grant(s.keys, profile.ReadWrite)
	r := s.run("/bin/sh", "-c", "ssh-add -l; SSH_AUTH_SOCK="+s.profile.SSHAgentSocket+" ssh-add -l")
	if strings.Contains(r.Out, "ED25519") || !strings.Contains(told(r), "covered: ") {
		t.Errorf("%s%s%s", r.Out, r.Err, told(r))
	}
}

func TestWhatTheCommandCanWriteSaysNothingAboutKeysAndHosts(t *testing.T) {
	s := newSSHHosts(t)
	s.grant(filepath.Join(s.profile.Home, ".ssh/known_hosts"), profile.ReadWrite)
	plan := s.build()
	if len(plan.SSHAgent.KnownHosts) != 0 || len(plan.SSHAgent.Keys) != 1 {
		t.Errorf("%+v", plan.SSHAgent)
	}
	s.grant(s.key, profile.ReadWrite)
	if plan := s.build(); plan.SSHAgent.Place != "" {
		t.Errorf("%+v", plan.SSHAgent)
	}
	s.profile.Grants = s.profile.Grants[:2]
	s.launcher.SSHAgent = []string{s.write(s.profile.Workspace+"/clai-sandboxd", ""), agentProgram}
	if r := s.run("ssh-add", "-l"); !strings.Contains(told(r), "which the command can write") {
		t.Errorf("%s%s", r.Err, told(r))
	}
}

func TestSSHFindsItsHostsAndItsKeyWithoutTheHome(t *testing.T) {
	s := newSSHHosts(t)
	s.profile.Grants = s.profile.Grants[1:]
	s.profile.HomeIs = profile.HomeEphemeral
	r := s.run("/bin/sh", "-c", fmt.Sprintf(`ssh -o UserKnownHostsFile="$HOME/.ssh/known_hosts" -o BatchMode=yes -p %d 127.0.0.1 echo there; ls "$HOME/.ssh"`, s.named))
	if r.Out != "there\nid_work.pub\nknown_hosts\n" {
		t.Errorf("%q\n%s%s", r.Out, r.Err, told(r))
	}
}

func TestAnAgentThatIsMissingIsTold(t *testing.T) {
	s := newSSHHosts(t)
	s.profile.SSHAgentSocket = ""
	if plan := s.build(); plan.SSHAgent.Place != "" || !strings.Contains(told(ran{Result: Result{Notices: plan.Notices}}), "ssh-agent") {
		t.Errorf("%+v", plan.Notices)
	}
	s.profile.SSHAgentSocket = "/nonexistent"
	r := s.run("ssh-add", "-l")
	if !strings.Contains(told(r), "your ssh-agent does not answer") {
		t.Errorf("%s%s", r.Err, told(r))
	}
}

func TestTheProgramOfTheAgentEndsWithItsRun(t *testing.T) {
	s := newSSHHosts(t)
	s.sh("ssh-add -l")
	out, _ := exec.Command("ps", "-eo", "ppid,args").Output()
	for line := range bytes.Lines(out) {
		if fields := strings.Fields(string(line)); len(fields) == 3 && fields[0] == fmt.Sprint(os.Getpid()) && fields[2] == agentProgram {
			t.Errorf("still there: %s", line)
		}
	}
}
