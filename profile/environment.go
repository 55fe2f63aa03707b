package profile

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/clairun/clai-sandbox/profile/variables"
)

// passedByDefault are the caller's variables that every command gets: where programs are, how to
// speak to the person, and whom they trust. None of them says anything about the caller's accounts.
var passedByDefault = append([]string{"PATH", "LANG", "TZ", "TERM", "COLORTERM", "NO_COLOR", "LC_*"}, CertificateVariables...)

// CertificateVariables name files and directories of certificates: without a company's own, nothing
// behind its proxy can be reached.
var CertificateVariables = []string{"SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO",
	"GIT_SSL_CAPATH", "PIP_CERT", "CARGO_HTTP_CAINFO", "AWS_CA_BUNDLE", "DENO_CERT"}

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Denied reports whether no command may be given the variable, and why. What a feature of this
// program sets itself is not asked for here. The list is variables.Table.
//
// Two kinds are denied: those that lead to a service of the caller's outside, and those that load
// code into programs which did not ask for it, so that what runs is no longer what was shown. A
// variable that merely says where a program looks for its own libraries (PYTHONPATH, NODE_PATH,
// CLASSPATH), or which tool it starts for a person (EDITOR, PAGER, CC), is a person's to set: it is
// not denied, and not passed unless asked for. PERL5LIB and RUBYLIB, which are alike, are denied:
// few ask for them, and strict is better there.
func Denied(name string) (reason string, no bool) {
	row, no := variables.Find(variables.Command, name)
	if row.Feature != "" {
		return row.Reason + "; " + row.Feature, no
	}
	return row.Reason, no
}

const (
	maxVariables     = 1000
	maxVariableBytes = 128 << 10 // MAX_ARG_STRLEN: the kernel takes no longer one
	maxEnvironment   = 1 << 20
)

// ownVariables say who the caller is, and are always true.
var ownVariables = []string{"HOME", "USER", "LOGNAME", "SHELL"}

// environment collects the command's variables. Later ones replace earlier ones of the same name.
type environment struct {
	caller map[string]string
	given  map[string]Variable
}

func newEnvironment(environ []string) *environment {
	e := &environment{caller: make(map[string]string, len(environ)), given: make(map[string]Variable, 16)}
	for _, entry := range environ {
		if name, value, found := strings.Cut(entry, "="); found && name != "" {
			e.caller[name] = value
		}
	}
	return e
}

// passDefaults gives the command what the caller has of the default names.
func (e *environment) passDefaults() {
	for name, value := range e.caller {
		for _, pattern := range passedByDefault {
			if variables.Matches(pattern, name) && isVariableName(name) {
				e.put(name, value, Origin{Kind: OriginBaseline})
			}
		}
	}
	if e.caller["PATH"] == "" {
		e.put("PATH", defaultPath, Origin{Kind: OriginBaseline})
	}
}

func (e *environment) put(name, value string, origin Origin) {
	e.given[name] = Variable{name, value, origin}
}

// allow gives the command one more variable. A nil value is the caller's; optional ones that the
// caller does not have are left out. The error never holds the value: it may be a secret.
func (e *environment) allow(name string, value *string, optional bool, origin Origin) error {
	if err := CheckVariable(name); err != nil {
		return fmt.Errorf("%s: %w", origin.Source, err)
	}
	if value == nil {
		of, found := e.caller[name]
		switch {
		case !found && optional:
			return nil
		case !found:
			return fmt.Errorf("%s: variable %s: is not set here; write %s=VALUE to give it one", origin.Source, shorten(name), shortText(name))
		}
		value = &of
	}
	if err := checkVariableValue(name + "=" + *value); err != nil {
		return fmt.Errorf("%s: variable %s: %w", origin.Source, shorten(name), err)
	}
	e.put(name, *value, origin)
	return nil
}

// CheckVariable refuses a name that no command is given.
func CheckVariable(name string) error {
	refuse := func(why string) error { return fmt.Errorf("variable %s: %s", shorten(name), why) }
	if !isVariableName(name) {
		if before, _, found := strings.Cut(name, "="); found {
			name = before + "=…" // behind it there may be a secret
		}
		return refuse("is no name of a variable: letters, digits and _, and no digit first")
	}
	if slices.Contains(ownVariables, name) {
		return refuse("is set by the sandbox itself, to who the caller is")
	}
	if reason, no := Denied(name); no {
		return refuse("refused: " + reason)
	}
	return nil
}

func checkVariableValue(value string) error {
	if strings.IndexByte(value, 0) >= 0 {
		return errors.New("its value holds a NUL byte")
	}
	if len(value) >= maxVariableBytes {
		return fmt.Errorf("longer than %d bytes", maxVariableBytes)
	}
	return nil
}

func isVariableName(name string) bool {
	for i, c := range []byte(name) {
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}

// list is the environment, sorted by name.
func (e *environment) list() ([]Variable, error) {
	list := make([]Variable, 0, len(e.given))
	size := 0
	for _, v := range e.given {
		list = append(list, v)
		size += len(v.Name) + len(v.Value) + 2
	}
	if len(list) > maxVariables || size > maxEnvironment {
		return nil, fmt.Errorf("environment: %d variables of %d bytes: at most %d of %d", len(list), size, maxVariables, maxEnvironment)
	}
	slices.SortFunc(list, func(a, b Variable) int { return cmp.Compare(a.Name, b.Name) })
	return list, nil
}

// proxyVariables say through which proxy programs reach the network.
var proxyVariables = []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"}

// passProxies gives a command with the host's network the caller's proxies: where there are some,
// nothing is reached without. There may be a password in them. It comes when it is known which
// network there is: a filtered one has a proxy of its own, and the command sees no other.
func (p *Profile) passProxies(caller Caller) {
	if p.Network != NetworkEnabled {
		return
	}
	for _, name := range proxyVariables {
		at, given := slices.BinarySearchFunc(p.Environment, name, func(v Variable, name string) int { return cmp.Compare(v.Name, name) })
		if value := caller.variable(name); value != "" && !given && checkVariableValue(name+"="+value) == nil {
			p.Environment = slices.Insert(p.Environment, at, Variable{name, value, Origin{OriginBaseline, "enabled network"}})
		}
	}
}
