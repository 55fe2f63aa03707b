package serve

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base64"
	"net"
	"path"
	"strconv"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/clairun/clai-sandbox/profile"
)

// knownHosts are the lines of known_hosts (sshd(8), "SSH_KNOWN_HOSTS FILE FORMAT") that can be
// read.
type knownHosts []knownHost

type knownHost struct {
	patterns []string
	key      []byte
	revoked  bool
}

const maxKnownHosts = 20_000 // lines

func readKnownHosts(texts []string) (list knownHosts) {
	for _, text := range texts {
		for line := range bytes.Lines([]byte(text)) {
			marker, patterns, key, _, _, err := ssh.ParseKnownHosts(line)
			if err != nil || marker != "" && marker != "revoked" || len(list) == maxKnownHosts {
				continue // a comment, a key of a kind that is not known, or an authority, whose certificates are not understood
			}
			list = append(list, knownHost{patterns, key.Marshal(), marker == "revoked"})
		}
	}
	return list
}

// address is a host as known_hosts has it.
func address(h profile.SSHHost) string {
	if h.Port == 0 || h.Port == 22 {
		return h.Name
	}
	return "[" + h.Name + "]:" + strconv.Itoa(h.Port)
}

// has reports whether the key is one of the host's, as the person has accepted it.
func (k knownHosts) has(address string, key []byte) bool {
	found := false
	for _, line := range k {
		if !bytes.Equal(line.key, key) {
			continue
		}
		if line.revoked {
			return false
		}
		found = found || line.names(address)
	}
	return found
}

func (l knownHost) names(address string) bool {
	found := false
	for _, pattern := range l.patterns {
		pattern, not := strings.CutPrefix(pattern, "!")
		if !matches(strings.ToLower(pattern), pattern, address) {
			continue
		}
		if not {
			return false
		}
		found = true
	}
	return found
}

// matches reports whether a pattern stands for an address: a name with * and ?, or the hash of one
// ("|1|salt|hash").
func matches(small, pattern, address string) bool {
	if parts := strings.Split(pattern, "|"); len(parts) == 4 && parts[0] == "" && parts[1] == "1" {
		salt, err := base64.StdEncoding.DecodeString(parts[2])
		if err != nil {
			return false
		}
		mac := hmac.New(sha1.New, salt)
		mac.Write([]byte(address))
		return base64.StdEncoding.EncodeToString(mac.Sum(nil)) == parts[3]
	}
	// Of path.Match only the two: brackets are those of [name]:port.
	small = strings.NewReplacer(`\`, `\\`, "[", `\[`).Replace(small)
	ok, err := path.Match(small, address)
	return err == nil && ok
}

// nameOf is what the person knows a key's host as: a name that stands there in clear, or one of the
// candidates, which may be anybody's words, if it is that by its hash.
func (k knownHosts) nameOf(key []byte, candidates []string) string {
	for _, candidate := range candidates {
		if k.has(candidate, key) {
			return candidate
		}
	}
	for _, line := range k {
		for _, pattern := range line.patterns {
			if bytes.Equal(line.key, key) && !strings.ContainsAny(pattern, "|*?!") && net.ParseIP(pattern) == nil && k.has(strings.ToLower(pattern), key) {
				return strings.ToLower(pattern)
			}
		}
	}
	return ""
}
