package diagnosis

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox"
)

// The words are those that the programs said in a sandbox.
func TestWhatNoSandboxHasIsTold(t *testing.T) {
	h := newHost(t)
	plan := h.build()
	for _, c := range []struct{ command, said, remedy string }{
		{"sudo true", "sudo: The \"no new privileges\" flag is set, which prevents sudo from running as root.\nsudo: If sudo is running in a container, you may need to adjust the container configuration to disable the flag.\n", "no command in a sandbox gets another user's rights; what"},
		{"make install", "sudo: The \"no new privileges\" flag is set, which prevents sudo from running as root.\nmake: *** [Makefile:2: install] Error 1\n", "no command in a sandbox gets another user's rights; what"},
		{"su -c true", "Password: su: Authentication failure\n", "no command in a sandbox gets another user's rights; what"},
		{"mount -t tmpfs t /mnt", "mount: /mnt: must be superuser to use mount.\n       dmesg(1) may have more information after failed mount system call.\n", "no command in a sandbox gets"},
		{"apt install -y jq", "E: Could not open lock file /var/lib/dpkg/lock-frontend - open (13: Permission denied)\nE: Unable to acquire the dpkg frontend lock (/var/lib/dpkg/lock-frontend), are you root?\n", "a sandbox only reads the system, and nothing is installed into it; install it outside"},
		{"apt-get update", "Reading package lists...\nE: Could not open lock file /var/lib/apt/lists/lock - open (13: Permission denied)\nE: Unable to lock directory /var/lib/apt/lists/\n", "a sandbox only reads the system"},
		{"dpkg -i x.deb", "dpkg: error: requested operation requires superuser privilege\n", "a sandbox only reads the system"},
		{"npm install -g x", "npm error code ENOENT\nnpm error syscall mkdir\nnpm error path /usr/lib/node_modules/x\nnpm error errno -2\nnpm error enoent ENOENT: no such file or directory, mkdir '/usr/lib/node_modules/x'\nnpm error enoent This is related to npm not being able to find a file.\nnpm error enoent\nnpm error A complete log of this run can be found in: /h/.npm/_logs/1-debug-0.log\n", "a sandbox only reads the system"},
		{"docker ps", "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?\n", "a sandbox reaches no container engine"},
		{"docker run hello", "docker: Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?\n\nRun 'docker run --help' for more information\n", "a sandbox reaches no container engine"},
		{"systemctl status", "System has not been booted with systemd as init system (PID 1). Can't operate.\nFailed to connect to bus: Host is down\n", "a sandbox reaches none of the machine's services"},
		{"systemctl --user restart x", "Failed to connect to bus: No medium found\n", "a sandbox reaches none of the machine's services"},
		{"crontab -l", "/var/spool/cron: No such file or directory\n", "nothing that a sandbox starts outlives it"},
		{"echo true | at now", "You do not have permission to use at.\n", "nothing that a sandbox starts outlives it"},
		{"ping -c1 127.0.0.1", "ping: socktype: SOCK_RAW\nping: socket: Operation not permitted\nping: => missing cap_net_raw+p capability or setuid?\n", "a sandbox has no raw sockets, which ping needs; to see whether a server answers: curl -sS URL"},
		{"xdg-open http://localhost/", "/usr/bin/xdg-open: 882: w3m: not found\nxdg-open: no method available for opening 'http://localhost/'\n", "nothing in a sandbox opens a window"},
		{"git push", "git@github.com: Permission denied (publickey).\nfatal: Could not read from remote repository.\n\nPlease make sure you have the correct access rights\nand the repository exists.\n", "; to let it sign in there with one key of your ssh-agent: clai-sandbox run --ssh-agent git@github.com=KEY …"},
		{"ssh host", "you@host: Permission denied (gssapi-keyex,gssapi-with-mic,publickey,password).\n", "clai-sandbox run --ssh-agent you@host=KEY …"},
		{"ssh host", "you@host: Permission denied (publickey,password).\n", "clai-sandbox run --ssh-agent you@host=KEY …"},
		{"ssh host", "you@host: Permission denied (password).\n", ""},
		{"gh pr create", "To get started with GitHub CLI, please run:  gh auth login\nAlternatively, populate the GH_TOKEN environment variable with a GitHub API authentication token.\n", "GH_TOKEN=$(gh auth token) clai-sandbox run --env GH_TOKEN …"},
		{"gh auth status", "You are not logged into any GitHub hosts. Run gh auth login to authenticate.\n", "GH_TOKEN=$(gh auth token) clai-sandbox run --env GH_TOKEN …"},
		{"gpg --list-keys", "gpg: WARNING: unsafe permissions on homedir '{home}/.gnupg'\ngpg: failed to create temporary file '{home}/.gnupg/.#lk0x000055ba0dcc0b70.vm.2': Read-only file system\ngpg: keyblock resource '{home}/.gnupg/pubring.kbx': Read-only file system\ngpg: failed to create temporary file '{home}/.gnupg/.#lk0x000055ba0dcbd6c0.vm.2': Read-only file system\ngpg: Fatal: can't create lock for '{home}/.gnupg/trustdb.gpg'\n", "mkdir -pm 700 {home}/.gnupg && clai-sandbox run --grant {home}/.gnupg:rw …"},
		{"git commit -S -m x", "error: gpg failed to sign the data\nfatal: failed to write commit object\n", "mkdir -pm 700 {home}/.gnupg && clai-sandbox run --grant {home}/.gnupg:rw …"},
		{"npm whoami", "npm error code ENEEDAUTH\nnpm error need auth This command requires you to be logged in.\nnpm error need auth You need to authorize this machine using `npm adduser`\nnpm error A complete log of this run can be found in: /h/.npm/_logs/1-debug-0.log\n", "clai-sandbox run --grant {home}/.npmrc …"},
		{"npm link", "npm error code EROFS\nnpm error syscall symlink\nnpm error path ../../home/project\nnpm error dest /usr/lib/node_modules/own\nnpm error errno -30\nnpm error rofs EROFS: read-only file system, symlink '../../home/project' -> '/usr/lib/node_modules/own'\nnpm error rofs Often virtualized file systems, or other file systems that don't support symlinks, give this error.\n", "a sandbox only reads the system"},
		{"perf stat true", "Error:\nNo permission to enable task-clock event.\n", "a sandbox lets no command count the processor's events"},
		{"unshare -Ur true", "unshare: unshare failed: Operation not permitted\n", "clai-sandbox run --allow-nesting …"},
		{"git config --global a.b c", "error: could not lock config file {home}/.gitconfig: Read-only file system\n", "type it outside, without clai-sandbox; or leave --global out"},
		{"npm config set fund false", "npm error rofs EROFS: read-only file system, open '{home}/.npmrc'\n", "touch {home}/.npmrc && clai-sandbox run --grant {home}/.npmrc:rw …"},
		{"ssh-keygen -f ~/.ssh/id", "Saving key \"{home}/.ssh/id\" failed: No such file or directory\n", "mkdir -pm 700 {home}/.ssh && clai-sandbox run --grant {home}/.ssh:rw …"},
		{"qemu-system-x86_64 -accel kvm", "Could not access KVM kernel module: No such file or directory\nqemu-system-x86_64: -accel kvm: failed to initialize kvm: No such file or directory\n", "{kvm}"},
		{"python3 vm.py", "Traceback (most recent call last):\n  File \"vm.py\", line 2, in <module>\nFileNotFoundError: [Errno 2] No such file or directory: '/dev/kvm'\n", "{kvm}"},
		{"cat /dev/mem", "cat: /dev/mem: No such file or directory\n", ""},
		{"ls /dev/no-such", "ls: cannot access '/dev/no-such': No such file or directory\n", ""},
		{"ssh-add -l", "Could not open a connection to your authentication agent.\n", "to let it sign in at one host: clai-sandbox run --ssh-agent git@github.com=KEY …"},
		{"psql -c x", "psql: error: connection to server on socket \"/var/run/postgresql/.s.PGSQL.5432\" failed: No such file or directory\n\tIs the server running locally and accepting connections on that socket?\n", "a sandbox shows no sockets of the machine's servers; connect by the port"},
		{"psql -h /tmp", "psql: error: connection to server on socket \"/tmp/.s.PGSQL.5432\" failed: No such file or directory\n\tIs the server running locally and accepting connections on that socket?\n", ""},
		{"chown root f", "chown: changing ownership of 'f': Invalid argument\n", "a sandbox has one user, and gives files to no other"},
		// What is complained about last, and is something else.
		{"make test", "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?\nError: assertion failed: 1 != 2\n", ""},
		{"sudo true", "sudo: command not found\n", ""},
	} {
		if c.remedy == "{kvm}" {
			if c.remedy = ""; sandbox.OffersDevice(sandbox.Host{}, "/dev/kvm") {
				c.remedy = "the sandbox has no /dev/kvm; to let this command have it: clai-sandbox run --device /dev/kvm …"
			}
		}
		list := Of(Failure{Plan: &plan, Command: []string{"bash", "-c", c.command}, ExitCode: 2, Stderr: []byte(h.fill(c.said))})
		got := ""
		if len(list) > 0 {
			got = list[0].Remedy("")
		}
		if len(list) > 1 || (c.remedy == "") != (got == "") || !strings.Contains(got, h.fill(c.remedy)) {
			t.Errorf("%s: %q, want %q", c.command, got, c.remedy)
		}
	}
	for command, want := range map[string]string{"sudo make install": "another user's rights", "docker ps": "container engine", "cd sub && systemctl status": "services", "crontab -e": "outlives", "sudo true; false": "", "make docker": ""} {
		list := Of(Failure{Plan: &plan, Command: []string{"sh", "-c", command}, ExitCode: 2, Unread: true})
		if got := len(list) > 0 && list[0].Kind == Machine && list[0].Why == OutsideOnly && strings.Contains(list[0].Hint, want); got != (want != "") {
			t.Errorf("%s, at a terminal: %+v", command, list)
		}
	}
	if list := Of(Failure{Plan: &plan, Command: []string{"docker", "ps"}, ExitCode: 127, Unread: true}); list != nil {
		t.Errorf("of a program that is not there: %+v", list)
	}
	// The home is granted, and shown entry by entry where files of this program are: that there is
	// no login is not told.
	own := h.home + "/.config/clai-sandbox"
	if err := os.MkdirAll(own, 0o700); err != nil {
		t.Fatal(err)
	}
	h.profile.OwnDirectories = []string{own}
	h.profile.Grants = slices.Insert(h.profile.Grants, 0, profile.Grant{Path: h.home, Access: profile.ReadOnly, Origin: profile.Origin{Kind: profile.OriginDefault}})
	whole := h.build()
	gh := Failure{Plan: &whole, Command: []string{"gh", "repo", "list"}, ExitCode: 4, Stderr: []byte("Alternatively, populate the GH_TOKEN environment variable with a GitHub API authentication token.\n")}
	if list := Of(gh); len(list) != 1 || list[0].Why != OutsideOnly || !strings.Contains(list[0].Remedy(""), "hostexec gh") {
		t.Errorf("with the home granted: %+v", list)
	}
	// What is granted is not what is lacking.
	h.profile.Grants = slices.Insert(h.profile.Grants, 0, profile.Grant{Path: h.home + "/.ssh", Access: profile.ReadOnly, Origin: profile.Origin{Kind: profile.OriginFlag}})
	granted := h.build()
	if list := Of(Failure{Plan: &granted, Command: []string{"ssh", "host"}, ExitCode: 255, Stderr: []byte("you@host: Permission denied (publickey).\n")}); list != nil {
		t.Errorf("with the keys granted: %+v", list)
	}
}

