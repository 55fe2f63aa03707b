package profile

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// A ProtectMode says what becomes of a protected name that a command makes. The zero value is to
// watch.
type ProtectMode uint8

const (
	ProtectWatch  ProtectMode = iota // it is set aside as soon as it is there
	ProtectStrict                    // all that a command writes is kept until it has ended, so that the name is never there
)

var protectModeNames = []string{"watch", "strict"}

func (m ProtectMode) String() string { return nameOf(protectModeNames, int(m)) }

func (m ProtectMode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

func (m *ProtectMode) UnmarshalText(text []byte) error {
	i, err := valueOf(protectModeNames, text)
	if err == nil {
		*m = ProtectMode(i)
	}
	return err
}

// A ProtectedPath is read-only in every writable directory and below it, and cannot come into being
// there, because something outside the sandbox executes it later or does as it says. What git
// executes is protected besides, wherever a repository has it.
type ProtectedPath struct {
	Name   string // a name, or the last few components of a path: .cargo/config.toml is one in any directory .cargo
	Home   bool   // only in the home directory itself
	Origin Origin
}

// projectFiles are read by editors, agents and tools as soon as somebody starts them in a project,
// or enters it.
var projectFiles = []string{
	// Shells and what they are extended with, on entering the directory.
	".envrc", ".direnv", ".autoenv", ".autoenv.zsh", ".autoenv_leave.zsh", ".envrc.local", ".envrc.private", ".shadowenv.d", ".flox",
	".mise.toml", "mise.toml", ".mise.local.toml", "mise.local.toml", ".mise", "mise/config.toml", "mise/conf.d", ".config/mise.toml", ".config/mise",
	".rtx.toml", ".rtx.local.toml", ".miserc.toml", "mise/config.local.toml", ".tool-versions", ".prototools", ".git/safe", ".rvmrc", ".rbenv-vars", ".pyenv-vars",
	// Editors, on opening it.
	".vscode", ".idea", ".fleet", ".zed", ".theia", ".helix", ".devcontainer", ".devcontainer.json", ".exrc", ".nvim.lua", ".nvimrc", ".lvimrc",
	".dir-locals.el", ".dir-locals-2.el", ".lite_project.lua", ".vim/coc-settings.json", ".luarc.json", ".luarc.jsonc", ".gvimrc", "Session.vim", ".bsp",
	"hie.yaml", ".externalToolBuilders", ".kateproject", ".neoconf.json", ".nvim", ".vs",
	// Agents: settings, hooks, and which servers of the Model Context Protocol they start.
	ProjectName, ".mcp.json", ".claude", ".claude.json", ".claude-plugin", ".codex", ".cursor", ".gemini", ".qwen", ".windsurf", ".codeium", ".cline", ".clinerules",
	".continue", ".continuerc.json", ".roo", ".kilocode", ".kiro", ".amazonq", ".amp", ".agents", ".goose", ".opencode", "opencode.json", "opencode.jsonc",
	".crush.json", "crush.json", ".aider.conf.yml", ".aider.conf.yaml", ".copilot", ".github/copilot", ".github/hooks", ".github/mcp.json", ".junie",
	".augment", ".pi", ".warp", ".serena", "gptme.toml", ".mcphost.yml", ".trae", ".factory", ".rovodev", ".openhands", ".codebuddy", ".iflow", ".kimi", ".vibe", ".grok", ".tabnine", ".zencoder",
	// Hooks of git that are kept in the project, and other programs' settings for git. Not
	// .gitmodules: git takes no command from it (since 2.24), and "git submodule add" writes it.
	".husky", ".pre-commit-config.yaml", ".pre-commit-config.yml", "prek.toml", ".overcommit.yml", ".gitconfig",
	"lefthook.yml", "lefthook.yaml", "lefthook.toml", "lefthook.json", ".lefthook.yml", ".lefthook.yaml", ".lefthook.toml", ".lefthook.json",
	"lefthook-local.yml", "lefthook-local.yaml", "lefthook-local.toml", "lefthook-local.json",
	".lefthook-local.yml", ".lefthook-local.yaml", ".lefthook-local.toml", ".lefthook-local.json", ".config/lefthook.yml", ".config/lefthook-local.yml",
	".git/lazygit.yml", ".lazygit.yml", ".git/glab-cli/config.yml", ".gh-dash.yml", ".huskyrc", ".huskyrc.js", "lefthook.jsonc", "hk.toml", "hk.yaml",
	".lefthook", ".lefthook-local", "captainhook.json", "grumphp.yml", "grumphp.yaml", ".rusty-hook.toml", ".cargo-husky", "hk.pkl", "hk.local.pkl",
	// What git shows, and takes, in the place of another commit, file or parent.
	"refs/replace", "info/grafts",
	// Which programs of the person's filter and compare what, before what the project says, and
	// seen in no diff.
	"info/attributes",
	// Settings of other systems that keep versions, beside what they keep.
	".hg/hgrc", ".hg/hgrc-not-shared", ".hg/sharedpath", ".sl/config", ".jj/repo/config.toml", ".jj/workspace-config.toml", ".pijul/config",
	".bzr/branch/branch.conf", ".bzr/branch/location", ".arcconfig", ".git/arc/config", ".git/sl/config", "_darcs/prefs/defaults", "_darcs/prefs/prefs", ".p4config", ".reviewboardrc",
	// Package managers and toolchains, whatever they are asked for.
	".npmrc", ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs", ".pnpmfile.mjs", ".cargo/config.toml", ".cargo/config", "rust-toolchain.toml", "rust-toolchain",
	".yarn/releases", ".yarn/plugins", ".corepack.env", ".luarocks", "bunfig.toml", ".bundle/config", ".gemrc", ".ripgreprc",
	".mvn/jvm.config", ".mvn/maven.config", ".mvn/extensions.xml", ".sbtopts", ".jvmopts", ".bazelrc", ".bazeliskrc", "tools/bazel",
	// Interpreters and debuggers, on starting in the directory.
	".pdbrc", ".pdbrc.py", ".irbrc", ".pryrc", ".byebugrc", ".rdbgrc", ".rdbgrc.rb", ".Rprofile", ".Renviron", ".RData", ".ghci", ".octaverc", ".lldbinit",
	".ocamlinit", ".iex.exs", ".perldb", ".psysh.php", ".valgrindrc",
	"jupyter_config.py", "jupyter_config.json", "jupyter_notebook_config.py", "jupyter_notebook_config.json", "jupyter_server_config.py",
	"jupyter_server_config.json", "jupyter_lab_config.py", "jupyter_lab_config.json",
}

// An executed is what a program executes, or is led by, without being asked, of what lies in a
// project. New names come here: with the program, what it does, and where that is written.
type executed struct {
	Program string
	Does    string
	Source  string // documentation, or what was tried: a row of docs/campaign-names.md
	Names   []string
}

var executedFiles = []executed{
	{"clojure-lsp", "runs :classpath-cmd of :project-specs when an editor starts it", "https://clojure-lsp.io/settings/", []string{".lsp/config.edn"}},
	{"rust-analyzer", "runs check.overrideCommand and others when an editor starts it", "https://rust-analyzer.github.io/book/configuration.html", []string{"rust-analyzer.toml"}},
	{"YouCompleteMe", "executes the file as Python; asked about once, by its path", "https://github.com/ycm-core/YouCompleteMe#the-gycm_confirm_extra_conf-option", []string{".ycm_extra_conf.py"}},
	{"lazy.nvim", "executes the file as Lua (local_spec)", "https://lazy.folke.io/configuration", []string{".lazy.lua"}},
	{"opencode", "starts servers of the Model Context Protocol and of languages", "https://github.com/opencode-ai/opencode#configuration", []string{".opencode.json"}},
	{"Hermit", "its shell hook activates an environment on entering the directory", "https://cashapp.github.io/hermit/usage/shell", []string{"bin/hermit.hcl", "bin/activate-hermit", "bin/activate-hermit.fish"}},
	{"fnox", "its shell hook asks providers, which are commands", "row 174", []string{"fnox.toml"}},
	{"pkgx dev", "its shell hook chooses programs and sets variables", "https://docs.pkgx.sh/using-dev/dev", []string{".pkgx.yaml", ".pkgx.yml", "pkgx.yaml", "pkgx.yml"}},
	{"aqua", "its proxies execute what the file says", "row 174", []string{"aqua.yaml", "aqua.yml", ".aqua.yaml", ".aqua.yml"}},
	{"Python", "imports the file at each start, wherever a directory of its path has one", "https://docs.python.org/3/library/site.html", []string{"sitecustomize.py", "usercustomize.py", "sitecustomize", "usercustomize"}},
	{"Debian's Python", "its /etc/python3/sitecustomize.py imports it at each start, wherever a directory of its path has one", "row 277", []string{"apport_python_hook.py", "apport_python_hook"}},
	{"transcrypt", "git executes it as a filter", "https://github.com/elasticdog/transcrypt", []string{".git/crypt"}},
	{"repo", "executes the file of a directory above", "https://gerrit.googlesource.com/git-repo", []string{".repo/repo/main.py"}},
	{"gclient", "executes the file as Python", "https://chromium.googlesource.com/chromium/tools/depot_tools", []string{".gclient"}},
	{"bazelisk", "downloads, and executes, what the file names", "https://github.com/bazelbuild/bazelisk", []string{".bazelversion"}},
	{"west", "takes commands from manifests that it names", "https://docs.zephyrproject.org/latest/develop/west/config.html", []string{".west/config"}},
	{"jupyter", "executes the file as Python in the directory where it starts", "https://jupyter.readthedocs.io/en/latest/use/config.html", []string{
		"jupyter_nbconvert_config.py", "jupyter_nbconvert_config.json", "jupyter_console_config.py", "jupyter_console_config.json", "jupyter_qtconsole_config.py", "jupyter_qtconsole_config.json"}},
	{"knife", "executes the file as Ruby", "https://docs.chef.io/workstation/config_rb/", []string{".chef/config.rb", ".chef/knife.rb"}},
	{"act", "takes options of its command line from it", "https://nektosact.com/usage/index.html", []string{".actrc"}},
	{"Buck", "executes what its settings name", "https://buck.build/files-and-dirs/buckconfig.html", []string{".buckconfig", ".buckconfig.local"}},
	{"Please", "executes what its settings name", "https://please.build/config.html", []string{".plzconfig"}},
	{"bloop", "executes what its settings name", "https://scalacenter.github.io/bloop/docs/configuration-format", []string{".bloop"}},
	{"fast-agent", "starts servers of the Model Context Protocol", "https://fast-agent.ai/ref/config_file/", []string{"fastagent.config.yaml", "mcp_agent.config.yaml"}},
	{"gptme", "starts servers of the Model Context Protocol", "https://gptme.org/docs/config.html", []string{"gptme.local.toml"}},
	{"Cursor and Windsurf", "their agents do as the file says", "https://docs.cursor.com/context/rules", []string{".cursorrules", ".windsurfrules"}},
	{"goose", "its agent does as the file says", "https://block.github.io/goose/docs/guides/using-goosehints", []string{".goosehints"}},
	{"Roo Code and Kilo Code", "their agents have the tools and do as the file says", "https://docs.roocode.com/features/custom-modes", []string{".roomodes", ".kilocodemodes"}},
	{"ctags", "takes options of its command line from it: where to write, among others", "https://docs.ctags.io/en/latest/option-file.html", []string{".ctags.d", "ctags.d", ".ctags"}},
	{"GNU GLOBAL", "loads the shared libraries that it names", "gtags.conf(5)", []string{"gtags.conf", ".globalrc"}},
	{"Monotone", "executes the file as Lua", "row 258", []string{"_MTN/monotonerc"}},
	{"Cadence Virtuoso", "executes the file as SKILL in the directory where it starts", "row 258", []string{".cdsinit"}},
	{"MATLAB", "executes the file in the directory where it starts", "https://www.mathworks.com/help/matlab/ref/startup.html", []string{"startup.m"}},
	{"GitHub Copilot", "its agents have the tools, and start the servers of the Model Context Protocol, that the file names", "https://docs.github.com/en/copilot/how-tos/copilot-cli/use-copilot-cli/invoke-custom-agents", []string{".github/agents"}},
	{"irb", "executes the file as Ruby in the directory where it starts", "https://ruby.github.io/irb/Configurations_md.html", []string{"irb.rc", "_irbrc", "$irbrc"}},
	{"lintr", "evaluates its values as R when an editor checks a file", "https://cran.r-project.org/web/packages/lintr/vignettes/lintr.html", []string{".lintr", ".lintr.R"}},
	{"Copilot", "starts servers of languages", "https://docs.github.com/copilot/concepts/agents/copilot-cli/lsp-servers", []string{".github/lsp.json"}},
	{"git-lfs", "goes where lfs.url says, with credentials, at a push", "git-lfs-config(5)", []string{".lfsconfig"}},
}

// startupFiles are what shells and sessions execute, in a home directory.
var startupFiles = []string{
	".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout",
	".zcompdump", ".kshrc", ".inputrc", ".xprofile", ".xinitrc", ".xsession", ".xsessionrc", ".pam_environment", ".vimrc", ".tmux.conf", ".gdbinit",
}

// homeFiles are what they execute in the home directory itself, and would be ordinary names
// elsewhere.
var homeFiles = []string{
	".config/fish", ".config/nushell", ".config/autostart", ".config/systemd", ".config/environment.d", ".config/git", ".config/nvim", ".config/tmux",
	".bashrc.d", ".bash_completion", ".config/zsh", ".config/emacs", ".emacs", ".emacs.d", ".vim", ".oh-my-zsh", ".nvm", ".cargo/env", ".cargo/bin", "go/bin", ".screenrc", ".curlrc", ".wgetrc",
	".local/share/applications", ".local/bin", "bin",
}

// rewrittenFiles are what a tool writes anew whenever it is used, through a symbolic link if there
// is one: to wherever that leads.
var rewrittenFiles = []string{
	"package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml", "bun.lock", "deno.lock", "Cargo.lock", "go.sum", "go.work.sum",
	"poetry.lock", "pdm.lock", "uv.lock", "Pipfile.lock", "Gemfile.lock", "composer.lock", "mix.lock", "flake.lock", "pubspec.lock",
}

// RewrittenFiles are names under which no symbolic link may come into being.
func RewrittenFiles() []string { return slices.Clone(rewrittenFiles) }

// packageDirectories are filled by package managers, with thousands of packages that bring an
// .npmrc or a .vscode of their own, which nobody opens: of the names above, none counts below them.
// What git executes counts there as everywhere.
var packageDirectories = []string{
	"node_modules", "bower_components", "jspm_packages", // npm, yarn, pnpm and their kin
	"site-packages", "dist-packages", // pip, in whatever environment
	"vendor", // go, composer, bundler, cargo
}

// StartupFiles are what shells and sessions execute, as it is called in the home directory.
func StartupFiles() []string { return slices.Concat(startupFiles, homeFiles) }

// PackageDirectories are names of directories below which only what git executes is protected.
func PackageDirectories() []string { return slices.Clone(packageDirectories) }

func protectedByDefault(isHome bool) []ProtectedPath {
	list := make([]ProtectedPath, 0, len(projectFiles)+len(startupFiles)+len(homeFiles)+2*len(executedFiles))
	add := func(names []string, home bool) {
		for _, name := range names {
			list = append(list, ProtectedPath{name, home, Origin{OriginDefault, "protectedPaths"}})
		}
	}
	add(projectFiles, false)
	for _, e := range executedFiles {
		add(e.Names, false)
	}
	add(startupFiles, false)
	if isHome {
		add(homeFiles, true)
	}
	return list
}

// ProtectedIn lists what is protected in writable directories. isHome adds what is in the home
// directory alone.
func (p *Profile) ProtectedIn(isHome bool) []ProtectedPath {
	list := append(protectedByDefault(isHome), p.Protected...)
	return slices.DeleteFunc(list, func(path ProtectedPath) bool { return slices.Contains(p.Unprotected, path.Name) })
}

// Protects reports whether a path below a writable directory is protected there. Some that git
// executes go by this name alone.
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
	return checkNoPattern(name)
}

// checkNoPattern refuses a pattern: it would protect nothing but a name that is written like it.
func checkNoPattern(name string) error {
	if strings.Contains(name, "*") {
		return fmt.Errorf("%s is a pattern, and counts as a name: name each, or the directory that holds them", shorten(name))
	}
	return nil
}
