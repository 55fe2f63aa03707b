package diagnosis

import (
	"path"
	"slices"
	"strings"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox"
)

// outside is what no sandbox has, and what programs say then. Where what they say is not known, as
// at a terminal, it is told of those that do nothing without it.
var outside = []struct {
	said         *pattern
	programs     []string
	why, instead string
}{
	{lazily(`"no new privileges" flag|is .* on a file system with the 'nosuid' option|must be setuid root|^(Password: )?su: |: must be superuser to `),
		[]string{"sudo", "su", "doas", "pkexec"},
		"no command in a sandbox gets another user's rights", "what needs them is typed outside, without clai-sandbox"},
	{lazily(`/var/lib/dpkg/lock|/var/lib/apt/lists/|^dpkg: error: requested operation requires superuser|^(error: )?(this command has to be run with superuser|you cannot perform this operation unless you are root)|unable to lock database: |^npm \S+ (path|dest) /usr/|^npm \S+ \S+ E[A-Z]+: .*'/usr/`),
		[]string{"apt", "apt-get", "dpkg", "dnf", "yum", "pacman", "zypper", "apk"},
		"a sandbox only reads the system, and nothing is installed into it", "install it outside; or in the workspace, as npm install and python3 -m venv do"},
	{lazily(`(?i)cannot connect to (the docker daemon|podman)|trying to connect to the docker|docker\.sock: connect: `),
		[]string{"docker", "podman", "docker-compose", "nerdctl"},
		"a sandbox reaches no container engine, because who reaches one can do anything on this machine", "type it outside, without clai-sandbox"},
	{lazily(`^System has not been booted with systemd|^Failed to connect to (system |user scope |system scope )?bus`),
		[]string{"systemctl", "loginctl", "hostnamectl", "timedatectl", "machinectl", "systemd-run"},
		"a sandbox reaches none of the machine's services", "type it outside, without clai-sandbox"},
	{lazily(`/var/spool/cron|^crontabs?[:/]|^You do not have permission to use at\.|^Can't open /run/atd`),
		[]string{"crontab", "at", "batch"},
		"nothing that a sandbox starts outlives it", "for a job at a later time, type it outside, without clai-sandbox"},
	{lazily(`^ping: (socket: |socktype: |.*cap_net_raw)`), nil,
		"a sandbox has no raw sockets, which ping needs", "to see whether a server answers: curl -sS URL"},
	{lazily(`^xdg-open: no method available|^Error: no DISPLAY environment variable|cannot open display`),
		[]string{"xdg-open"},
		"nothing in a sandbox opens a window", "open it outside, without clai-sandbox"},
	{lazily(`(?i)^no permission to enable \S+ event|perf_event_open`), []string{"perf"},
		"a sandbox lets no command count the processor's events", "type it outside, without clai-sandbox"},
	{lazily(`(?i)^unshare: unshare failed: operation not permitted|^bwrap: (no permissions to create|creating) (a )?new namespace|^no usable sandbox!|cannot clone: operation not permitted`), nil,
		"a sandbox makes no namespaces of its own unless it is told to", "to let this command make some: clai-sandbox run --allow-nesting …"},
	{lazily(`(?i)^could not open a connection to your authentication agent`), []string{"ssh-add"},
		"a sandbox has no ssh-agent unless it is told which key it may use where", "to let it sign in at one host: clai-sandbox run --ssh-agent git@github.com=KEY …"},
	{lazily(`(?i)connection to server on socket "/(var/)?run/|can't connect to local (mysql |mariadb )?server through socket|could not connect to redis at /`), nil,
		"a sandbox shows no sockets of the machine's servers", "connect by the port, as psql -h 127.0.0.1 and mysql -h 127.0.0.1 do"},
	{lazily(`^ch(own|grp): changing (ownership|group) of .*: Invalid argument`), nil,
		"a sandbox has one user, and gives files to no other", "type it outside, without clai-sandbox"},
	{lazily(`(?i)^error: could not lock config file \S*/\.gitconfig: read-only`), nil,
		"git puts a new file in the place of ~/.gitconfig, and nothing makes all of a home writable", "type it outside, without clai-sandbox; or leave --global out: that is for this repository alone"},
}

// logins are what programs say that did not find who the person is; with the place for credentials
// where they look, below the home.
var logins = []struct {
	said   *pattern
	store  string
	access profile.Access
}{
	{lazily(`^gpg: (fatal: can't create |signing failed: |decryption failed: no secret key)|gpg failed to sign the data`), ".gnupg", profile.ReadWrite},
	{lazily(`populate the gh_token environment variable|you are not logged into any github hosts`), ".config/gh", profile.ReadOnly},
	{lazily(`could not read username for 'https?://`), ".git-credentials", profile.ReadOnly},
	{lazily(`^npm \S+ (need auth|code e401)`), ".npmrc", profile.ReadOnly},
	{lazily(`no token found, please run .cargo login`), ".cargo/credentials.toml", profile.ReadOnly},
	{lazily(`unable to locate credentials`), ".aws", profile.ReadOnly},
	{lazily(`the connection to the server localhost:8080 was refused`), ".kube", profile.ReadOnly},
	{lazily(`you do not currently have an active account selected`), ".config/gcloud", profile.ReadOnly},
	{lazily(`fe_sendauth: no password supplied`), ".pgpass", profile.ReadOnly},
}

