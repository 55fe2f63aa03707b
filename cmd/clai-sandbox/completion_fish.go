package main

import (
	"fmt"
	"strings"
)

func fishCompletion(app completedCommand) string {
	var commands, runs, withValue, list []string
	app.each(func(c completedCommand) {
		here := fmt.Sprintf("complete -c clai-sandbox -n %s", fishQuote("__clai_sandbox_in "+fishQuote(c.path)))
		for _, sub := range c.commands {
			commands = append(commands, fishQuote(c.path+":"+sub.name))
			list = append(list, here+" -a "+sub.name+" -d "+fishQuote(sub.help))
		}
		if c.words != nil {
			list = append(list, here+" -a "+fishQuote(strings.Join(c.words, " ")))
		}
		if c.runs {
			runs = append(runs, fishQuote(c.path))
		}
		for _, o := range c.options {
			list = append(list, fmt.Sprintf("%s -l %s%s -d %s", here, o.name, fishValue(o.value), fishQuote(o.help)))
			if o.value.kind != noValue {
				withValue = append(withValue, fishQuote(c.path+":"+o.name))
			}
		}
	})
	joined := func(list []string) []string { return []string{strings.Join(list, " ")} }
	return lines(fishTemplate, joined(commands), joined(withValue), joined(runs), list)
}

func fishQuote(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(text) + "'"
}

func fishValue(v optionValue) string {
	switch v.kind {
	case noValue:
		return ""
	case aWord:
		return " -x -a " + fishQuote(strings.Join(v.words, " "))
	case aDirectory:
		return " -x -a '(__fish_complete_directories)'"
	case aPath:
		if v.words == nil {
			return " -r -F"
		}
		return " -x -a " + fishQuote("(__clai_sandbox_path "+strings.Join(v.words, " ")+")")
	case aVariable:
		return " -x -a '(set --names --export)'"
	}
	return " -x"
}

const fishTemplate = `# fish completion for clai-sandbox. It never runs clai-sandbox.

# Prints the command that the words before the cursor lead to. Fails where an argument of it stands before the cursor; if
# that is another command, its words are printed too.
function __clai_sandbox_parse
    set -l words (commandline -opc)
    set -e words[1]
    set -l command ''
    while set -q words[1]
        set -l word $words[1]
        if contains -- "$command:$word" %[1]s
            set command (string trim -- "$command $word")
            set -e words[1]
            continue
        end
        switch $word
            case --
                set -e words[1]
            case '-?*'
                set -e words[1]
                if contains -- "$command:"(string replace -r '^--?' '' -- $word) %[2]s
                    set -q words[1]; and set -e words[1]
                end
                continue
        end
        printf '%%s\n' $command $words
        return 1
    end
    printf '%%s\n' $command
end

function __clai_sandbox_in
    set -l parsed (__clai_sandbox_parse); and test "$parsed[1]" = "$argv[1]"
end

# Prints the words of the command to be run, up to the cursor.
function __clai_sandbox_inner
    set -l parsed (__clai_sandbox_parse)
    or set -l begun
    contains -- "$parsed[1]" %[3]s; or return
    if not set -q begun; and string match -q -- '-*' (commandline -ct)
        return 1
    end
    set -e parsed[1]
    set -q parsed[1]; and set parsed (string escape -- $parsed)
    set -a parsed (commandline -ct)
    printf '%%s\n' "$parsed"
end

# Prints what may be added to the path at the cursor, once its colon is there, and files before.
function __clai_sandbox_path
    set -l word (string replace -r '^--?[a-z-]+=' '' -- (commandline -ct))
    if string match -q '*:*' -- $word
        printf '%%s\n' (string replace -r ':[^:]*$' '' -- $word)$argv
    else
        __fish_complete_path $word
    end
end

complete -c clai-sandbox -f
complete -c clai-sandbox -n '__clai_sandbox_inner >/dev/null' -a '(complete -C (__clai_sandbox_inner | string collect))'
%[4]s
`
