package policy

import "strings"

// A carried command is one that another program runs, and that stands in its arguments.
type carried struct {
	from, to int // the words of argv
}

// carriedCommands finds what find and xargs run. It is not ok where the words are not clear.
func carriedCommands(name string, argv []string) (list []carried, ok bool) {
	switch name {
	case "find":
		return findCommands(argv)
	case "xargs":
		return xargsCommand(argv)
	}
	return nil, true
}

func findCommands(argv []string) (list []carried, ok bool) {
	for i := 1; i < len(argv); i++ {
		switch argv[i] {
		case "-exec", "-execdir", "-ok", "-okdir":
		default:
			continue
		}
		from := i + 1
		for i++; i < len(argv) && argv[i] != ";" && (argv[i] != "+" || argv[i-1] != "{}"); i++ {
		}
		if i == len(argv) || i == from || strings.Contains(argv[from], "{}") {
			return list, false
		}
		list = append(list, carried{from, i})
	}
	return list, true
}

func xargsCommand(argv []string) (list []carried, ok bool) {
	replaced := ""
	i := 1
	for i < len(argv) && strings.HasPrefix(argv[i], "-") {
		word := argv[i]
		flag, value, inline := strings.Cut(word, "=")
		switch {
		case word == "--":
			i++
			return xargsRest(argv, i, replaced)
		case word == "-0" || word == "-r" || word == "-t" || word == "-x" || word == "-0r" || word == "-r0" ||
			word == "--null" || word == "--no-run-if-empty" || word == "--verbose" || word == "--exit":
			i++
		case flag == "--max-args" || flag == "--max-procs" || flag == "--max-lines" || flag == "--max-chars" || flag == "--delimiter":
			if i++; !inline {
				i++
			}
		case flag == "--replace":
			replaced = "{}"
			if inline {
				replaced = value
			}
			i++
		case len(word) >= 2 && strings.IndexByte("nPLsdI", word[1]) >= 0:
			operand := word[2:]
			if i++; operand == "" && i < len(argv) {
				operand = argv[i]
				i++
			}
			if word[1] == 'I' {
				replaced = operand
			}
		default:
			return nil, false
		}
	}
	return xargsRest(argv, i, replaced)
}

func xargsRest(argv []string, i int, replaced string) ([]carried, bool) {
	if i >= len(argv) {
		return nil, true // it prints what it reads
	}
	// With -I, input may become any word. The program must not be one of them, nor a wrapper's.
	if replaced != "" {
		inner := Unwrap(argv[i:])
		if strings.Contains(inner.Argv[0], replaced) || len(inner.Wrappers) > 0 {
			return nil, false
		}
	}
	return []carried{{i, len(argv)}}, true
}
