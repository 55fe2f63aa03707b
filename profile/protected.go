package profile

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
)

// A ProtectedPath is read-only in every writable directory, because something outside the sandbox executes it later or
// does as it says. What git executes is protected besides, wherever a repository has it.
type ProtectedPath struct {
	Name string // below the writable directory; one without a slash is protected in directories below it, too
	// Held names cannot be made either, where they do not exist: the sandbox has something else in their place.
	Held   bool
	Origin Origin
}

// projectFiles are read by editors, agents and tools that a person starts in a project.
var projectFiles = []string{
	".envrc", ".vscode", ".idea", ".husky", ".mcp.json", ".claude", ".codex", ".cursor", ".npmrc", ".pre-commit-config.yaml", ".gitconfig",
}

// moreProjectFiles are rarer: what there is of them is protected, but nothing stands in for what is not.
var moreProjectFiles = []string{
	".gemini", ".windsurf", ".zed", ".devcontainer", ".fleet", ".gitmodules", ".ripgreprc", ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs",
	".lefthook.yml", "lefthook.yml", ".overcommit.yml", ".mise.toml", "mise.toml", ".mise", ".direnv", ".exrc", ".nvim.lua",
}

// startupFiles are what shells and sessions execute, in a home directory.
var startupFiles = []string{
	".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout",
	".kshrc", ".inputrc", ".xprofile", ".xinitrc", ".xsession", ".xsessionrc", ".pam_environment", ".vimrc", ".tmux.conf", ".gdbinit",
	".config/fish", ".config/autostart", ".config/systemd", ".config/environment.d", ".config/git", ".local/share/applications", ".local/bin", "bin",
}

func protectedByDefault(isHome bool) []ProtectedPath {
	list := make([]ProtectedPath, 0, len(projectFiles)+len(moreProjectFiles)+len(startupFiles))
	add := func(names []string, held bool) {
		for _, name := range names {
			list = append(list, ProtectedPath{name, held, Origin{OriginDefault, "protectedPaths"}})
		}
	}
	add(projectFiles, true)
	add(moreProjectFiles, false)
	if isHome {
		add(startupFiles, true)
	} else {
		add(startupFiles[:slices.Index(startupFiles, ".config/fish")], false)
	}
	return list
}

// ProtectedIn lists what is protected in a writable directory. isHome says whether that is the home directory.
func (p *Profile) ProtectedIn(isHome bool) []ProtectedPath {
	list := append(protectedByDefault(isHome), p.Protected...)
	return slices.DeleteFunc(list, func(path ProtectedPath) bool { return slices.Contains(p.Unprotected, path.Name) })
}

// Protects reports whether a path below a writable directory is protected there. Some that git executes go by this name
// alone.
func (p *Profile) Protects(name string) bool { return !slices.Contains(p.Unprotected, name) }

// CheckProtectedName refuses what names nothing below a directory.
func CheckProtectedName(name string) error {
	clean := filepath.Clean(name)
	switch {
	case name == "" || clean == ".":
		return errors.New("an empty name protects nothing; make the whole directory read_only instead")
	case filepath.IsAbs(name) || name[0] == '~':
		return errors.New("write it as it is called in the writable directory, for example .vscode; a path elsewhere is granted read_only")
	case clean == ".." || strings.HasPrefix(clean, "../"):
		return errors.New("leads out of the writable directory")
	case strings.IndexByte(name, 0) >= 0 || len(name) >= maxPath:
		return errors.New("no file can have this name")
	}
	return nil
}
