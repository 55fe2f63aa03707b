package main

import (
	"fmt"
	"strings"
)

// bashCompletion needs bash 4.3. Where bash-completion is loaded, it completes the inner command.
func bashCompletion(app completedCommand) string {
	var commands, withValue, values, offers []string
	app.each(func(c completedCommand) {
		words := append([]string{}, c.words...)
		for _, sub := range c.commands {
			words = append(words, sub.name)
			commands = append(commands, bashPattern(c.path, sub.name))
		}
		for _, o := range c.options {
			words = append(words, "--"+o.name)
			if o.value.kind == noValue {
				continue
			}
			withValue = append(withValue, bashPattern(c.path, o.name))
			if o.value.kind != anything {
				values = append(values, fmt.Sprintf("            %s) %s ;;", bashPattern(c.path, o.name), bashValue(o.value)))
			}
		}
		offers = append(offers, fmt.Sprintf("        '%s') _clai_sandbox_offer '%s' ;;", c.path, strings.Join(words, " ")))
	})
	var runs []string
	app.each(func(c completedCommand) {
		if c.runs {
			runs = append(runs, "'"+c.path+"'")
		}
	})
	return lines(bashTemplate, []string{strings.Join(commands, "|")}, []string{strings.Join(runs, "|")},
		[]string{strings.Join(withValue, "|")}, values, offers)
}

// bashPattern matches a word in a command.
func bashPattern(command, word string) string { return "'" + command + ":" + word + "'" }

func bashValue(v optionValue) string {
	switch v.kind {
	case aWord:
		return "_clai_sandbox_offer '" + strings.Join(v.words, " ") + "'"
	case aDirectory:
		return "compopt -o dirnames"
	case aPath:
		if v.words == nil {
			return "compopt -o default"
		}
		return "_clai_sandbox_path '" + strings.Join(v.words, " ") + "'"
	case aVariable:
		return `_clai_sandbox_offer "$(compgen -e)"`
	}
	return ":" // nothing is known of it
}

const bashTemplate = `# bash completion for clai-sandbox. It never runs clai-sandbox.

_clai_sandbox() {
    COMPREPLY=()
    # The words as a program gets them, the last one up to the cursor: bash divides them at = and : too. at says where in
    # COMP_WORDS each begins.
    local rest=${COMP_LINE:0:COMP_POINT} words=() at=() i
    for ((i = 0; i <= COMP_CWORD; i++)); do
        if ((i == 0)) || [[ $rest == [[:blank:]]* ]]; then
            rest=${rest#"${rest%%%%[![:blank:]]*}"}
            words+=('')
            at+=("$i")
        fi
        if ((i == COMP_CWORD)); then
            words[-1]+=$rest
        else
            words[-1]+=${COMP_WORDS[i]}
            rest=${rest#"${COMP_WORDS[i]}"}
        fi
    done

    local command='' option='' word last=$((${#words[@]} - 1))
    for ((i = 1; i < last; i++)); do
        word=${words[i]}
        if [[ $option ]]; then
            option=''
            continue
        fi
        case $command:$word in
            %[1]s) command=${command:+$command }$word; continue ;;
        esac
        case $word in
            --) ((i++)) ;;
            -*)
                word=${word#-}
                case $command:${word#-} in
                    %[3]s) option=${word#-} ;;
                esac
                continue ;;
        esac
        case $command in
            %[2]s) _clai_sandbox_inner "${at[i]}" ;;
        esac
        return
    done

    # What precedes a value in its word, and what readline keeps of the word.
    local cur=${words[last]} start='' kept
    kept=${cur%%"${2##[=:]}"}
    if [[ -z $option && $cur == -*=* ]]; then
        start=${cur%%%%=*}=
        cur=${cur#*=}
        option=${start#-}
        option=${option#-}
        option=${option%%=}
    fi
    if [[ $option ]]; then
        case $command:$option in
%[4]s
        esac
        return
    fi
    case $command in
        %[2]s) [[ $cur == -* ]] || { _clai_sandbox_inner "${at[last]}"; return; } ;;
    esac
    case $command in
%[5]s
    esac
}

# Offers those of some words that the current one can become.
_clai_sandbox_offer() { # WORDS
    mapfile -t COMPREPLY < <(compgen -P "$start" -W "$1" -- "$cur")
    COMPREPLY=("${COMPREPLY[@]#"$kept"}")
}

# Offers what may be added to a path, once its colon is there, and files before.
_clai_sandbox_path() { # SUFFIXES
    if [[ $cur == *:* ]]; then
        mapfile -t COMPREPLY < <(compgen -P "$start${cur%%:*}" -W "$1" -- ":${cur##*:}")
        COMPREPLY=("${COMPREPLY[@]#"$kept"}")
    fi
    ((${#COMPREPLY[@]})) || compopt -o default -o nospace
}

# Completes the command that begins at a word of COMP_WORDS.
_clai_sandbox_inner() { # INDEX
    if declare -F _comp_command_offset >/dev/null; then
        _comp_command_offset "$1"
    elif declare -F _command_offset >/dev/null; then
        _command_offset "$1"
    elif ((COMP_CWORD == $1)); then
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -c -- "${COMP_WORDS[COMP_CWORD]}")
    else
        compopt -o bashdefault -o default
    fi
}

complete -F _clai_sandbox clai-sandbox
`
