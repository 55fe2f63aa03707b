package grants

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
)

// A WarningKind tells programs what a warning is about.
type WarningKind string

const (
	WarnTooBroad  WarningKind = "too_broad"       // much more than one task needs
	WarnSensitive WarningKind = "sensitive"       // credentials are in it
	WarnElsewhere WarningKind = "leads_elsewhere" // symbolic links lead to another place than the path says
	WarnMissing   WarningKind = "does_not_exist"  // nothing is there yet
	WarnSocket    WarningKind = "socket"          // a service listens there, outside any sandbox
	WarnExecuted  WarningKind = "executed_later"  // something outside the sandbox executes what is written there
	WarnChanged   WarningKind = "changed"         // it leads to something else than when it was asked for
	WarnRefused   WarningKind = "cannot_be_granted"
)

// A Warning is what a person should know before deciding.
type Warning struct {
	Kind WarningKind `json:"kind" jsonschema:"what it is about"`
	Text string      `json:"text" jsonschema:"for a person, in one line"`
}

// broad are directories that hold much more than one task needs. Every directory directly below the
// root counts as well.
var broad = []string{"/var/lib", "/var/home", "/usr/local", "/usr/share", "/usr/lib", "/usr/bin"}

// sensitive are places outside the home directory where programs keep what lets others in.
var (
	sensitiveSystem = []string{"/etc/shadow", "/etc/gshadow", "/etc/ssh", "/etc/ssl/private", "/etc/sudoers", "/etc/sudoers.d", "/root", "/var/lib/docker", "/var/lib/kubelet"}
	sensitiveNames  = []string{".env", "id_rsa", "id_ed25519", "id_ecdsa", "credentials.json", "secrets.json", "secrets.yaml"}
)

// Warnings lists what a person should know about a question.
func (r Rules) Warnings(q Question) []Warning {
	list := []Warning{}
	warn := func(kind WarningKind, format string, a ...any) {
		list = append(list, Warning{kind, fmt.Sprintf(format, a...)})
	}
	p := q.Place
	if q.Problem != "" {
		warn(WarnRefused, "cannot be granted: %s", q.Problem)
	}
	if p.Resolved != p.Typed {
		warn(WarnElsewhere, "%s leads to %s", profile.Printable(p.Typed), profile.Printable(p.Resolved))
	}
	if !p.Object.Exists() {
		warn(WarnMissing, "nothing is there yet")
	}
	if p.Object.Is(unix.S_IFSOCK) {
		warn(WarnSocket, "a socket: whatever listens there acts outside the sandbox")
	}
	if what := r.tooBroad(p.Resolved); what != "" {
		warn(WarnTooBroad, "%s", what)
	}
	if what := r.sensitive(p.Resolved); what != "" {
		warn(WarnSensitive, "%s", what)
	}
	if what := executedLater(p.Resolved); what != "" && q.Access == profile.ReadWrite {
		warn(WarnExecuted, "something outside the sandbox executes %s later, or does as it says", profile.Printable(what))
	}
	return list
}

// executedLater is the part of a path that is protected in writable directories, or nothing.
func executedLater(path string) string {
	for _, protected := range append((&profile.Profile{}).ProtectedIn(true), profile.ProtectedPath{Name: ".git"}) {
		if strings.Contains(path+"/", "/"+protected.Name+"/") {
			return protected.Name
		}
	}
	return ""
}

func (r Rules) tooBroad(path string) string {
	for _, home := range r.home {
		if profile.Within(home, path) {
			return "holds the whole home directory"
		}
	}
	for _, homes := range []string{"/home", "/var/home"} {
		if parent(path) == homes {
			return "a whole home directory"
		}
	}
	if strings.Count(path, "/") == 1 || slices.Contains(broad, path) {
		return "a whole directory of the system"
	}
	return ""
}

func (r Rules) sensitive(path string) string {
	stores := append([]string{}, sensitiveSystem...)
	for _, home := range r.home {
		for _, name := range profile.CredentialStores() {
			stores = append(stores, join(home, name))
		}
	}
	for _, store := range stores {
		if profile.Within(path, store) {
			return "keeps credentials: " + profile.Printable(store)
		}
	}
	for _, store := range stores {
		if profile.Within(store, path) {
			return "holds credentials, such as " + profile.Printable(store)
		}
	}
	for _, name := range sensitiveNames {
		if filepath.Base(path) == name {
			return "a name that credentials have"
		}
	}
	return ""
}
