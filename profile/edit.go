package profile

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tailscale/hujson"
	"golang.org/x/sys/unix"
)

// A ConfigText is the person's configuration file as it stands.
type ConfigText struct {
	Path   string
	Exists bool
	Hash   string // hex SHA-256 of the text
	Text   []byte
}

// ErrStale means that the file is not any more what a change was made from.
var ErrStale = errors.New("the configuration has changed since; get it again")

func configText(path string, exists bool, text []byte) ConfigText {
	sum := sha256.Sum256(text)
	return ConfigText{path, exists, hex.EncodeToString(sum[:]), text}
}

// ReadConfigText reads the person's file. One through a symbolic link is refused: it is written
// here, and what it leads to may be where commands write.
func ReadConfigText(d Directories) (ConfigText, error) {
	e, err := openEditor(d, false)
	if e == nil || err != nil {
		return configText(filepath.Join(d.Config, configName), false, nil), err
	}
	defer e.close()
	return e.read()
}

// ChangeConfig puts what change makes of the person's file in its place, whole, if it is a
// configuration. base is the hash of the text that the change was made from; empty: whatever is
// there. The error is ErrStale, a *ConfigError, or that of change.
func ChangeConfig(d Directories, base string, change func(text []byte) ([]byte, error)) (ConfigText, error) {
	e, err := openEditor(d, true)
	if err != nil {
		return ConfigText{}, err
	}
	defer e.close()
	was, err := e.read()
	if err != nil {
		return was, err
	}
	if base != "" && subtle.ConstantTimeCompare([]byte(strings.ToLower(base)), []byte(was.Hash)) != 1 {
		return was, ErrStale
	}
	text, err := change(bytes.Clone(was.Text))
	if err != nil || was.Exists && bytes.Equal(text, was.Text) {
		return was, err
	}
	if err := DecodeConfig(e.path(), text, &configFile{}); err != nil {
		return was, err
	}
	return configText(e.path(), true, text), e.replace(was, text)
}

// An editor has the directory of the file open, and nobody else edits meanwhile.
type editor struct {
	dir       string
	fd, lock  int
	temporary string
}

const lockTimeout = 10 * time.Second

// openEditor opens the directory. To read, one that is not there is none.
func openEditor(d Directories, write bool) (*editor, error) {
	if d.Config == "" {
		return nil, errors.New("there is no configuration directory")
	}
	e := &editor{dir: d.Config, lock: -1, temporary: fmt.Sprintf(".%s.%d", configName, os.Getpid())}
	refuse := func(why string) (*editor, error) { return nil, &ConfigError{File: e.path(), Why: why} }
	if write {
		if err := os.MkdirAll(d.Config, 0o700); err != nil {
			return refuse(withoutPath(err))
		}
	}
	var err error
	e.fd, err = unix.Openat2(unix.AT_FDCWD, d.Config, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	switch {
	case err == unix.ENOENT && !write:
		return nil, nil
	case err == unix.ELOOP:
		return refuse("a symbolic link leads there; change the file that it leads to by hand")
	case err != nil:
		return refuse(err.Error())
	}
	var is unix.Stat_t
	if err = unix.Fstat(e.fd, &is); err == nil && (int(is.Uid) != os.Geteuid() || is.Mode&0o022 != 0) {
		err = errors.New("others can write its directory")
	}
	if err == nil && write {
		err = e.takeLock()
	}
	if err != nil {
		e.close()
		return refuse(err.Error())
	}
	return e, nil
}

func (e *editor) takeLock() (err error) {
	if e.lock, err = unix.Openat(e.fd, ".config.lock", unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600); err != nil {
		return err
	}
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		if err = unix.Flock(e.lock, unix.LOCK_EX|unix.LOCK_NB); err != unix.EWOULDBLOCK || time.Since(began) > lockTimeout {
			return err
		}
	}
}

func (e *editor) close() {
	unix.Close(e.fd)
	if e.lock >= 0 {
		unix.Close(e.lock)
	}
}

