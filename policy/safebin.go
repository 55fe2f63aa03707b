package policy

import (
	"slices"
	"strings"
)

// A SafeBinProfile says which words a program may have that only reads its standard input and
// writes its standard output.
type SafeBinProfile struct {
	MinPositional     int      `json:"minPositional,omitempty"`
	MaxPositional     *int     `json:"maxPositional,omitempty"` // none given: any number
	AllowedValueFlags []string `json:"allowedValueFlags,omitempty"`
	DeniedFlags       []string `json:"deniedFlags,omitempty"`
	BooleanFlags      []string `json:"booleanFlags,omitempty"` // flags without a value; also "-5": a number
}

// DefaultSafeBins need no entry.
func DefaultSafeBins() []string { return []string{"cut", "uniq", "head", "tail", "tr", "wc"} }

func exactly(n int) *int { return &n }

// safeBinProfile is the built-in profile of a program. Programs that run code have none, and
// neither has jq: a program of its language reads the environment and other files. A profile that a
// person wrote is what makes it safe.
func safeBinProfile(name string) (SafeBinProfile, bool) {
	switch name {
	case "cut":
		return SafeBinProfile{MaxPositional: exactly(0), AllowedValueFlags: []string{"-b", "-c", "-d", "-f",
			"--bytes", "--characters", "--delimiter", "--fields", "--output-delimiter"}}, true
	case "uniq":
		return SafeBinProfile{MaxPositional: exactly(0), AllowedValueFlags: []string{"-f", "-s", "-w",
			"--skip-fields", "--skip-chars", "--check-chars"}}, true
	case "head":
		return SafeBinProfile{MaxPositional: exactly(0), AllowedValueFlags: []string{"-c", "-n", "--bytes", "--lines"}}, true
	case "tail":
		return SafeBinProfile{MaxPositional: exactly(0), AllowedValueFlags: []string{"-c", "-n", "--bytes", "--lines"}, DeniedFlags: []string{"-f", "-F", "--follow", "--retry"}}, true
	case "tr":
		return SafeBinProfile{MinPositional: 1, MaxPositional: exactly(2)}, true
	case "wc":
		return SafeBinProfile{MaxPositional: exactly(0), DeniedFlags: []string{"--files0-from"}}, true
	case "grep":
		return SafeBinProfile{MaxPositional: exactly(0), AllowedValueFlags: []string{"-A", "-B", "-C", "-D", "-e", "-m",
			"--after-context", "--before-context", "--binary-files", "--context", "--devices", "--exclude", "--include", "--label",
			"--max-count", "--regexp"}, DeniedFlags: []string{"-R", "-d", "-f", "-r",
			"--dereference-recursive", "--directories", "--exclude-from", "--file", "--recursive"}}, true
	case "sort":
		return SafeBinProfile{MaxPositional: exactly(0), AllowedValueFlags: []string{"-S", "-k", "-t",
			"--batch-size", "--buffer-size", "--field-separator", "--key", "--parallel"}, DeniedFlags: []string{"-T", "-o",
			"--compress-program", "--files0-from", "--output", "--random-source", "--temporary-directory"}}, true
	}
	return SafeBinProfile{}, false
}

// neverSafe are programs whose arguments are a program, whatever a profile says.
func neverSafe(name string) bool { return interpreter(familyOf(name)) || isWrapper(name) }

// A SafeBins is the list of one agent: names in lower case, and profiles that people wrote.
type SafeBins struct {
	Names    []string
	Profiles map[string]SafeBinProfile

	// Wide lets the built-in profiles have flags without a value, which name nothing: head -20, wc
	// -l.
	Wide bool
}

// quietFlags are those, by program. "-5" is any number.
func quietFlags(name string) []string {
	switch name {
	case "head":
		return []string{"-5", "-q", "-v", "-z", "--quiet", "--silent", "--verbose", "--zero-terminated"}
	case "tail":
		return []string{"-5", "-q", "-v", "-z", "--quiet", "--silent", "--verbose", "--zero-terminated"}
	case "wc":
		return []string{"-c", "-l", "-m", "-w", "-L", "--bytes", "--chars", "--lines", "--words", "--max-line-length"}
	case "cut":
		return []string{"-s", "-n", "-z", "--complement", "--only-delimited", "--zero-terminated"}
	case "uniq":
		return []string{"-c", "-d", "-D", "-i", "-u", "-z", "--count", "--repeated", "--ignore-case", "--unique", "--zero-terminated"}
	case "tr":
		return []string{"-c", "-C", "-d", "-s", "-t", "--complement", "--delete", "--squeeze-repeats", "--truncate-set1"}
	}
	return nil
}

