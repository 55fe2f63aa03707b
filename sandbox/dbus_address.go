package sandbox

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// A BusAddress is one way to a D-Bus server, as the D-Bus specification writes it ("Server Addresses"):
// transport:key=value,key=value. Values stand here without their escapes.
type BusAddress struct {
	Transport string
	Keys      map[string]string
}

// What an environment variable may hold is bounded: nobody has more than a few addresses.
const (
	maxBusAddressText = 8 << 10
	maxBusAddresses   = 32
)

// ParseBusAddress reads a list of addresses. It accepts what libdbus does, but for a key that is given twice, a
// transport without a name, and keys that no transport has. Transports that it does not know are kept: a later
// address of the list may do.
func ParseBusAddress(text string) ([]BusAddress, error) {
	if len(text) > maxBusAddressText {
		return nil, fmt.Errorf("a D-Bus address of %d bytes: at most %d", len(text), maxBusAddressText)
	}
	var list []BusAddress
	for entry := range strings.SplitSeq(strings.TrimSuffix(text, ";"), ";") {
		if len(list) == maxBusAddresses {
			return nil, fmt.Errorf("more than %d D-Bus addresses", maxBusAddresses)
		}
		address, err := parseBusEntry(entry)
		if err != nil {
			return nil, fmt.Errorf("D-Bus address %s: %w", strconv.Quote(entry), err)
		}
		list = append(list, address)
	}
	return list, nil
}

func parseBusEntry(entry string) (BusAddress, error) {
	transport, rest, found := strings.Cut(entry, ":")
	if !found {
		return BusAddress{}, fmt.Errorf("no colon after the transport")
	}
	if !isBusWord(transport) {
		return BusAddress{}, fmt.Errorf("%q is no name of a transport", transport)
	}
	a := BusAddress{Transport: transport, Keys: map[string]string{}}
	rest = strings.TrimSuffix(rest, ",")
	if rest == "" {
		return a, nil
	}
	for pair := range strings.SplitSeq(rest, ",") {
		key, escaped, _ := strings.Cut(pair, "=")
		if !isBusWord(key) || escaped == "" {
			return BusAddress{}, fmt.Errorf("%q is not key=value", pair)
		}
		if _, twice := a.Keys[key]; twice {
			return BusAddress{}, fmt.Errorf("the key %s is given twice", key)
		}
		value, err := unescapeBusValue(escaped)
		if err != nil {
			return BusAddress{}, err
		}
		a.Keys[key] = value
	}
	return a, nil
}

// isBusWord reports whether text can name a transport or a key.
func isBusWord(text string) bool {
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

// isBusPlain are the bytes that may stand in a value as themselves. All others are written %XX.
func isBusPlain(c byte) bool { return isAlphanumeric(c) || strings.IndexByte(`-_/.\*`, c) >= 0 }

func unescapeBusValue(text string) (string, error) {
	var value strings.Builder
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case isBusPlain(c):
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

// String is the address as ParseBusAddress reads it, the keys in the order of their names.
func (a BusAddress) String() string {
	var text strings.Builder
	text.WriteString(a.Transport)
	separator := ":"
	for _, key := range slices.Sorted(maps.Keys(a.Keys)) {
		text.WriteString(separator + key + "=")
		for _, c := range []byte(a.Keys[key]) {
			if isBusPlain(c) {
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

// A BusServer is the unix socket of a bus: a path, or a name among the abstract sockets.
type BusServer struct {
	Path     string
	Abstract string
}

func (s BusServer) String() string {
	if s.Path != "" {
		return s.Path
	}
	return "@" + s.Abstract
}

// server is the unix socket that an address means, or why it means none. Other transports are left alone: a session bus
// on TCP is nobody's alone, and unixexec: and autolaunch: start programs.
func (a BusAddress) server(runtimeDirectory string) (BusServer, string) {
	if a.Transport != "unix" {
		return BusServer{}, "the transport " + a.Transport + " is not used"
	}
	var given []string
	for _, key := range []string{"path", "abstract", "runtime", "dir", "tmpdir"} {
		if _, found := a.Keys[key]; found {
			given = append(given, key)
		}
	}
	if len(given) != 1 {
		return BusServer{}, "it must have one of path=, abstract= and runtime=yes"
	}
	value := a.Keys[given[0]]
	switch given[0] {
	case "path":
		if !strings.HasPrefix(value, "/") || strings.IndexByte(value, 0) >= 0 {
			return BusServer{}, "its path is not absolute"
		}
		return BusServer{Path: value}, ""
	case "abstract":
		return BusServer{Abstract: value}, ""
	case "runtime":
		if value != "yes" {
			return BusServer{}, "runtime= can only be yes"
		}
		if !strings.HasPrefix(runtimeDirectory, "/") {
			return BusServer{}, "XDG_RUNTIME_DIR is not set"
		}
		return BusServer{Path: runtimeBus(runtimeDirectory)}, ""
	}
	return BusServer{}, given[0] + "= is for a server to listen at"
}

// runtimeBus is where the bus of a session stands by convention.
func runtimeBus(runtimeDirectory string) string {
	return strings.TrimRight(runtimeDirectory, "/") + "/bus"
}
