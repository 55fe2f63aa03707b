package profile

import (
	"path/filepath"
	"slices"
	"strings"
)

// environments are names of directories with programs that are installed for one project, and found by PATH while a person works on it.
var environments = []string{".venv", "venv", "env", ".virtualenv", ".virtualenvs", ".tox", ".nox", ".pixi", ".conda", ".direnv"}

// personsEnvironment takes from the caller's environment which files programs outside execute, or obey.
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
	for _, name := range []string{"BASH_ENV", "ENV", "PYTHONSTARTUP", "INPUTRC", "GIT_TEMPLATE_DIR", "GIT_EXEC_PATH", "EDITOR", "VISUAL", "PAGER", "GIT_SSH", "GIT_ASKPASS", "SSH_ASKPASS"} {
		file(&p.PersonsFiles, name)
	}
	for _, name := range startupFiles {
		file(&p.PersonsFiles, "ZDOTDIR", name)
	}
	for _, dir := range filepath.SplitList(values["PATH"]) {
		parts := strings.Split(dir, "/")
		if filepath.IsAbs(dir) && !slices.ContainsFunc(parts, func(part string) bool {
			return slices.Contains(environments, part) || slices.Contains(packageDirectories, part)
		}) {
			p.PersonsPath = append(p.PersonsPath, filepath.Clean(dir))
		}
	}
}
