package policy

import (
	"fmt"
	"strings"
)

// A Node is another machine that commands may be sent to, as the gateway knows it.
type Node struct {
	ID          string
	DisplayName string
	RemoteIP    string
	Connected   bool
}

// A NodeError says why a reference means no node.
type NodeError struct {
	Query string
	Among []Node // those that it may mean; with none, those that there are are in Known
	Known []Node
}

func (e *NodeError) Error() string {
	switch {
	case e.Query == "":
		return "node required"
	case len(e.Among) > 0:
		return fmt.Sprintf("ambiguous node: %s (matches: %s)", DisplayText(e.Query), nodeNames(e.Among, true))
	case len(e.Known) > 0:
		return fmt.Sprintf("unknown node: %s (known: %s)", DisplayText(e.Query), nodeNames(e.Known, false))
	}
	return "unknown node: " + DisplayText(e.Query)
}

func nodeNames(nodes []Node, ids bool) string {
	var names []string
	for _, n := range nodes {
		name := n.DisplayName
		if name == "" {
			name = n.RemoteIP
		}
		if name == "" {
			name = n.ID
		}
		if name = DisplayText(name); ids {
			name += " [node=" + DisplayText(n.ID) + "]"
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

// leastPrefix is how much of a node's id must be given.
const leastPrefix = 6

// findNode resolves a reference: the exact id, then the display name, then the remote address, then
// the beginning of an id. A name comes before an address: a node chooses neither, but an address
// changes hands. Among equals the connected one is meant.
func findNode(nodes []Node, query string) (string, error) {
	query = strings.TrimSpace(query)
	if query == "" {
		return "", &NodeError{}
	}
	name := nodeName(query)
	for _, means := range [...]func(Node) bool{
		func(n Node) bool { return n.ID == query },
		func(n Node) bool { return name != "" && nodeName(n.DisplayName) == name },
		func(n Node) bool { return n.RemoteIP != "" && n.RemoteIP == query },
		func(n Node) bool { return len(query) >= leastPrefix && strings.HasPrefix(n.ID, query) },
	} {
		var found, connected []Node
		for _, n := range nodes {
			if means(n) {
				found = append(found, n)
				if n.Connected {
					connected = append(connected, n)
				}
			}
		}
		switch {
		case len(found) == 1:
			return found[0].ID, nil
		case len(connected) == 1:
			return connected[0].ID, nil
		case len(found) > 1:
			return "", &NodeError{Query: query, Among: found}
		}
	}
	return "", &NodeError{Query: query, Known: nodes}
}

// nodeName is a display name as people type it: letters and digits, and one dash for all else.
func nodeName(text string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(text) {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			b.WriteRune(r)
		} else if b.Len() > 0 && !strings.HasSuffix(b.String(), "-") {
			b.WriteByte('-')
		}
	}
	return strings.TrimSuffix(b.String(), "-")
}
