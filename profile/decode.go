package profile

import (
	"bytes"
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tailscale/hujson"

	"github.com/clairun/clai-sandbox/profile/text"
)

// A ConfigError is a configuration file that cannot be used, and the place. Its text is one line
// that a terminal may be shown, and never holds the value of a variable.
type ConfigError struct {
	File         string
	Line, Column int    // from 1, the column in bytes; 0 where it is the file as a whole
	Key          string // as in agents.main.execution.sandbox
	Why          string
	Hint         string // what was probably meant; not part of the text

	path           []string // of the object in which a key is unknown
	unknown, meant string   // that key, and the one that it probably is
}

// mendIt is the hint where none is nearer.
const mendIt = "mend it there; clai-sandbox doctor says whether it can be used"

func (e *ConfigError) Error() string {
	place := printable(e.File)
	if e.Line > 0 {
		place += fmt.Sprintf(":%d:%d", e.Line, e.Column)
	}
	if e.Key != "" {
		return place + ": " + e.Key + ": " + e.Why
	}
	return place + ": " + e.Why
}

// located is a value of the configuration that knows where it was written.
type located interface{ setPlace(origin Origin) }

// keyed is a value of a map whose keys are not any text.
type keyed interface{ checkKey(key string) error }

// checked is a number, or a switch, that is not any.
type checked interface{ check() error }

// decoder fills Go values from the syntax tree of a file, and refuses whatever it does not know: a
// word that is misspelled must not turn a protection off. A struct's field that is not omitempty or
// omitzero must be there, and null is never a value. config.schema.json says the same of a file.
type decoder struct {
	file  string
	text  []byte
	lines []int // where each line begins
}

const (
	maxConfigSize  = 1 << 20
	maxConfigDepth = 32
)

// DecodeConfig reads JSON with comments and trailing commas into a struct with json tags. A file
// with nothing but comments says nothing. The error is a *ConfigError.
func DecodeConfig(file string, text []byte, into any) error {
	if len(text) > maxConfigSize {
		return &ConfigError{File: file, Why: fmt.Sprintf("larger than %d bytes", maxConfigSize), Hint: mendIt}
	}
	d := decoder{file, text, []int{0}}
	for i, c := range text {
		if c == '\n' {
			d.lines = append(d.lines, i+1)
		}
	}
	if offset := invalidUTF8(text); offset >= 0 {
		return d.fail(offset, nil, "is not UTF-8")
	}
	if offset := tooDeep(text); offset >= 0 {
		return d.fail(offset, nil, fmt.Sprintf("nested deeper than %d", maxConfigDepth))
	}
	whole := append(slices.Clip(text), '\n') // it may end in a comment without one
	tree, err := hujson.Parse(whole)
	if err != nil {
		if _, err := hujson.Parse(append(whole, "{}"...)); err == nil {
			return nil
		}
		return d.syntaxError(err)
	}
	return d.decode(tree, nil, reflect.ValueOf(into).Elem())
}

// invalidUTF8 returns where the text is not UTF-8, or -1. The parser would put another character
// there, so that a path would be another one.
func invalidUTF8(text []byte) int {
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return -1
}

// tooDeep returns where brackets are nested too deep for a recursive parser, or -1. It steps over
// strings and comments as the parser does: a bracket in them must not make up for one outside.
func tooDeep(text []byte) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '{', '[':
			if depth++; depth > maxConfigDepth {
				return i
			}
		case '}', ']':
			depth--
		case '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case '/':
			end := ""
			switch {
			case bytes.HasPrefix(text[i:], []byte("//")):
				end = "\n"
			case bytes.HasPrefix(text[i:], []byte("/*")):
				end = "*/"
			default:
				continue
			}
			length := bytes.Index(text[i+2:], []byte(end))
			if length < 0 {
				return -1
			}
			i += 2 + length + len(end) - 1
		}
	}
	return -1
}

