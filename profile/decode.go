package profile

import (
	"bytes"
	"encoding"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/tailscale/hujson"
)

// A ConfigError is a configuration file that cannot be used, and the place.
type ConfigError struct {
	File         string
	Line, Column int    // from 1; 0 where it is the file as a whole
	Key          string // as in agents.main.execution.sandbox
	Why          string
}

func (e *ConfigError) Error() string {
	place := e.File
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

// decoder fills Go values from the syntax tree of a file, and refuses whatever it does not know: a word that is
// misspelled must not turn a protection off.
type decoder struct {
	file string
	text []byte
}

const (
	maxConfigSize  = 1 << 20
	maxConfigDepth = 32
)

// decodeConfig reads JSON with comments and trailing commas into a struct with json tags.
func decodeConfig(file string, text []byte, into any) error {
	d := decoder{file, text}
	if len(text) > maxConfigSize {
		return &ConfigError{File: file, Why: fmt.Sprintf("larger than %d bytes", maxConfigSize)}
	}
	if offset := tooDeep(text); offset >= 0 {
		return d.fail(offset, nil, fmt.Sprintf("nested deeper than %d", maxConfigDepth))
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return nil
	}
	tree, err := hujson.Parse(text)
	if err != nil {
		return d.syntaxError(err)
	}
	return d.decode(tree, nil, reflect.ValueOf(into).Elem())
}

// tooDeep returns where brackets are nested too deep for a recursive parser, or -1. Brackets in comments and strings
// count as well; no real file has that many.
func tooDeep(text []byte) int {
	depth := 0
	for i, c := range text {
		switch c {
		case '{', '[':
			if depth++; depth > maxConfigDepth {
				return i
			}
		case '}', ']':
			depth = max(depth-1, 0)
		}
	}
	return -1
}

// syntaxError takes the place out of the parser's message, which says "line L, column C".
func (d decoder) syntaxError(err error) error {
	e := &ConfigError{File: d.file, Why: strings.TrimPrefix(err.Error(), "hujson: ")}
	var line, column int
	if n, _ := fmt.Sscanf(e.Why, "line %d, column %d:", &line, &column); n == 2 {
		_, why, _ := strings.Cut(e.Why, ": ")
		e.Line, e.Column, e.Why = line, column, "syntax error: "+why
	}
	e.Why = strings.Map(func(r rune) rune { // it quotes the file
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, e.Why[:min(len(e.Why), 300)])
	return e
}

func (d decoder) fail(offset int, path []string, why string) error {
	before := d.text[:min(offset, len(d.text))]
	return &ConfigError{File: d.file, Line: 1 + bytes.Count(before, []byte("\n")),
		Column: 1 + len(before) - (bytes.LastIndexByte(before, '\n') + 1), Key: strings.Join(path, "."), Why: why}
}

func (d decoder) decode(v hujson.Value, path []string, into reflect.Value) error {
	if target, ok := into.Addr().Interface().(located); ok {
		line := 1 + bytes.Count(d.text[:v.StartOffset], []byte("\n"))
		target.setPlace(Origin{OriginConfig, fmt.Sprintf("%s:%d", d.file, line)})
	}
	if target, ok := into.Addr().Interface().(encoding.TextUnmarshaler); ok {
		text, isString := stringOf(v)
		if !isString {
			return d.fail(v.StartOffset, path, "must be a string")
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
	for i := range into.NumField() {
		if name, _, _ := strings.Cut(into.Type().Field(i).Tag.Get("json"), ","); name != "" && name != "-" {
			fields[name] = i
		}
	}
	return d.members(v, path, func(key string, offset int, value hujson.Value) error {
		field, known := fields[key]
		if !known {
			names := slices.Sorted(maps.Keys(fields))
			return d.fail(offset, path, fmt.Sprintf("unknown key %s (known: %s)", shorten(key), strings.Join(names, ", ")))
		}
		return d.decode(value, append(path, key), into.Field(field))
	})
}

func (d decoder) decodeMap(v hujson.Value, path []string, into reflect.Value) error {
	into.Set(reflect.MakeMap(into.Type()))
	return d.members(v, path, func(key string, _ int, value hujson.Value) error {
		element := reflect.New(into.Type().Elem()).Elem()
		if err := d.decode(value, append(path, key), element); err != nil {
			return err
		}
		into.SetMapIndex(reflect.ValueOf(key), element)
		return nil
	})
}

// members calls use for each member of an object. A key that stands twice is an error: readers differ in which one they
// take.
func (d decoder) members(v hujson.Value, path []string, use func(key string, offset int, value hujson.Value) error) error {
	object, ok := v.Value.(*hujson.Object)
	if !ok {
		return d.fail(v.StartOffset, path, "must be an object")
	}
	seen := map[string]bool{}
	path = slices.Clip(path)
	for _, member := range object.Members {
		key, _ := stringOf(member.Name)
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
		if err := d.decode(element, append(slices.Clip(path), strconv.Itoa(i)), list.Index(i)); err != nil {
			return err
		}
	}
	into.Set(list)
	return nil
}

func (d decoder) decodeScalar(v hujson.Value, path []string, into reflect.Value) error {
	literal, _ := v.Value.(hujson.Literal)
	switch into.Kind() {
	case reflect.String:
		text, ok := stringOf(v)
		if !ok {
			return d.fail(v.StartOffset, path, "must be a string")
		}
		into.SetString(text)
	case reflect.Bool:
		if literal.Kind() != 't' && literal.Kind() != 'f' {
			return d.fail(v.StartOffset, path, "must be true or false")
		}
		into.SetBool(literal.Bool())
	case reflect.Int:
		n, err := strconv.ParseInt(string(literal), 10, 32)
		if err != nil || n < 0 {
			return d.fail(v.StartOffset, path, "must be a whole number from 0 to 2147483647")
		}
		into.SetInt(n)
	default:
		panic("profile: the configuration has a type that the decoder does not know: " + into.Type().String())
	}
	return nil
}

func stringOf(v hujson.Value) (string, bool) {
	literal, ok := v.Value.(hujson.Literal)
	if !ok || literal.Kind() != '"' {
		return "", false
	}
	return literal.String(), true
}
