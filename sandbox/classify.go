package sandbox

import (
	"bytes"
	"os"
	"strconv"
	"strings"
)

// Evidence is what one execution of bwrap left behind.
type Evidence struct {
	ExitStatus int // of bwrap itself
	// Status is what bwrap wrote to --json-status-fd; nil if there was no such channel.
	Status []byte
	// StdoutEmpty and Stderr are needed only where there was no status channel, and to tell reasons
	// apart.
	StdoutEmpty bool
	Stderr      string
	Killed      bool // by us
}

// A Verdict is what Evidence means.
type Verdict uint8

const (
	VerdictRan         Verdict = iota + 1 // the command ran; ExitStatus is its own
	VerdictKilled                         // ended by us, whatever else is there
	VerdictNoCommand                      // the sandbox was ready, the command could not be executed
	VerdictSetup                          // a mount or the working directory could not be made
	VerdictUnavailable                    // namespaces or options were refused
)

// Classify tells a failure of bwrap from one of the command. With a status channel, an exit-code
// record means that the command ran, whatever it printed: a nested bwrap prints the same messages.
// Without one there is only the rule of thumb that bwrap fails with "bwrap:" first on stderr and
// nothing on stdout.
func Classify(e Evidence) Verdict {
	child, ran := statusRecords(e.Status)
	message := strings.HasPrefix(e.Stderr, "bwrap: ")
	switch {
	case ran:
		return VerdictRan
	case e.Killed:
		return VerdictKilled
	case e.Status == nil && !(e.ExitStatus != 0 && e.StdoutEmpty && message):
		return VerdictRan
	case strings.HasPrefix(e.Stderr, "bwrap: execvp "):
		return VerdictNoCommand
	case child != 0 && !refusesNamespaces(e.Stderr), e.Status == nil && isSetupMessage(e.Stderr):
		return VerdictSetup
	}
	return VerdictUnavailable
}

// isSetupMessage knows the messages about one mount or directory, for where no status channel tells
// them apart.
func isSetupMessage(stderr string) bool {
	for _, start := range []string{"Can't find source path ", "Can't mkdir ", "Can't create file at ", "Can't chdir to ",
		"Can't bind mount ", "Can't make symlink at "} {
		if strings.HasPrefix(stderr, "bwrap: "+start) {
			return true
		}
	}
	return false
}

// refusesNamespaces knows the failures that come after the first child, yet are the host's and not
// one mount's.
func refusesNamespaces(stderr string) bool {
	for _, part := range []string{"Can't mount proc on ", "setting up uid map", "setting up gid map", "loopback: Failed"} {
		if strings.Contains(stderr, part) {
			return true
		}
	}
	return false
}

// statusRecords reads bwrap's status: the process that is pid 1 inside (0 if there was none), and
// whether the command's exit status was recorded. The records are small JSON objects of numbers
// that only bwrap can write, so their keys are looked for as they stand: to load a JSON decoder
// costs as much as all the rest of a run's end.
func statusRecords(status []byte) (child int, ran bool) {
	if _, after, found := bytes.Cut(status, []byte(`"child-pid":`)); found {
		digits := strings.TrimLeft(string(after), " ")
		end := strings.IndexFunc(digits, func(r rune) bool { return r < '0' || r > '9' })
		child, _ = strconv.Atoi(digits[:max(end, 0)])
	}
	return child, bytes.Contains(status, []byte(`"exit-code":`))
}