// syntaxError takes the place out of the parser's message, which says "hujson: line L, column C: ".
// Where the message quotes the file it is put in other words: what stands there may be a secret.
func (d decoder) syntaxError(err error) error {
	place, why, _ := strings.Cut(strings.TrimPrefix(err.Error(), "hujson: "), ": ")
	e := &ConfigError{File: d.file, Why: "syntax error: " + text.Line(why), Hint: mendIt}
	if n, _ := fmt.Sscanf(place, "line %d, column %d", &e.Line, &e.Column); n != 2 {
		return &ConfigError{File: d.file, Why: "syntax error", Hint: mendIt}
	}
	offset := len(d.text)
	if e.Line <= len(d.lines) {
		offset = min(offset, d.lines[e.Line-1]+e.Column-1)
	}
	e.Line, e.Column = d.place(offset)
	switch {
	case strings.HasPrefix(why, "invalid literal") && bytes.HasPrefix(d.text[offset:], []byte{'"'}):
		e.Why = `syntax error: a string stands on one line, and a backslash in it is written \\`
	case strings.HasPrefix(why, "invalid literal"):
		e.Why = "syntax error: neither a number nor true or false; text stands in double quotes"
	case strings.HasSuffix(why, "unexpected EOF"):
		e.Why = "syntax error: the file ends too early"
	}
	return e
}

// place is the line and column of a byte.
func (d decoder) place(offset int) (line, column int) {
	line, found := slices.BinarySearch(d.lines, offset)
	if found {
		line++
	}
	return line, offset - d.lines[line-1] + 1
}

func (d decoder) fail(offset int, path []string, why string) *ConfigError {
	line, column := d.place(min(offset, len(d.text)))
	return &ConfigError{File: d.file, Line: line, Column: column, Key: strings.Join(path, "."), Why: why}
}

func (d decoder) decode(v hujson.Value, path []string, into reflect.Value) error {
	if target, ok := into.Addr().Interface().(located); ok {
		line, _ := d.place(v.StartOffset)
		target.setPlace(Origin{OriginConfig, fmt.Sprintf("%s:%d", printable(d.file), line)})
	}
	if target, ok := into.Addr().Interface().(encoding.TextUnmarshaler); ok {
		text, err := d.stringAt(v, path)
		if err != nil {
			return err
		}
		if err := target.UnmarshalText([]byte(text)); err != nil {
			return d.fail(v.StartOffset, path, err.Error())
		}
		return nil
	}
	switch into.Kind() {
	case reflect.Pointer:
		into.Set(reflect.New(into.Type().Elem()))
		return d.decode(v, path, into.Elem())
	case reflect.Struct:
		return d.decodeStruct(v, path, into)
	case reflect.Map:
		return d.decodeMap(v, path, into)
	case reflect.Slice:
		return d.decodeSlice(v, path, into)
	}
	return d.decodeScalar(v, path, into)
}

func (d decoder) decodeStruct(v hujson.Value, path []string, into reflect.Value) error {
	fields := map[string]int{}
	var names, missing []string
	for i := range into.NumField() {
		name, options, _ := strings.Cut(into.Type().Field(i).Tag.Get("json"), ",")
		if name == "" {
			continue // ours, not the file's
		}
		fields[name] = i
		names = append(names, name)
		if options == "" {
			missing = append(missing, name)
		}
	}
	err := d.members(v, path, func(key string, offset int, value hujson.Value) error {
		field, known := fields[key]
		if !known {
			slices.Sort(names)
			e := d.fail(offset, path, fmt.Sprintf("unknown key %s (known: %s)", shorten(key), strings.Join(names, ", ")))
			if meant := Nearest(key, names); meant != "" {
				e.Hint = fmt.Sprintf("did you mean %q?", meant)
				e.path, e.unknown, e.meant = slices.Clone(path), key, meant
			}
			return e
		}
		missing = slices.DeleteFunc(missing, func(name string) bool { return name == key })
		return d.decode(value, append(path, key), into.Field(field))
	})
	if err == nil && len(missing) > 0 {
		return d.fail(v.StartOffset, path, fmt.Sprintf("key %q is missing", missing[0]))
	}
	return err
}