// What is to be made in a place that holds files of this program, which nobody may grant, is made
// first and then granted.
func TestWhatIsToBeMadeInAHomeIsMadeByThePerson(t *testing.T) {
	h := newHost(t)
	own := h.home + "/.local/state/clai-sandbox"
	if err := os.MkdirAll(own, 0o700); err != nil {
		t.Fatal(err)
	}
	h.profile.OwnDirectories = []string{own}
	h.profile.Grants = slices.Insert(h.profile.Grants, 0, profile.Grant{Path: h.home, Access: profile.ReadOnly, Origin: profile.Origin{Kind: profile.OriginDefault}})
	plan := h.build()
	for said, want := range map[string]string{
		"install: cannot create directory '{home}/.local/bin': Read-only file system":                "mkdir -p {home}/.local/bin && clai-sandbox grants add --access rw {home}/.local/bin",
		"install: cannot change permissions of ‘{home}/.local/bin’: No such file or directory":       "mkdir -p {home}/.local/bin && clai-sandbox grants add --access rw {home}/.local/bin",
		"npm error enoent ENOENT: no such file or directory, mkdir '{home}/.local/lib'":              "mkdir -p {home}/.local/lib && clai-sandbox grants add --access rw {home}/.local/lib",
		"fatal: could not create leading directories of '../wt/.git': Read-only file system":         "mkdir -p {home}/wt && clai-sandbox grants add --access rw {home}/wt",
		"touch: cannot touch '{home}/note': Read-only file system":                                   "in it be written: clai-sandbox grants add --access rw DIR",
		"mkdir: cannot create directory '{home}/.local/state/clai-sandbox/x': Read-only file system": "",
		"cp: cannot create regular file '{home}/.local/state/note': Read-only file system":           "{home}/.local/state is read-only in the sandbox, and nothing makes all of it writable; to let a directory in it",
		"Error: unable to open database \"{home}/none/x.db\": unable to open database file":          "mkdir -p {home}/none && clai-sandbox grants add --access rw {home}/none",
		"touch: cannot touch '{home}/nothing/note': No such file or directory":                       "",
	} {
		list := Of(Failure{Plan: &plan, Command: []string{"sh", "-c", "git worktree add ../wt"}, ExitCode: 1, Stderr: []byte(h.fill(said)), Own: []string{own}})
		got := ""
		if len(list) > 0 {
			got = list[0].Remedy("")
			if hint := list[0].Hint; !strings.Contains(hint, "nobody grants all of it") || strings.Contains(hint, "fs_request_grant ("+list[0].Path+",") {
				t.Errorf("%s: the agent is told: %s", h.fill(said), hint)
			}
		}
		if (got == "") != (want == "") || !strings.Contains(got, h.fill(want)) {
			t.Errorf("%s: %q", h.fill(said), got)
		}
	}
	list := Of(Failure{Plan: &plan, Command: []string{"sh", "-c", "mkdir ~/.local/bin && cd ~/.local/bin"}, ExitCode: 1, Unread: true, Own: []string{own}})
	if want := h.fill("mkdir -p {home}/.local/bin && clai-sandbox grants add --access rw {home}/.local/bin"); len(list) != 1 || !strings.Contains(list[0].Remedy(""), want) {
		t.Errorf("at a terminal: %+v", list)
	}
}