func (e *editor) path() string { return filepath.Join(e.dir, configName) }

func (e *editor) read() (ConfigText, error) {
	none := configText(e.path(), false, nil)
	refuse := func(why string) (ConfigText, error) { return none, &ConfigError{File: e.path(), Why: why} }
	fd, err := unix.Openat(e.fd, configName, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	switch err {
	case nil:
	case unix.ENOENT:
		return none, nil
	case unix.ELOOP:
		return refuse("a symbolic link; change the file that it leads to by hand")
	default:
		return refuse(err.Error())
	}
	file := os.NewFile(uintptr(fd), configName)
	defer file.Close()
	var is unix.Stat_t
	if err := unix.Fstat(fd, &is); err != nil {
		return refuse(err.Error())
	}
	switch {
	case is.Mode&unix.S_IFMT != unix.S_IFREG:
		return refuse("not a regular file")
	case int(is.Uid) != os.Geteuid():
		return refuse("belongs to another user")
	case is.Nlink > 1:
		return refuse("has another name as well, by which something else could write it; copy it, and put the copy in its place")
	case is.Mode&0o022 != 0:
		return refuse(fmt.Sprintf("others can write it; take that away: chmod go-w %s", printable(e.path())))
	}
	text, err := io.ReadAll(io.LimitReader(file, maxConfigSize+1))
	if err != nil {
		return refuse(err.Error())
	}
	return configText(e.path(), true, text), nil
}

// replace puts a new text in the file's place, unless somebody has changed the file meanwhile.
func (e *editor) replace(was ConfigText, text []byte) error {
	mode := uint32(0o600)
	var is unix.Stat_t
	if unix.Fstatat(e.fd, configName, &is, unix.AT_SYMLINK_NOFOLLOW) == nil {
		mode = is.Mode & 0o755
	}
	_ = unix.Unlinkat(e.fd, e.temporary, 0) // of a killed process with our number
	fd, err := unix.Openat(e.fd, e.temporary, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("write %s: %w", printable(e.path()), err)
	}
	file := os.NewFile(uintptr(fd), e.temporary)
	_, err = file.Write(text)
	err = errors.Join(err, unix.Fchmod(fd, mode), file.Sync(), file.Close())
	if err == nil {
		var now ConfigText
		if now, err = e.read(); err == nil && (now.Exists != was.Exists || now.Hash != was.Hash) {
			err = ErrStale
		}
	}
	if err == nil {
		err = unix.Renameat(e.fd, e.temporary, e.fd, configName)
	}
	if err != nil {
		_ = unix.Unlinkat(e.fd, e.temporary, 0)
		return fmt.Errorf("write %s: %w", printable(e.path()), err)
	}
	return unix.Fsync(e.fd)
}

// Check reports what is wrong with a text as a configuration.
func (t ConfigText) Check() error { return DecodeConfig(t.Path, t.Text, &configFile{}) }

// Value is what the text has at a key, as JSON without comments; nil if it has nothing there.
func (t ConfigText) Value(key []string) ([]byte, error) {
	tree, err := parseTree(t.Path, t.Text)
	if err != nil {
		return nil, err
	}
	at := &tree
	for _, name := range key {
		object, is := at.Value.(*hujson.Object)
		if !is {
			return nil, nil
		}
		i := memberAt(object, name)
		if i < 0 {
			return nil, nil
		}
		at = &object.Members[i].Value
	}
	found := at.Clone()
	found.Minimize()
	return found.Pack(), nil
}

// SplitKey takes a key apart, as in agents.main.execution.sandbox. A part with other characters is
// written ["a.b"].
func SplitKey(text string) ([]string, error) {
	var key []string
	refuse := fmt.Errorf(`key %s: write it as agents.main.execution.sandbox, and a part with a dot in it as agents["a.b"].execution`, shorten(text))
	for rest := text; ; {
		if strings.HasPrefix(rest, "[") {
			decoder := json.NewDecoder(strings.NewReader(rest[1:]))
			var name string
			if err := decoder.Decode(&name); err != nil {
				return nil, refuse
			}
			after, ok := strings.CutPrefix(rest[1+decoder.InputOffset():], "]")
			if !ok {
				return nil, refuse
			}
			key, rest = append(key, name), after
		} else {
			end := strings.IndexAny(rest, ".[")
			if end < 0 {
				end = len(rest)
			}
			if end == 0 {
				return nil, refuse
			}
			key, rest = append(key, rest[:end]), rest[end:]
		}
		switch {
		case rest == "":
			return key, nil
		case rest[0] == '.' && len(rest) > 1 && rest[1] != '[':
			rest = rest[1:]
		case rest[0] != '[':
			return nil, refuse
		}
	}
}

// Nested is a merge patch that sets one key to a value, which is JSON.
func Nested(key []string, value []byte) []byte {
	for i := len(key) - 1; i >= 0; i-- {
		name, _ := json.Marshal(key[i]) // text always can
		value = append(append(append(append([]byte("{"), name...), ':'), value...), '}')
	}
	return value
}

// MergeConfig applies a merge patch (RFC 7396) to a text: members that are null go, objects are
// merged, all else is put in place. What the patch does not name stays as it is written, with its
// comments.
func MergeConfig(file string, text, patch []byte) ([]byte, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		text = []byte("{\n}\n")
	}
	tree, err := parseTree(file, text)
	if err != nil {
		return nil, err
	}
	change, err := parseTree("the change", patch)
	if err != nil {
		return nil, err
	}
	into, isObject := tree.Value.(*hujson.Object)
	from, ok := change.Value.(*hujson.Object)
	if !isObject || !ok {
		return nil, errors.New("a configuration and a change of it are objects")
	}
	if err := mergeObject(into, from, 1); err != nil {
		return nil, err
	}
	return tree.Pack(), nil
}