func (d decoder) decodeMap(v hujson.Value, path []string, into reflect.Value) error {
	into.Set(reflect.MakeMap(into.Type()))
	return d.members(v, path, func(key string, offset int, value hujson.Value) error {
		element := reflect.New(into.Type().Elem()).Elem()
		if target, ok := element.Addr().Interface().(keyed); ok {
			if err := target.checkKey(key); err != nil {
				e := d.fail(offset, path, err.Error())
				if slices.Equal(path, []string{"agents"}) && key == "default" {
					e.path, e.unknown, e.meant = slices.Clone(path), key, DefaultAgent
				}
				return e
			}
		}
		if err := d.decode(value, append(path, key), element); err != nil {
			return err
		}
		into.SetMapIndex(reflect.ValueOf(key), element)
		return nil
	})
}

// members calls use for each member of an object. A key that stands twice is an error: readers
// differ in which one they take.
func (d decoder) members(v hujson.Value, path []string, use func(key string, offset int, value hujson.Value) error) error {
	object, ok := v.Value.(*hujson.Object)
	if !ok {
		return d.fail(v.StartOffset, path, "must be an object")
	}
	seen := map[string]bool{}
	for _, member := range object.Members {
		key, err := d.stringAt(member.Name, path)
		if err != nil {
			return err
		}
		if seen[key] {
			return d.fail(member.Name.StartOffset, path, fmt.Sprintf("key %s stands twice", shorten(key)))
		}
		seen[key] = true
		if err := use(key, member.Name.StartOffset, member.Value); err != nil {
			return err
		}
	}
	return nil
}

func (d decoder) decodeSlice(v hujson.Value, path []string, into reflect.Value) error {
	array, ok := v.Value.(*hujson.Array)
	if !ok {
		return d.fail(v.StartOffset, path, "must be a list")
	}
	list := reflect.MakeSlice(into.Type(), len(array.Elements), len(array.Elements))
	for i, element := range array.Elements {
		if err := d.decode(element, append(path, strconv.Itoa(i)), list.Index(i)); err != nil {
			return err
		}
	}
	into.Set(list)
	return nil
}

func (d decoder) decodeScalar(v hujson.Value, path []string, into reflect.Value) error {
	literal, _ := v.Value.(hujson.Literal) // nil, which is of no kind, for objects and lists
	switch into.Kind() {
	case reflect.String:
		text, err := d.stringAt(v, path)
		if err != nil {
			return err
		}
		into.SetString(text)
	case reflect.Bool:
		switch string(literal) {
		case "true", "false":
			into.SetBool(literal[0] == 't')
		default:
			return d.fail(v.StartOffset, path, "must be true or false")
		}
	case reflect.Int:
		n, err := strconv.ParseInt(string(literal), 10, 32)
		if err != nil || n < 0 {
			return d.fail(v.StartOffset, path, "must be a whole number from 0 to 2147483647, in digits")
		}
		into.SetInt(n)
	default:
		panic("profile: the configuration has a type that the decoder does not know: " + into.Type().String())
	}
	if target, ok := into.Addr().Interface().(checked); ok {
		if err := target.check(); err != nil {
			return d.fail(v.StartOffset, path, err.Error())
		}
	}
	return nil
}

// stringAt is the text of a string. Half of a surrogate pair ("\ud800") is refused: the parser puts
// U+FFFD in its place, so that the text would be another one than was written.
func (d decoder) stringAt(v hujson.Value, path []string) (string, error) {
	literal, ok := v.Value.(hujson.Literal)
	if !ok || literal.Kind() != '"' {
		return "", d.fail(v.StartOffset, path, "must be a string")
	}
	text := literal.String()
	if strings.ContainsRune(text, utf8.RuneError) {
		return "", d.fail(v.StartOffset, path, `holds U+FFFD, or half of a character as "\ud800"`)
	}
	return text, nil
}