// unavailable finds out why the host refuses, from what bwrap said and from what the host says of
// itself.
func unavailable(stderr string, host facts) *UnavailableError {
	reason := ReasonUnknown
	said := func(part string) bool { return strings.Contains(stderr, part) }
	switch {
	case said("Unknown option"), said("Exceeded maximum number of arguments"):
		reason = ReasonBwrapTooOld
	case said("Can't mount proc on"):
		reason = ReasonProcMasked
	case said("ENOSPC"), said("max_user_namespaces"), said("No space left on device"):
		reason = ReasonUsernsLimit
		if host.maxUserNamespaces == "0" {
			reason = ReasonUsernsDisabled
		}
	case said("setting up uid map: Permission denied"), said("setting up gid map: Permission denied"),
		said("loopback: Failed RTM_NEWADDR: Operation not permitted"):
		reason = ReasonAppArmorRestricted
	case said("does not support user namespaces"):
		reason = ReasonUsernsDisabled
	case said("Resource temporarily unavailable"), said("Cannot allocate memory"), said("Too many open files"):
		reason = ReasonResources
	case said("No permissions to creat"), said("Operation not permitted"):
		switch {
		case host.usernsClone == "0":
			reason = ReasonUsernsDisabled
		case host.apparmorRestricts == "1":
			reason = ReasonAppArmorRestricted
		case host.seccomp == "2":
			reason = ReasonSeccompBlocked
		default:
			reason = ReasonUsernsDisabled
		}
	}
	return &UnavailableError{Reason: reason, Stderr: oneLine(stderr), Hint: hints[reason]}
}

// facts are what the kernel says about its own restrictions; empty where it has no such setting.
type facts struct {
	maxUserNamespaces string // user.max_user_namespaces
	usernsClone       string // kernel.unprivileged_userns_clone (Debian)
	apparmorRestricts string // kernel.apparmor_restrict_unprivileged_userns (Ubuntu)
	seccomp           string // this process's own filter mode
}

func readFacts() facts {
	read := func(path string) string {
		text, _ := os.ReadFile(path)
		return strings.TrimSpace(string(text))
	}
	f := facts{
		maxUserNamespaces: read("/proc/sys/user/max_user_namespaces"),
		usernsClone:       read("/proc/sys/kernel/unprivileged_userns_clone"),
		apparmorRestricts: read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
	}
	for line := range strings.Lines(read("/proc/self/status")) {
		if value, found := strings.CutPrefix(line, "Seccomp:"); found {
			f.seccomp = strings.TrimSpace(value)
		}
	}
	return f
}

// hints name what mends each reason.
var hints = map[Reason]string{
	ReasonBwrapMissing:   "install bubblewrap: apt install bubblewrap (Debian, Ubuntu), dnf install bubblewrap (Fedora), pacman -S bubblewrap (Arch)",
	ReasonBwrapTooOld:    "install bubblewrap 0.8.0 or later from your distribution's updates or backports",
	ReasonBwrapUntrusted: "make it root's and not writable by others: sudo chown root:root BWRAP && sudo chmod 755 BWRAP",
	ReasonUsernsDisabled: "allow user namespaces: sudo sysctl -w kernel.unprivileged_userns_clone=1 (Debian) or sudo sysctl -w user.max_user_namespaces=15000",
	ReasonUsernsLimit:    "raise the limits: sudo sysctl -w user.max_user_namespaces=15000 user.max_net_namespaces=15000 user.max_mnt_namespaces=15000 user.max_pid_namespaces=15000",
	ReasonAppArmorRestricted: "let bwrap make user namespaces: install an AppArmor profile for /usr/bin/bwrap with 'userns,' (Ubuntu: apt install apparmor-profiles, then enable bwrap-userns-restrict), " +
		"or sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0 for the whole machine",
	ReasonSeccompBlocked: "a seccomp filter around this process refuses namespaces: in a container, start it with --security-opt seccomp=unconfined or a profile that allows clone and unshare with CLONE_NEWUSER; in another sandbox of clai-sandbox, start that one as an ordinary user with --allow-nesting",
	ReasonProcMasked:     "the container hides parts of /proc, and the kernel then mounts no new one: start it with --security-opt systempaths=unconfined (Docker) or --security-opt unmask=ALL (Podman); in another sandbox of clai-sandbox, start that one as an ordinary user with --allow-nesting",
	ReasonResources:      "the machine is out of processes, memory or descriptors: see ulimit -a, and try again",
	ReasonUnknown:        "run clai-sandbox doctor, which tries each part by itself",
}

// oneLine bounds what bwrap said and takes its name off.
func oneLine(stderr string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(stderr), "\n")
	line = strings.TrimPrefix(line, "bwrap: ")
	if len(line) > 500 {
		line = line[:500]
	}
	return line
}