// Allows says whether a command needs no entry: a known name, a program in a trusted directory, and
// words that name no file. Whether a file exists is never looked at: the answer would tell.
func (s SafeBins) Allows(argv []string, exec Executable, trusted bool) bool {
	name := baseOf(exec.Real)
	if !trusted || baseOf(exec.Word) != name {
		return false
	}
	if !slices.ContainsFunc(s.Names, func(known string) bool { return strings.ToLower(strings.TrimSpace(known)) == name }) {
		return false
	}
	if neverSafe(name) {
		return false
	}
	profile, ok := s.Profiles[name]
	if !ok {
		if profile, ok = safeBinProfile(name); ok && s.Wide {
			profile.BooleanFlags = append(profile.BooleanFlags, quietFlags(name)...)
		}
	}
	return ok && profile.Accepts(name, argv[1:])
}

// Accepts looks at the shape of a program's arguments.
func (p SafeBinProfile) Accepts(name string, args []string) bool {
	positional := 0
	for i := 0; i < len(args); i++ {
		word := args[i]
		switch {
		case word == "--":
			for _, rest := range args[i+1:] {
				if rest == "-" { // standard input
					continue
				}
				if positional++; !literalToken(rest) {
					return false
				}
			}
			i = len(args)
		case !strings.HasPrefix(word, "-") || word == "-":
			if positional++; !literalToken(word) {
				return false
			}
		default:
			n := p.flag(args[i:])
			if n == 0 {
				return false
			}
			i += n - 1
		}
	}
	if positional < p.MinPositional || p.MaxPositional != nil && positional > *p.MaxPositional {
		return false
	}
	return name != "jq" || harmlessFilter(args)
}

// flag is how many words the flag at args[0] takes, or 0 if it may not stand here.
func (p SafeBinProfile) flag(args []string) int {
	word := args[0]
	if slices.Contains(p.BooleanFlags, word) {
		return 1
	}
	if strings.HasPrefix(word, "--") {
		return p.longFlag(args)
	}
	if strings.Trim(word[1:], "0123456789") == "" {
		if slices.Contains(p.BooleanFlags, "-5") {
			return 1
		}
		return 0
	}
	for j := 1; j < len(word); j++ {
		flag := "-" + word[j:j+1]
		switch {
		case slices.Contains(p.DeniedFlags, flag):
			return 0
		case slices.Contains(p.BooleanFlags, flag):
			continue
		case !slices.Contains(p.AllowedValueFlags, flag):
			return 0
		}
		if value := word[j+1:]; value != "" {
			if !literalToken(value) {
				return 0
			}
			return 1
		}
		return value(args)
	}
	return 1
}

// longFlag takes an abbreviation for the one known flag that begins with it, as getopt does.
// Several, or none, are refused.
func (p SafeBinProfile) longFlag(args []string) int {
	name, inline, hasInline := strings.Cut(args[0], "=")
	full := ""
	for _, list := range [...][]string{p.AllowedValueFlags, p.DeniedFlags, p.BooleanFlags} {
		for _, flag := range list {
			if flag == name {
				full = flag
				break
			}
			if strings.HasPrefix(flag, name) {
				if full != "" && full != flag {
					return 0
				}
				full = flag
			}
		}
		if full == name {
			break
		}
	}
	switch {
	case full == "" || slices.Contains(p.DeniedFlags, full):
		return 0
	case slices.Contains(p.BooleanFlags, full):
		if hasInline {
			return 0
		}
		return 1
	case hasInline:
		if !literalToken(inline) {
			return 0
		}
		return 1
	}
	return value(args)
}

// value is 2 if the next word may be a flag's value. getopt takes it as one whatever it begins
// with; so a flag whose value is optional must not be in AllowedValueFlags: its next word would be
// a file.
func value(args []string) int {
	if len(args) < 2 || args[1] == "" || !literalToken(args[1]) {
		return 0
	}
	return 2
}

// literalToken says that a word is no path and no glob.
func literalToken(word string) bool {
	word = strings.TrimSpace(word)
	switch {
	case strings.ContainsAny(word, "*?[]"):
		return false
	case strings.HasPrefix(word, "/") || strings.HasPrefix(word, "~") || strings.HasPrefix(word, "./") || strings.HasPrefix(word, "../") ||
		word == "." || word == "..":
		return false
	case len(word) > 2 && word[1] == ':' && (word[2] == '/' || word[2] == '\\'):
		return false
	}
	return true
}

// harmlessFilter says that a jq program reads neither the environment nor other files.
func harmlessFilter(args []string) bool {
	for _, arg := range args {
		if strings.Contains(arg, "$ENV") || strings.Contains(arg, "$__prog_args") {
			return false
		}
		for _, word := range [...]string{"env", "import", "include", "input_filename", "modulemeta", "get_search_list"} {
			if hasWord(arg, word) {
				return false
			}
		}
	}
	return true
}

// hasWord says whether a name stands in a program, other than as a field (".env").
func hasWord(text, word string) bool {
	for i := 0; ; {
		j := strings.Index(text[i:], word)
		if j < 0 {
			return false
		}
		j += i
		before := j == 0 || !nameByte(text[j-1]) && text[j-1] != '.' && text[j-1] != '$'
		behind := j+len(word) == len(text) || !nameByte(text[j+len(word)])
		if before && behind {
			return true
		}
		i = j + len(word)
	}
}

func nameByte(c byte) bool {
	return c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9' || c == '_'
}
