package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// The library's own completion executes the program that it completes, with the action of `run` among what may happen.
// These scripts are made from the same definitions, once, and never execute it.

func completionCommand() *cli.Command {
	return &cli.Command{
		Name:         "completion",
		Usage:        "print a completion script for bash, zsh or fish",
		ArgsUsage:    "bash|zsh|fish",
		OnUsageError: usageError,
		Action: func(c *cli.Context) error {
			write, known := completionScripts[c.Args().First()]
			if !known || c.NArg() != 1 {
				return &usage{"completion for which shell?", "clai-sandbox completion bash, zsh or fish"}
			}
			fmt.Print(write(c.App.Commands))
			return nil
		},
	}
}

var completionScripts = map[string]func([]*cli.Command) string{"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion}

// optionValues say what stands behind an option: words to choose from, or one of the kinds below.
var optionValues = map[string]string{
	"workspace": directory, "cwd": directory, "grant": path, "path": path, "env": variable,
	"network": "enabled disabled", "session-bus": "filtered allow deny",
}

const (
	directory = "<directory>"
	path      = "<path>"
	variable  = "<variable>"
)

// An option is a flag as completion sees it.
type option struct {
	name, help string
	takesValue bool
	value      string // from optionValues
}

func optionsOf(command *cli.Command) []option {
	var list []option
	for _, flag := range command.Flags {
		name := flag.Names()[0]
		help := flag.(cli.DocGenerationFlag).GetUsage()
		list = append(list, option{name: name, help: strings.ReplaceAll(help, "`", ""),
			takesValue: flag.(cli.DocGenerationFlag).TakesValue(), value: optionValues[name]})
	}
	return append(list, option{name: "help", help: "show help"})
}

// takesCommand reports whether the words of a command are another command's.
func takesCommand(command *cli.Command) bool { return command.Name == "run" }

func wordsOf(command *cli.Command) string {
	if command.Name == "completion" {
		return "bash zsh fish"
	}
	return ""
}

func bashCompletion(commands []*cli.Command) string {
	var names, withValue, values, options []string
	for _, command := range commands {
		names = append(names, command.Name)
		words := wordsOf(command)
		for _, o := range optionsOf(command) {
			words += " --" + o.name
			if !o.takesValue || slices.Contains(withValue, "--"+o.name) {
				continue
			}
			withValue = append(withValue, "--"+o.name)
			values = append(values, fmt.Sprintf("        --%s) %s; return ;;", o.name, bashValue(o.value)))
		}
		options = append(options, fmt.Sprintf("        %s) COMPREPLY=($(compgen -W '%s' -- \"$cur\")) ;;", command.Name, strings.TrimSpace(words)))
	}
	return fmt.Sprintf(`# bash completion for clai-sandbox; source it, or install it as completions/clai-sandbox

_clai_sandbox() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command= word i
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if [[ -z $command ]]; then
            case $word in %[1]s) command=$word ;; esac
            continue
        fi
        # Behind "--", or the first word that is no option, stands another command.
        case $word in
            --) _clai_sandbox_inner $((i + 1)); return ;;
            %[2]s) ((i++)) ;;
            -*) ;;
            *) [[ $command == run ]] && { _clai_sandbox_inner $i; return; } ;;
        esac
    done
    case $prev in
%[3]s
    esac
    case $command in
        '') COMPREPLY=($(compgen -W '%[4]s --help --version' -- "$cur")) ;;
%[5]s
    esac
    if [[ $command == run && $cur != -* ]]; then
        _clai_sandbox_inner $COMP_CWORD
    fi
}

# What completes a command that begins at a word: bash-completion's, where it is, else names and files.
_clai_sandbox_inner() {
    if declare -F _comp_command_offset >/dev/null; then
        _comp_command_offset "$1"
    elif declare -F _command_offset >/dev/null; then
        _command_offset "$1"
    elif ((COMP_CWORD == $1)); then
        COMPREPLY=($(compgen -c -- "${COMP_WORDS[COMP_CWORD]}"))
    else
        COMPREPLY=($(compgen -f -- "${COMP_WORDS[COMP_CWORD]}"))
    fi
}

complete -o filenames -F _clai_sandbox clai-sandbox
`, strings.Join(names, "|"), strings.Join(withValue, "|"), strings.Join(values, "\n"), strings.Join(names, " "), strings.Join(options, "\n"))
}

func bashValue(value string) string {
	words := "-W '" + value + "'"
	switch value {
	case directory:
		words = "-d"
	case path:
		words = "-f"
	case variable:
		words = "-v"
	case "":
		return ":"
	}
	return "COMPREPLY=($(compgen " + words + ` -- "$cur"))`
}

func zshCompletion(commands []*cli.Command) string {
	quote := func(text string) string {
		return strings.NewReplacer("'", `'\''`, "[", `\[`, "]", `\]`, ":", `\:`).Replace(text)
	}
	var names, cases []string
	for _, command := range commands {
		names = append(names, fmt.Sprintf("        '%s:%s'", command.Name, quote(command.Usage)))
		var specs []string
		for _, o := range optionsOf(command) {
			spec := fmt.Sprintf("'*--%s[%s]", o.name, quote(o.help))
			if o.takesValue {
				spec += ":value:" + zshValue(o.value)
			}
			specs = append(specs, spec+"'")
		}
		if takesCommand(command) {
			specs = append(specs, "'(-):command: _command_names -e'", "'*::arguments: _normal'")
		} else if words := wordsOf(command); words != "" {
			specs = append(specs, "'1:shell:("+words+")'")
		}
		cases = append(cases, fmt.Sprintf("    %s) _arguments -S \\\n        %s ;;", command.Name, strings.Join(specs, " \\\n        ")))
	}
	return fmt.Sprintf(`#compdef clai-sandbox
# zsh completion for clai-sandbox; install it as _clai-sandbox in a directory of $fpath

_clai_sandbox() {
    local -a commands
    commands=(
%s
    )
    if ((CURRENT == 2)); then
        _describe command commands
        return
    fi
    shift words
    ((CURRENT--))
    case $words[1] in
%s
    esac
}

if [[ $funcstack[1] == _clai-sandbox ]]; then
    _clai_sandbox "$@"
else
    compdef _clai_sandbox clai-sandbox
fi
`, strings.Join(names, "\n"), strings.Join(cases, "\n"))
}

func zshValue(value string) string {
	switch value {
	case directory:
		return "_files -/"
	case path:
		return "_files"
	case variable:
		return "_parameters -g \"*export*\""
	case "":
		return " "
	}
	return "(" + value + ")"
}

func fishCompletion(commands []*cli.Command) string {
	quote := func(text string) string { return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(text) + "'" }
	var lines []string
	for _, command := range commands {
		lines = append(lines, fmt.Sprintf("complete -c clai-sandbox -n __fish_use_subcommand -f -a %s -d %s", command.Name, quote(command.Usage)))
		seen := fmt.Sprintf("'__fish_seen_subcommand_from %s; and not __clai_sandbox_inner'", command.Name)
		for _, o := range optionsOf(command) {
			line := fmt.Sprintf("complete -c clai-sandbox -n %s -l %s -d %s", seen, o.name, quote(o.help))
			if o.takesValue {
				line += " " + fishValue(o.value)
			}
			lines = append(lines, line)
		}
		if words := wordsOf(command); words != "" {
			lines = append(lines, fmt.Sprintf("complete -c clai-sandbox -n %s -f -a %s", seen, quote(words)))
		}
	}
	return `# fish completion for clai-sandbox; install it in a directory of $fish_complete_path

# The command behind "--", if the cursor is there.
function __clai_sandbox_inner
    set -l words (commandline -opc) (commandline -ct)
    if set -l i (contains -i -- -- $words)
        test $i -lt (count $words); and printf '%s\n' $words[(math $i + 1)..-1]
    else
        return 1
    end
end

complete -c clai-sandbox -n '__clai_sandbox_inner >/dev/null' -x -a '(complete -C (string join " " -- (__clai_sandbox_inner)))'
` + strings.ReplaceAll(strings.Join(lines, "\n"), "not __clai_sandbox_inner'", "not __clai_sandbox_inner >/dev/null'") + "\n"
}

func fishValue(value string) string {
	switch value {
	case directory:
		return "-x -a '(__fish_complete_directories)'"
	case path:
		return "-r -F"
	case variable:
		return "-x -a '(set -xn)'"
	case "":
		return "-x"
	}
	return "-x -a '" + value + "'"
}