// nodes are what programs say that miss a device of the machine, without its path.
var nodes = []struct {
	said *pattern
	path string
}{
	{lazily(`could not access kvm kernel module|failed to initialize kvm|kvm is required|requires? hardware acceleration`), "/dev/kvm"},
	{lazily(`^fuse: device not found|^fusermount3?: fuse device`), "/dev/fuse"},
	{lazily(`cannot open tun/tap dev`), "/dev/net/tun"},
}

var devicePath = lazily(`/dev/[a-z0-9/_-]*[a-z0-9]`)

// device is about a device of the machine's that the command has not, and that a person may let it
// have.
func (d *diagnosis) device(line string) []Missing {
	small := strings.ToLower(line)
	path := ""
	if saidIn(line) == noSuchFile {
		path = devicePath.FindString(small)
	}
	for _, n := range nodes {
		if n.said.MatchString(small) {
			path = n.path
		}
	}
	if path == "" || !sandbox.OffersDevice(d.Host, path) || d.Plan.Look(d.Host, path).Visible {
		return nil
	}
	return []Missing{{Kind: Machine, Why: OutsideOnly, Hint: "the sandbox has no " + path + "; ask the person, who can start it with --device " + path,
		instead: "the sandbox has no " + path + "; to let this command have it: clai-sandbox run --device " + path + " …"}}
}

// noLogin is about gh. What its file of logins has lets whoever reads it do all that its person
// may, so that of the file nothing is offered.
var noLogin = Missing{Kind: Machine, Why: OutsideOnly,
	Hint: "gh has no login in this sandbox; where you have hostexec, ask for the one command: hostexec gh …; else say to the person what you would have done",
	instead: "gh has no login in the sandbox, which shows no place for credentials; to have single commands run outside, when you allow them: hostexec gh … inside, with --broker (docs/policy.md); " +
		"or only if you trust the command with all that you may do there, for one run: GH_TOKEN=$(gh auth token) clai-sandbox run --env GH_TOKEN …"}

// noKey is what ssh says, behind USER@HOST, that had no key which the host takes.
var noKey = lazily(`(^|: )permission denied \(([a-z-]+,)*publickey`)

// noKey is about a sign-in by ssh. The person's keys stay in their agent; of what is in ~/.ssh
// nothing is offered.
func (d *diagnosis) noKey(line string) []Missing {
	keys := path.Join(d.home, ".ssh")
	if d.home == "" || d.Plan.SSHAgent.Place != "" || d.store(keys, d.Plan.Look(d.Host, keys)) == "" {
		return nil // it has some
	}
	host, key := "HOST", "KEY"
	if at, _, _ := strings.Cut(line, ": "); !strings.ContainsAny(at, " \t") {
		if h, err := profile.ParseSSHHost(at); err == nil {
			host = h.String()
		}
	}
	if entries, err := d.Host.ReadDir(keys); err == nil {
		var names []string
		for _, e := range entries {
			if name, is := strings.CutSuffix(e.Name, ".pub"); is && !e.Dir && len(name) <= 64 {
				names = append(names, name)
			}
		}
		if len(names) == 1 {
			key = names[0]
		}
	}
	why := "the command has no ssh key that this host takes, because a sandbox hands over neither ~/.ssh nor your ssh-agent"
	return []Missing{{Kind: Machine, Why: OutsideOnly, Hint: why + "; ask the person, who can start it with --ssh-agent " + sandbox.Quote(host+"=KEY"),
		instead: why + "; to let it sign in there with one key of your ssh-agent: clai-sandbox run --ssh-agent " + sandbox.Quote(host+"="+key) + " …"}}
}

// outside is what a line says that no sandbox has, or that this one does not show who the person
// is.
func (d *diagnosis) outside(line string) []Missing {
	for _, o := range outside {
		if o.said.MatchString(line) {
			return []Missing{outsideOnly(o.why, o.instead)}
		}
	}
	small := strings.ToLower(line)
	if noKey.MatchString(small) {
		return d.noKey(line)
	}
	for _, l := range logins {
		if d.home == "" || !l.said.MatchString(small) {
			continue
		}
		target := path.Join(d.home, l.store)
		if store := d.store(target, d.Plan.Look(d.Host, target)); store != "" {
			if path.Base(store) == "gh" {
				return []Missing{noLogin}
			}
			return []Missing{Missing{Kind: Path, Path: store, Access: l.access, Why: Hidden}.hinted()}
		}
	}
	return nil
}

// programOutside is the same by the program that a command ends with.
func (d *diagnosis) programOutside() []Missing {
	if len(d.command.last) == 0 {
		return nil
	}
	program := d.command.last[len(d.command.last)-1]
	for _, o := range outside {
		if slices.Contains(o.programs, program) && !(d.ExitCode == 126 || d.ExitCode == 127) {
			return []Missing{outsideOnly(o.why, o.instead)}
		}
	}
	return nil
}

func outsideOnly(why, instead string) Missing {
	return Missing{Kind: Machine, Why: OutsideOnly, Hint: why + "; ask the person, who can do it outside", instead: why + "; " + instead}
}
