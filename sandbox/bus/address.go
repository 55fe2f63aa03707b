package bus

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// A Address is one way to a D-Bus server, as the D-Bus specification writes it ("Server
// Addresses"): transport:key=value,key=value. Values stand here without their escapes.
type Address struct {
	Transport string
	Keys      map[string]string
}

// What an environment variable may hold is bounded: nobody has more than a few addresses.
const (
	maxAddressText = 8 << 10
	maxAddresses   = 32
)

// ParseAddress reads a list of addresses. It accepts what libdbus does, but for a key that is given
// twice, a transport without a name, and keys that no transport has. Transports that it does not
// know are kept: a later address of the list may do.
func ParseAddress(text string) ([]Address, error) {
	if len(text) > maxAddressText {
		return nil, fmt.Errorf("a D-Bus address of %d bytes: at most %d", len(text), maxAddressText)
	}
	var list []Address
	for entry := range strings.SplitSeq(strings.TrimSuffix(text, ";"), ";") {
		if len(list) == maxAddresses {
			return nil, fmt.Errorf("more than %d D-Bus addresses", maxAddresses)
		}
		address, err := parseEntry(entry)
		if err != nil {
			return nil, fmt.Errorf("D-Bus address %s: %w", strconv.Quote(entry), err)
		}
		list = append(list, address)
	}
	return list, nil
}

func parseEntry(entry string) (Address, error) {
	transport, rest, found := strings.Cut(entry, ":")
	if !found {
		return Address{}, fmt.Errorf("no colon after the transport")
	}
	if !isWord(transport) {
		return Address{}, fmt.Errorf("%q is no name of a transport", transport)
	}
	a := Address{Transport: transport, Keys: map[string]string{}}
	rest = strings.TrimSuffix(rest, ",")
	if rest == "" {
		return a, nil
	}
	for pair := range strings.SplitSeq(rest, ",") {
		key, escaped, _ := strings.Cut(pair, "=")
		if !isWord(key) || escaped == "" {
			return Address{}, fmt.Errorf("%q is not key=value", pair)
		}
		if _, twice := a.Keys[key]; twice {
			return Address{}, fmt.Errorf("the key %s is given twice", key)
		}
		value, err := unescape(escaped)
		if err != nil {
			return Address{}, err
		}
		a.Keys[key] = value
	}
	return a, nil
}

// isWord reports whether text can name a transport or a key.
func isWord(text string) bool {
	for _, c := range []byte(text) {
		if !isAlphanumeric(c) && c != '-' && c != '_' {
			return false
		}
	}
	return text != ""
}

func isAlphanumeric(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// isPlain are the bytes that may stand in a value as themselves. All others are written %XX.
func isPlain(c byte) bool { return isAlphanumeric(c) || strings.IndexByte(`-_/.\*`, c) >= 0 }

func unescape(text string) (string, error) {
	var value strings.Builder
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case isPlain(c):
			value.WriteByte(c)
		case c != '%':
			return "", fmt.Errorf("the byte %q must be written %%%02x", c, c)
		default:
			if i+2 >= len(text) {
				return "", fmt.Errorf("two hexadecimal digits must follow %%")
			}
			b, err := strconv.ParseUint(text[i+1:i+3], 16, 8)
			if err != nil {
				return "", fmt.Errorf("two hexadecimal digits must follow %%, not %q", text[i+1:i+3])
			}
			value.WriteByte(byte(b))
			i += 2
		}
	}
	return value.String(), nil
}

// String is the address as ParseAddress reads it, the keys in the order of their names.
func (a Address) String() string {
	var text strings.Builder
	text.WriteString(a.Transport)
	separator := ":"
	for _, key := range slices.Sorted(maps.Keys(a.Keys)) {
		text.WriteString(separator + key + "=")
		for _, c := range []byte(a.Keys[key]) {
			if isPlain(c) {
				text.WriteByte(c)
			} else {
				fmt.Fprintf(&text, "%%%02x", c)
			}
		}
		separator = ","
	}
	if separator == ":" {
		text.WriteString(":")
	}
	return text.String()
}

// A Server is the unix socket of a bus: a path, or a name among the abstract sockets.
type Server struct {
	Path     string
	Abstract string
}

func (s Server) String() string {
	if s.Path != "" {
		return s.Path
	}
	return "@" + s.Abstract
}

// Server is the unix socket that an address means, or why it means none. Other transports are left
// alone: a session bus on TCP is nobody's alone, and unixexec: and autolaunch: start programs.
func (a Address) Server(runtimeDirectory string) (Server, string) {
	if a.Transport != "unix" {
		return Server{}, "the transport " + a.Transport + " is not used"
	}
	var given []string
	for _, key := range []string{"path", "abstract", "runtime", "dir", "tmpdir"} {
		if _, found := a.Keys[key]; found {
			given = append(given, key)
		}
	}
	if len(given) != 1 {
		return Server{}, "it must have one of path=, abstract= and runtime=yes"
	}
	value := a.Keys[given[0]]
	switch given[0] {
	case "path":
		if !strings.HasPrefix(value, "/") || strings.IndexByte(value, 0) >= 0 {
			return Server{}, "its path is not absolute"
		}
		return Server{Path: value}, ""
	case "abstract":
		return Server{Abstract: value}, ""
	case "runtime":
		if value != "yes" {
			return Server{}, "runtime= can only be yes"
		}
		if !strings.HasPrefix(runtimeDirectory, "/") {
			return Server{}, "XDG_RUNTIME_DIR is not set"
		}
		return Server{Path: RuntimePath(runtimeDirectory)}, ""
	}
	return Server{}, given[0] + "= is for a server to listen at"
}

// RuntimePath is where the bus of a session stands by convention.
func RuntimePath(runtimeDirectory string) string {
	return strings.TrimRight(runtimeDirectory, "/") + "/bus"
}
