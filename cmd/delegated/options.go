package delegated

import (
	"strings"

	"github.com/urfave/cli/v2"
)

// OptionsFirst puts the options of a command line before its other words, as the library wants
// them, up to a "--". A person writes "grants allow ID --once" as soon as the other way round. It
// is for commands whose words are their own, not a command to run.
func OptionsFirst(app *cli.App, args []string, names ...string) []string {
	if len(args) < 3 {
		return args
	}
	for _, name := range names {
		if args[1] != name {
			continue
		}
		if command := app.Command(name); command != nil {
			if len(command.Subcommands) == 0 {
				return append(args[:2:2], optionsFirst(command.Flags, args[2:])...)
			}
			if sub := command.Command(args[2]); sub != nil {
				return append(args[:3:3], optionsFirst(sub.Flags, args[3:])...)
			}
		}
	}
	return args
}

func optionsFirst(flags []cli.Flag, words []string) []string {
	valued := map[string]bool{}
	for _, flag := range flags {
		_, isBool := flag.(*cli.BoolFlag)
		for _, name := range flag.Names() {
			valued[name] = !isBool
		}
	}
	var options, others []string
	for i := 0; i < len(words); i++ {
		word := words[i]
		if word == "--" {
			return append(append(options, others...), words[i:]...)
		}
		if len(word) < 2 || word[0] != '-' {
			others = append(others, word)
			continue
		}
		options = append(options, word)
		if valued[strings.TrimLeft(word, "-")] && i+1 < len(words) {
			i++
			options = append(options, words[i])
		}
	}
	return append(options, others...)
}