// PlainJSON is a text that may hold comments and trailing commas, without them.
func PlainJSON(file string, text []byte) ([]byte, error) {
	tree, err := parseTree(file, bytes.Clone(text)) // what is parsed is changed in place
	if err != nil {
		return nil, err
	}
	tree.Standardize()
	return tree.Pack(), nil
}

// parseTree parses text as the decoder does, within its bounds.
func parseTree(file string, text []byte) (hujson.Value, error) {
	d := decoder{file, text, []int{0}}
	for i, c := range text {
		if c == '\n' {
			d.lines = append(d.lines, i+1)
		}
	}
	switch {
	case len(text) > maxConfigSize:
		return hujson.Value{}, &ConfigError{File: file, Why: fmt.Sprintf("larger than %d bytes", maxConfigSize), Hint: mendIt}
	case invalidUTF8(text) >= 0:
		return hujson.Value{}, d.fail(invalidUTF8(text), nil, "is not UTF-8")
	case tooDeep(text) >= 0:
		return hujson.Value{}, d.fail(tooDeep(text), nil, fmt.Sprintf("nested deeper than %d", maxConfigDepth))
	}
	if !bytes.HasSuffix(text, []byte("\n")) { // it may end in a comment without one
		text = append(bytes.Clone(text), '\n')
	}
	tree, err := hujson.Parse(text)
	if err != nil {
		if with, err := hujson.Parse(append(bytes.Clone(text), "{\n}\n"...)); err == nil { // nothing but comments
			return with, nil
		}
		return tree, d.syntaxError(err)
	}
	return tree, nil
}

func memberAt(object *hujson.Object, name string) int {
	for i := range object.Members {
		if literal, is := object.Members[i].Name.Value.(hujson.Literal); is && literal.String() == name {
			return i
		}
	}
	return -1
}

