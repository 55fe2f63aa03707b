package profile

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/clairun/clai-sandbox/profile/variables"
)

// environments are names of directories with programs that are installed for one project, and found
// by PATH while a person works on it.
var environments = []string{".venv", "venv", "env", ".virtualenv", ".virtualenvs", ".tox", ".nox", ".pixi", ".conda", ".direnv"}

// places are variables that say where something is, and name nothing that is read.
var places = []string{"HOME", "PWD", "OLDPWD", "PATH", "TMPDIR", "TMP", "TEMP"}

// maxNamed bounds how many paths the environment may name.
const maxNamed = 1000

// personsEnvironment takes from the caller's environment which files programs outside execute, or
// obey.
func (p *Profile) personsEnvironment(caller Caller) {
	values := map[string]string{}
	for _, v := range caller.Environ {
		name, value, _ := strings.Cut(v, "=")
		values[name] = value
	}
	file := func(list *[]string, name string, below ...string) {
		if value := values[name]; filepath.IsAbs(value) {
			*list = append(*list, filepath.Join(append([]string{value}, below...)...))
		}
	}
	file(&p.PersonsGit, "GIT_CONFIG_GLOBAL")
	file(&p.PersonsGit, "GIT_CONFIG_SYSTEM")
	file(&p.PersonsGit, "XDG_CONFIG_HOME", "git", "config")
	p.PersonsSettings = gitSettingsIn(values)
	for _, name := range []string{"BASH_ENV", "ENV", "PYTHONSTARTUP", "INPUTRC", "GIT_TEMPLATE_DIR", "GIT_EXEC_PATH", "EDITOR", "VISUAL", "PAGER", "GIT_SSH", "GIT_ASKPASS", "SSH_ASKPASS"} {
		file(&p.PersonsFiles, name)
	}
	for name, below := range map[string][]string{"CARGO_HOME": {"config", "config.toml", "env"}, "DOCKER_CONFIG": {"config.json"}, "GNUPGHOME": {"gpg.conf", "gpg-agent.conf", "dirmngr.conf"},
		"PYTHONPATH": {"sitecustomize.py", "usercustomize.py", "apport_python_hook.py"}} {
		for _, dir := range filepath.SplitList(values[name]) {
			for _, file := range below {
				if filepath.IsAbs(dir) {
					p.PersonsNamed = append(p.PersonsNamed, filepath.Join(dir, file))
				}
			}
		}
	}
	for _, name := range startupFiles {
		file(&p.PersonsFiles, "ZDOTDIR", name)
	}
	for _, dir := range filepath.SplitList(values["PATH"]) {
		parts := strings.Split(dir, "/")
		if !slices.ContainsFunc(parts, func(part string) bool {
			return slices.Contains(environments, part) || slices.Contains(packageDirectories, part)
		}) {
			p.PersonsPath = append(p.PersonsPath, filepath.Clean(dir))
		}
	}
}

// personsNamed takes from the caller's environment what lies in what the command may write, besides
// other words: --require=/a/b, |/a/b %s. It comes after the grants, as most of what is named lies
// elsewhere.
func (p *Profile) personsNamed(caller Caller) {
	var writable []string
	for _, grant := range p.Grants {
		if grant.Access == ReadWrite && grant.Path != "/" {
			writable = append(writable, "/"+filepath.Base(grant.Path)+"/") // by whatever links it is named
		}
	}
	for _, v := range caller.Environ {
		name, value, _ := strings.Cut(v, "=")
		if filepath.IsAbs(value) && value != "/" && !slices.Contains(places, name) && len(p.PersonsVariables) < maxNamed && !strings.ContainsAny(value, " \t\n;&|:") {
			p.PersonsVariables = append(p.PersonsVariables, v)
		}
		if slices.Contains(places, name) || !slices.ContainsFunc(writable, func(dir string) bool { return strings.Contains(value, dir) }) ||
			!variables.Is(name, variables.Command, variables.Host, variables.Request) {
			continue
		}
		for word := range strings.FieldsFuncSeq(value, func(r rune) bool { return strings.ContainsRune(" \t\n:;,=|\"'", r) }) {
			if filepath.IsAbs(word) && len(p.PersonsNamed) < maxNamed {
				p.PersonsNamed = append(p.PersonsNamed, filepath.Clean(word))
			}
		}
	}
}

// maxSettings bounds how many settings of git's the environment may have.
const maxSettings = 1000

// gitVariables have what git executes, or obeys, as a setting has.
var gitVariables = []struct{ name, key string }{
	{"GIT_EDITOR", "core.editor"}, {"VISUAL", "core.editor"}, {"EDITOR", "core.editor"}, {"GIT_SEQUENCE_EDITOR", "sequence.editor"}, {"GIT_PAGER", "core.pager"}, {"PAGER", "core.pager"},
	{"GIT_SSH_COMMAND", "core.sshcommand"}, {"GIT_SSH", "core.sshcommand"}, {"GIT_ASKPASS", "core.askpass"}, {"SSH_ASKPASS", "core.askpass"}, {"GIT_EXTERNAL_DIFF", "diff.external"},
	{"GIT_PROXY_COMMAND", "core.gitproxy"}, {"GIT_TEMPLATE_DIR", "init.templatedir"}, {"GIT_SSL_CAINFO", "http.sslcainfo"}, {"GIT_SSL_CAPATH", "http.sslcapath"},
}

// gitSettingsIn are git's settings that an environment has, each as a text in the form of git's
// files.
func gitSettingsIn(values map[string]string) (list []string) {
	add := func(key, value string) {
		first, last := strings.IndexByte(key, '.'), strings.LastIndexByte(key, '.')
		if first < 0 || strings.ContainsAny(key, "\n\x00") {
			return
		}
		quote := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)
		section := "[" + key[:first] + "]"
		if first != last {
			section = "[" + key[:first] + ` "` + quote.Replace(key[first+1:last]) + `"]`
		}
		list = append(list, section+"\n\t"+key[last+1:]+` = "`+quote.Replace(value)+"\"\n")
	}
	for _, v := range gitVariables {
		if value := values[v.name]; value != "" {
			add(v.key, value)
		}
	}
	count, _ := strconv.Atoi(values["GIT_CONFIG_COUNT"])
	for i := range min(count, maxSettings) {
		add(values["GIT_CONFIG_KEY_"+strconv.Itoa(i)], values["GIT_CONFIG_VALUE_"+strconv.Itoa(i)])
	}
	for rest := values["GIT_CONFIG_PARAMETERS"]; len(list) < maxSettings; { // what "git -c" leaves to the programs that git starts: 'key=value', or 'key'='value'
		var key, value string
		var found, two bool
		if key, rest, found = unquoted(rest); !found {
			break
		}
		if rest, two = strings.CutPrefix(rest, "="); two {
			value, rest, _ = unquoted(rest)
		} else {
			key, value, _ = strings.Cut(key, "=")
		}
		add(key, value)
	}
	return list
}

// unquoted is the next word of a text, in which all are quoted for a shell.
func unquoted(text string) (word, rest string, found bool) {
	_, rest, found = strings.Cut(text, "'")
	for found {
		var part string
		if part, rest, found = strings.Cut(rest, "'"); !found {
			break
		}
		word += part
		if len(rest) < 3 || rest[0] != '\\' || rest[2] != '\'' {
			return word, rest, true
		}
		word, rest = word+rest[1:2], rest[3:]
	}
	return "", "", false
}
