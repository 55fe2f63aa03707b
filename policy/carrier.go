package policy

import "strings"

// A growth is what a carrier puts into a command while it runs: words that nobody has seen.
type growth struct {
	behind      bool   // behind the last word, any number of them
	placeholder string // or wherever this stands
	leads       bool   // and what is put there may begin with a dash
}

func (g growth) any() bool { return g.behind || g.placeholder != "" }

// A carried command is one that another program runs, and that stands in its arguments.
type carried struct {
	from, to int // the words of argv
	grows    growth
}

// isCarrier says which of the carriers that are looked into a program is.
func isCarrier(base string) string {
	if p := programOf(base); p != nil && (p.names[0] == "find" || p.names[0] == "xargs") {
		return p.names[0]
	}
	return ""
}

// carriedCommands finds what find and xargs run, and what is left of their own words. It is not ok
// where the words are not clear.
func carriedCommands(name string, argv []string) (list []carried, own []string, ok bool) {
	switch name {
	case "find":
		return findCommands(argv)
	case "xargs":
		list, ok = xargsCommand(argv)
		if len(list) > 0 {
			return list, argv[:list[0].from], ok
		}
	}
	return list, argv, ok
}

func findCommands(argv []string) (list []carried, own []string, ok bool) {
	own = []string{argv[0]}
	for i := 1; i < len(argv); i++ {
		plus := argv[i] == "-exec" || argv[i] == "-execdir"
		if !plus && argv[i] != "-ok" && argv[i] != "-okdir" {
			own = append(own, argv[i])
			continue
		}
		if !plus {
			own = append(own, argv[i]) // it reads answers from its input
		}
		from := i + 1
		for i++; i < len(argv) && argv[i] != ";" && !(plus && argv[i] == "+" && argv[i-1] == "{}"); i++ {
		}
		if i >= len(argv) || i == from || strings.Contains(argv[from], "{}") {
			return list, argv, false
		}
		// What find found begins with where it looked, which is no option.
		list = append(list, carried{from, i, growth{placeholder: "{}"}})
	}
	return list, own, true
}

func xargsCommand(argv []string) (list []carried, ok bool) {
	words, _, bad := programs()["xargs"].options(argv[1:])
	if bad != nil {
		return nil, false
	}
	g := growth{behind: true}
	for _, a := range words {
		switch {
		case a.option == nil:
			from := a.at + 1
			if g.placeholder != "" {
				// The program must not be one of the words that may become any, nor a wrapper's.
				inner := Unwrap(argv[from:])
				if strings.Contains(inner.Argv[0], g.placeholder) || len(inner.Wrappers) > 0 {
					return nil, false
				}
			}
			return []carried{{from, len(argv), g}}, true
		case a.option.effect != effectOK:
			return nil, false
		case a.option.name == "-I" || a.option.name == "--replace":
			g = growth{placeholder: "{}", leads: true}
			if a.hasValue {
				g.placeholder = a.value
			}
			if g.placeholder == "" {
				return nil, false
			}
		case a.option.name == "-L" || a.option.name == "-n" || a.option.name == "-l" || a.option.name == "--max-lines" || a.option.name == "--max-args":
			// The last of these and -I counts, for some.
			if g.placeholder != "" {
				return nil, false
			}
		}
	}
	return nil, true // it prints what it reads
}