func mergeObject(into, from *hujson.Object, depth int) error {
	seen := map[string]bool{}
	for _, member := range from.Members {
		name := member.Name.Value.(hujson.Literal).String()
		if seen[name] {
			return fmt.Errorf("key %s stands twice in the change", shorten(name))
		}
		seen[name] = true
		at := memberAt(into, name)
		literal, _ := member.Value.Value.(hujson.Literal)
		below, isObject := member.Value.Value.(*hujson.Object)
		switch {
		case string(literal) == "null":
			removeMember(into, at)
			continue
		case at < 0:
			at = addMember(into, name, depth)
		}
		value := &into.Members[at].Value
		old, wasObject := value.Value.(*hujson.Object)
		if !isObject {
			value.Value = asWritten(member.Value, depth)
			continue
		}
		if !wasObject {
			old = &hujson.Object{}
			value.Value = old
		}
		if err := mergeObject(old, below, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// asWritten is a value of a change as it is written into the file: without its comments, a line for
// each member.
func asWritten(value hujson.Value, depth int) hujson.ValueTrimmed {
	value = value.Clone()
	value.Minimize()
	var text bytes.Buffer
	if json.Indent(&text, value.Pack(), strings.Repeat("  ", depth), "  ") == nil && text.Len() > 100 {
		if whole, err := hujson.Parse(text.Bytes()); err == nil {
			return whole.Value
		}
	}
	return value.Value
}

// addMember adds a member behind the others, on a line of its own where they have such, and returns
// where it is. Its value is null.
func addMember(object *hujson.Object, name string, depth int) int {
	last := len(object.Members) - 1
	trailing := last >= 0 && object.Members[last].Value.AfterExtra != nil // there is a comma behind the last
	comments := bytes.TrimRight(object.AfterExtra, " \t\r\n")
	closing := bytes.Clone(object.AfterExtra[len(comments):])
	before := "\n" + strings.Repeat("  ", depth)
	if last >= 0 {
		first := string(object.Members[last].Name.BeforeExtra)
		if line := strings.LastIndexByte(first, '\n'); line >= 0 {
			before = "\n" + leadingSpace(first[line+1:])
		} else if !bytes.Contains(closing, []byte("\n")) && len(comments) == 0 {
			before = " "
		}
	}
	if last < 0 && !bytes.Contains(closing, []byte("\n")) {
		closing = []byte("\n" + strings.Repeat("  ", depth-1))
	}
	member := hujson.ObjectMember{Name: hujson.Value{BeforeExtra: append(bytes.Clone(comments), before...), Value: hujson.String(name)},
		Value: hujson.Value{BeforeExtra: hujson.Extra(" "), Value: hujson.Literal("null")}}
	if trailing {
		member.Value.AfterExtra = hujson.Extra{}
	}
	object.Members, object.AfterExtra = append(object.Members, member), closing
	return last + 1
}

func leadingSpace(text string) string { return text[:len(text)-len(strings.TrimLeft(text, " \t"))] }

// removeMember removes a member with the comments above it, if there is one. A comment behind the
// one before, on its line, stays.
func removeMember(object *hujson.Object, at int) {
	if at < 0 {
		return
	}
	last := len(object.Members) - 1
	comma := object.Members[last].Value.AfterExtra != nil
	behind, _, isLine := bytes.Cut(object.Members[at].Name.BeforeExtra, []byte("\n"))
	object.Members = append(object.Members[:at:at], object.Members[at+1:]...)
	last--
	if at > last && last >= 0 {
		if before := &object.Members[last].Value; comma && before.AfterExtra == nil {
			before.AfterExtra = hujson.Extra{}
		} else if !comma && len(before.AfterExtra) == 0 {
			before.AfterExtra = nil
		}
	}
	next := &object.AfterExtra
	if at <= last {
		next = &object.Members[at].Name.BeforeExtra
	}
	if isLine && len(bytes.TrimSpace(behind)) > 0 {
		if !bytes.HasPrefix(bytes.TrimLeft(*next, " \t"), []byte("\n")) {
			behind = append(bytes.Clone(behind), '\n')
		}
		*next = append(bytes.Clone(behind), *next...)
	}
}
