package sandbox

import "fmt"

// A Reason is why this host cannot sandbox. Each has one mend, which the error's Hint names.
type Reason string

const (
	ReasonBwrapMissing       Reason = "bwrap_missing"       // no bwrap was found
	ReasonBwrapTooOld        Reason = "bwrap_too_old"       // it lacks an option that every sandbox needs
	ReasonBwrapUntrusted     Reason = "bwrap_untrusted"     // someone else could have replaced it
	ReasonUsernsDisabled     Reason = "userns_disabled"     // the kernel refuses user namespaces to this user
	ReasonUsernsLimit        Reason = "userns_limit"        // there are as many namespaces as the kernel allows
	ReasonAppArmorRestricted Reason = "apparmor_restricted" // Ubuntu 23.10 and later, without a profile for bwrap
	ReasonSeccompBlocked     Reason = "seccomp_blocked"     // a container's seccomp filter refuses namespaces
	ReasonProcMasked         Reason = "proc_masked"         // a container hides parts of /proc, so no new one can be mounted
	ReasonResources          Reason = "resources"           // no process, memory or descriptor was left
	ReasonUnknown            Reason = "unknown"             // anything else that bwrap said
)

// tryAgain is what to do where the system refused what it usually gives.
const tryAgain = "try again; if it is refused again, clai-sandbox doctor says what this machine lacks"

// UnavailableError means that this host cannot sandbox now. Nothing was run.
type UnavailableError struct {
	Reason Reason
	Stderr string // what bwrap said, bounded
	Hint   string // what to do about it
}

func (e *UnavailableError) Error() string {
	text := "cannot sandbox on this host (" + string(e.Reason) + ")"
	if e.Stderr != "" {
		text += ": " + printable(e.Stderr)
	}
	return text
}

// SetupError means that this sandbox could not be made, though others may be. Nothing was run.
type SetupError struct {
	Path string // what it is about; may be empty
	Why  string
	Hint string
}

func (e *SetupError) Error() string {
	if e.Path == "" {
		return e.Why
	}
	return printable(e.Path) + ": " + e.Why
}

// CommandError means that the sandbox was ready but the command in it could not be started. Nothing
// was run.
type CommandError struct {
	Name  string
	Found bool // it is there, but cannot be executed (exit status 126); else it was not found (127)
	Why   string
	Hint  string
}

func (e *CommandError) Error() string { return fmt.Sprintf("%s: %s", printable(e.Name), e.Why) }
