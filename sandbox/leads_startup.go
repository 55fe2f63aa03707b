package sandbox

import (
	"path"
	"strings"

	"github.com/clairun/clai-sandbox/profile"
)

// What shells, editors and ssh start with in a home often reads more from elsewhere: ". ~/project/aliases". Words are looked for, as each
// program has a language of its own: what is a whole path to something that the command may write is protected, as what a variable names.

// startupTexts are such files, and directories of them, in the home.
var startupTexts = []string{
	".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".bashrc.d", ".profile", ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".kshrc",
	".inputrc", ".xprofile", ".xinitrc", ".xsession", ".xsessionrc", ".vimrc", ".gvimrc", ".tmux.conf", ".screenrc", ".gdbinit", ".lldbinit", ".emacs", ".emacs.d/init.el",
	".psqlrc", ".irbrc", ".pryrc", ".pythonrc", ".pythonrc.py", ".Rprofile", ".npmrc", ".muttrc", ".ssh/config", ".ssh/config.d", ".gnupg/gpg.conf", ".gnupg/gpg-agent.conf",
	".config/fish/config.fish", ".config/fish/conf.d", ".config/nushell/config.nu", ".config/nushell/env.nu", ".config/nvim/init.vim", ".config/nvim/init.lua",
	".config/tmux/tmux.conf", ".config/environment.d", ".config/autostart", ".config/systemd/user", ".config/pip/pip.conf", ".cargo/config.toml",
}

const (
	maxStartupFiles = 256
	maxStartupText  = 256 << 10
	maxStartupWords = 4096
)

// typed begin lines of which the person types the name, and knows what it is of: they may name scripts of a project.
var typed = []string{"#", "alias ", "abbr ", "bind ", "bind-key ", "bindkey ", "cd "}

func (b *builder) startupLeads(origin profile.Origin) {
	files, words := 0, 0
	read := func(file string) {
		w, err := follow(b.tree, file)
		if err != nil || !w.Object.Mode.IsRegular() || files == maxStartupFiles {
			return
		}
		files++
		text, err := b.tree.ReadFile(w.Real, maxStartupText)
		if err != nil {
			return
		}
		for line := range strings.Lines(text) {
			for _, word := range b.startupWords(line) {
				if words++; words <= maxStartupWords {
					b.leadFile(word, origin)
				}
			}
		}
	}
	for _, name := range startupTexts {
		file := join(b.profile.Home, name)
		entries, err := b.tree.ReadDir(file)
		if err != nil {
			read(file)
			continue
		}
		for _, entry := range entries {
			read(join(file, entry.Name))
		}
	}
}

// startupWords are the whole paths in a line.
func (b *builder) startupWords(line string) (words []string) {
	line = strings.TrimSpace(line)
	for _, begin := range typed {
		if strings.HasPrefix(line, begin) {
			return nil
		}
	}
	line = strings.NewReplacer("${HOME}/", "~/", "$HOME/", "~/", "%h/", "~/").Replace(line)
	for word := range strings.FieldsFuncSeq(line, func(r rune) bool { return strings.ContainsRune(" \t\r\n\"'`;&|<>()[]{},=:", r) }) {
		if word = b.expandHome(word); path.IsAbs(word) && len(word) > 1 {
			words = append(words, path.Clean(word))
		}
	}
	return words
}
