package repository

import "strings"

// executesNothing reports whether fetching from an address, or pushing to it, runs no program but
// git's own and ssh: an address may name a transport helper ("ext::sh -c ...", "anything://"), and
// a host may be an option to ssh ("-oProxyCommand=...").
func executesNothing(address string) bool {
	if !isPlain(address) || strings.ContainsAny(address, " \\\"'`$|<>^{}") {
		return false
	}
	scheme, rest, has := strings.Cut(address, "://")
	if !has {
		return strings.HasPrefix(address, "/") || isSCP(address)
	}
	switch scheme {
	case "file":
		return strings.HasPrefix(rest, "/")
	case "https", "http", "git", "ssh":
		authority, _, _ := strings.Cut(rest, "/")
		return isAuthority(authority, scheme == "ssh")
	}
	return false
}

// isSCP reports whether an address is HOST:PATH, or USER@HOST:PATH.
func isSCP(address string) bool {
	authority, path, has := strings.Cut(address, ":")
	return has && path != "" && path[0] != '-' && path[0] != ':' && isAuthority(authority, true) && !strings.Contains(authority, "[")
}

// isAuthority reports whether text is a host, with a user before it and a port behind it if there
// are such.
func isAuthority(text string, ssh bool) bool {
	if at := strings.LastIndexByte(text, '@'); at >= 0 {
		user := text[:at]
		if user == "" || user[0] == '-' || ssh && !consistsOf(user, "._-+~") || !consistsOf(user, "._-+~%:!*,;=&") {
			return false
		}
		text = text[at+1:]
	}
	if inner, has := strings.CutPrefix(text, "["); has {
		address, port, closed := strings.Cut(inner, "]")
		return closed && address != "" && consistsOf(address, ":.") && (port == "" || port[0] == ':' && isNumber(port[1:]))
	}
	host, port, has := strings.Cut(text, ":")
	return host != "" && host[0] != '-' && consistsOf(host, "._-") && (!has || port == "" || isNumber(port))
}

// consistsOf reports whether text has ASCII letters, digits and the given characters only.
func consistsOf(text, others string) bool {
	for i := range len(text) {
		if c := text[i]; !isLetter(c) && (c < '0' || c > '9') && strings.IndexByte(others, c) < 0 {
			return false
		}
	}
	return true
}
