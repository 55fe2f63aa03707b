package files

import (
	"bytes"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	maxGlobbed = 1000 // paths in one result
	maxPattern = 4096 // bytes
)

// Glob asks which files have a name that fits.
type Glob struct {
	Pattern    string `json:"pattern" jsonschema:"* is any text in a name, ** any directories, ? a letter, [a-z] one of them, {a,b} one of several; below path unless it is absolute"`
	Path       string `json:"path,omitempty" jsonschema:"the directory to look in; the working directory if absent"`
	SortBy     string `json:"sortBy,omitempty" jsonschema:"name (the default) or modified, the last first"`
	MaxResults int    `json:"maxResults,omitempty" jsonschema:"at most that many; 1000 if absent, and at most"`
}

// A GlobResult lists files.
type GlobResult struct {
	Path      string    `json:"path" jsonschema:"the directory that was looked in, absolute"`
	Files     []Globbed `json:"files" jsonschema:"what fits"`
	Total     int       `json:"total" jsonschema:"how many fit, as far as it was looked"`
	Truncated bool      `json:"truncated" jsonschema:"whether there may be more than are listed"`
}

// Globbed is a file, directory or link whose path fits.
type Globbed struct {
	Path     string    `json:"path" jsonschema:"absolute; bytes that are not UTF-8 come out as U+FFFD"`
	Kind     string    `json:"kind" jsonschema:"file, directory, symlink or other"`
	Size     int64     `json:"size" jsonschema:"of a file: its size in bytes"`
	Modified time.Time `json:"modified" jsonschema:"when it was last changed"`
}

func (t tools) glob(g Glob) (*GlobResult, error) {
	if g.MaxResults < 0 || g.SortBy != "" && g.SortBy != "name" && g.SortBy != "modified" {
		return nil, invalid("", "sortBy is name or modified, and maxResults is not negative")
	}
	if g.MaxResults == 0 || g.MaxResults > maxGlobbed {
		g.MaxResults = maxGlobbed
	}
	root, err := absolute(t.cwd, cmpOr(g.Path, "."))
	if err != nil {
		return nil, err
	}
	root, pattern, err := base(root, g.Pattern)
	if err != nil {
		return nil, err
	}
	fits, err := compileGlob(pattern)
	if err != nil {
		return nil, err
	}
	result := &GlobResult{Path: root, Files: []Globbed{}}
	walk := walk{tools: t, root: root, inGit: strings.Contains("/"+pattern, "/.git")}
	err = walk.each(func(f found) {
		if fits.MatchString(f.below) {
			info, err := f.entry.Info()
			if err != nil {
				return // gone
			}
			result.Files = append(result.Files, Globbed{Path: strings.ToValidUTF8(f.path, "\uFFFD"), Kind: kindOf(info.Mode()), Size: info.Size(), Modified: info.ModTime()})
		}
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(result.Files, func(a, b Globbed) int {
		if c := b.Modified.Compare(a.Modified); c != 0 && g.SortBy == "modified" {
			return c
		}
		return strings.Compare(a.Path, b.Path)
	})
	result.Total = len(result.Files)
	result.Truncated = walk.cut || result.Total > g.MaxResults
	result.Files = result.Files[:min(result.Total, g.MaxResults)]
	return result, nil
}

func cmpOr(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

// base moves the directories at a pattern's beginning that are plain names to the root.
func base(root, pattern string) (string, string, error) {
	if pattern == "" || len(pattern) > maxPattern || strings.ContainsRune(pattern, 0) || !utf8.ValidString(pattern) {
		return "", "", invalid("", fmt.Sprintf("a pattern is UTF-8 text of 1 to %d bytes without NUL", maxPattern))
	}
	if filepath.IsAbs(pattern) {
		root, pattern = "/", strings.TrimLeft(pattern, "/")
	}
	for {
		first, rest, more := strings.Cut(pattern, "/")
		if !more || strings.ContainsAny(first, `*?[]{}\`) {
			break
		}
		root, pattern = filepath.Join(root, first), strings.TrimLeft(rest, "/")
	}
	if pattern == ".." || strings.HasPrefix(pattern, "../") || strings.Contains(pattern, "/../") || strings.HasSuffix(pattern, "/..") {
		return "", "", invalid("", "a pattern has .. only at its beginning")
	}
	return root, cmpOr(strings.TrimSuffix(strings.TrimPrefix(pattern, "./"), "/"), "*"), nil
}

// compileGlob makes a regular expression of a pattern, whose time is linear in the path's length
// whatever the pattern: most matchers of globs try every way to divide a path among many stars.
func compileGlob(pattern string) (*regexp.Regexp, error) {
	var b bytes.Buffer
	b.WriteString(`^(?s:`)
	depth := 0
	for i := 0; i < len(pattern); i++ {
		c := pattern[i]
		first := i == 0 || pattern[i-1] == '/' || pattern[i-1] == '{' || pattern[i-1] == ','
		switch {
		case strings.HasPrefix(pattern[i:], "**/") && first:
			b.WriteString(`(?:[^/]+/)*`)
			i += 2
		case pattern[i:] == "**" && first:
			b.WriteString(`.+`)
			i++
		case c == '*':
			b.WriteString(`[^/]*`)
			for i+1 < len(pattern) && pattern[i+1] == '*' {
				i++
			}
		case c == '?':
			b.WriteString(`[^/]`)
		case c == '[':
			n, class, err := classOf(pattern[i:])
			if err != nil {
				return nil, err
			}
			b.WriteString(class)
			i += n - 1
		case c == '{':
			b.WriteString(`(?:`)
			depth++
		case c == '}' && depth > 0:
			b.WriteString(`)`)
			depth--
		case c == ',' && depth > 0:
			b.WriteString(`|`)
		case c == '\\' && i+1 < len(pattern):
			i++
			fallthrough
		default:
			_, size := utf8.DecodeRuneInString(pattern[i:])
			b.WriteString(regexp.QuoteMeta(pattern[i : i+size]))
			i += size - 1
		}
	}
	b.WriteString(`)$`)
	if depth > 0 {
		return nil, invalid("", `the pattern has a { without its }; \{ is the letter`)
	}
	fits, err := regexp.Compile(b.String())
	if err != nil {
		return nil, invalid("", "the pattern: "+err.Error())
	}
	return fits, nil
}

// classOf reads [abc], [a-z], [!a-z] or [^a-z] at the beginning of a pattern. It never stands for a
// slash.
func classOf(pattern string) (length int, class string, err error) {
	i, negated := 1, false
	if i < len(pattern) && (pattern[i] == '!' || pattern[i] == '^') {
		i, negated = i+1, true
	}
	var b strings.Builder
	for start := i; i < len(pattern) && (pattern[i] != ']' || i == start); {
		if pattern[i] == '\\' && i+1 < len(pattern) {
			i++
		} else if pattern[i] == '-' && i > start && i+1 < len(pattern) && pattern[i+1] != ']' {
			b.WriteByte('-')
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(pattern[i:])
		if r == '/' {
			return 0, "", invalid("", "the pattern has a / between brackets")
		}
		if strings.ContainsRune(`\]^-[&~`, r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
		i += size
	}
	if i >= len(pattern) {
		return 0, "", invalid("", `the pattern has a [ without its ]; \[ is the letter`)
	}
	if negated {
		return i + 1, "[^/" + b.String() + "]", nil
	}
	return i + 1, "[" + b.String() + "]", nil
}
