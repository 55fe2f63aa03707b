package policy

import (
	"fmt"
	"sort"
	"strings"

	"github.com/clairun/clai-sandbox/profile/variables"
)

// MarkerVariable tells a command that it was run under this policy.
const MarkerVariable = "CLAI_SANDBOX_EXEC"

// An EnvironmentError names the variables of a request that may not be set.
type EnvironmentError struct {
	Blocked []string // in capitals: they would choose what runs, or for whom
	Invalid []string // no portable names
}

func (e *EnvironmentError) Error() string {
	var parts []string
	if len(e.Blocked) > 0 {
		parts = append(parts, "blocked override keys: "+DisplayText(strings.Join(e.Blocked, ", ")))
	}
	if len(e.Invalid) > 0 {
		parts = append(parts, "invalid override keys: "+DisplayText(strings.Join(e.Invalid, ", ")))
	}
	return fmt.Sprintf("SYSTEM_RUN_DENIED: environment override rejected (%s)", strings.Join(parts, "; "))
}

// checkOverrides says whether a request may set its variables. The error is an *EnvironmentError.
func checkOverrides(overrides map[string]string) error {
	e := &EnvironmentError{}
	for _, name := range sortedNames(overrides) {
		switch {
		case !portableName(name):
			e.Invalid = append(e.Invalid, name)
		case blockedOverride(strings.ToUpper(name)):
			e.Blocked = append(e.Blocked, strings.ToUpper(name))
		}
	}
	if e.Blocked == nil && e.Invalid == nil {
		return nil
	}
	sort.Strings(e.Blocked)
	return e
}

// Environment is what a command on this host starts with: what the host's own process has, without
// what would choose programs, and the overrides that may be set. Through a shell only how text
// looks may be overridden.
func Environment(inherited, overrides map[string]string, shell bool) map[string]string {
	env := map[string]string{}
	for name, value := range inherited {
		if name != "" && !strings.ContainsAny(name, "=\x00") && keptInherited(strings.ToUpper(name)) {
			env[name] = value
		}
	}
	for name, value := range overrides {
		if keepOverride(name, shell) && !strings.Contains(value, "\x00") {
			env[name] = value
		}
	}
	env[MarkerVariable] = "1"
	return env
}

// keepOverride says whether an override reaches the command.
func keepOverride(name string, shell bool) bool {
	if !portableName(name) || blockedOverride(strings.ToUpper(name)) {
		return false
	}
	return !shell || shellOverride(name)
}

func shellOverride(name string) bool {
	switch name {
	case "TERM", "LANG", "COLORTERM", "NO_COLOR", "FORCE_COLOR":
		return true
	}
	return strings.HasPrefix(name, "LC_")
}

// portableName is [A-Za-z_][A-Za-z0-9_]*.
func portableName(name string) bool {
	for i := 0; i < len(name); i++ {
		if !nameByte(name[i]) || i == 0 && name[i] >= '0' && name[i] <= '9' {
			return false
		}
	}
	return name != ""
}

// blockedOverride says whether a variable chooses which code runs, which configuration it reads,
// whom it trusts, or as whom it speaks. Whole families are blocked, because each release of a
// program may add to them.
func blockedOverride(name string) bool {
	return variables.Is(name, variables.Command, variables.Host, variables.Secret, variables.Request)
}

// keptInherited says whether a variable of the host's own process reaches a command. What the
// host's user set up for whom to trust and where to log in stays; what chooses code does not.
func keptInherited(name string) bool {
	return variables.Is(name, variables.Kept) || !variables.Is(name, variables.Host, variables.Secret)
}
