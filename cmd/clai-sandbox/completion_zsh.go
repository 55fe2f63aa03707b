package main

import (
	"fmt"
	"strings"
)

// zshCompletion is both a file for a directory of fpath and a script to evaluate.
func zshCompletion(app completedCommand) string {
	var functions []string
	app.each(func(c completedCommand) { functions = append(functions, zshFunction(c)) })
	return lines(zshTemplate, functions)
}

const zshTemplate = `#compdef clai-sandbox
# zsh completion for clai-sandbox. It never runs clai-sandbox.

# Completes the arguments of another command, which _arguments leaves a -- in front of.
_clai-sandbox_inner() {
    if [[ $words[1] == -- ]]; then
        shift words
        ((CURRENT--))
    fi
    _normal
}

# Completes what may be added to a path, once its colon is there, and files before.
_clai-sandbox_path() {
    local -a suffixes=("$@")
    if compset -P '*:'; then
        compadd -a suffixes
    else
        _files -S ''
    fi
}

%s
if [[ $funcstack[1] == _clai-sandbox ]]; then
    _clai-sandbox "$@"
else
    compdef _clai-sandbox clai-sandbox
fi
`

func zshFunction(c completedCommand) string {
	name := zshName(c.path)
	var specs []string
	for _, o := range c.options {
		specs = append(specs, zshOption(o))
	}
	switch {
	case c.commands != nil:
		return zshDispatch(c, name, specs)
	case c.runs:
		specs = append(specs, "'(-):command: _command_names -e'", "'*::argument: _clai-sandbox_inner'")
	case c.words != nil:
		specs = append(specs, "'1: :("+strings.Join(c.words, " ")+")'")
	}
	return fmt.Sprintf("%s() {\n    _arguments -S \\\n        %s\n}\n", name, strings.Join(specs, " \\\n        "))
}

// zshDispatch goes on with the function of the command that the line names.
func zshDispatch(c completedCommand, name string, specs []string) string {
	specs = append(specs, "'1: :->command'", "'*:: :->arguments'")
	var names, cases []string
	for _, sub := range c.commands {
		names = append(names, "'"+sub.name+":"+zshText(sub.help)+"'")
		cases = append(cases, "                "+sub.name+") "+zshName(sub.path)+" ;;")
	}
	return lines(name+`() {
    local curcontext=$curcontext state line
    local -a subcommands=(
        %s
    )
    _arguments -C \
        %s && return
    case $state in
        command) _describe command subcommands ;;
        arguments)
            case $line[1] in
%s
            esac ;;
    esac
}
`, []string{strings.Join(names, "\n        ")}, []string{strings.Join(specs, " \\\n        ")}, cases)
}

func zshName(path string) string {
	return strings.TrimSuffix("_clai-sandbox-"+strings.ReplaceAll(path, " ", "-"), "-")
}

func zshOption(o completedOption) string {
	spec := "--" + o.name
	if o.repeats {
		spec = "*" + spec
	}
	if o.value.kind == noValue {
		return "'" + spec + "[" + zshText(o.help) + "]'"
	}
	return "'" + spec + "=[" + zshText(o.help) + "]: :" + zshValue(o.value) + "'"
}

// zshText stands in a description, in single quotes.
func zshText(text string) string {
	return strings.NewReplacer("'", `'\''`, `\`, `\\`, "[", `\[`, "]", `\]`, ":", `\:`).Replace(text)
}

func zshValue(v optionValue) string {
	switch v.kind {
	case aWord:
		return "(" + strings.Join(v.words, " ") + ")"
	case aDirectory:
		return "_path_files -/"
	case aPath:
		if v.words == nil {
			return "_files"
		}
		return " _clai-sandbox_path " + strings.ReplaceAll(strings.Join(v.words, " "), ":", "")
	case aVariable:
		return `_parameters -g "*export*"`
	}
	return " "
}
