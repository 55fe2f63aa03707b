package door

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/profile/whole"
)

// A Token is what is known of one. The secret itself is nowhere.
type Token struct {
	ID        string `json:"id"`
	Agent     string `json:"agentId"`
	Workspace string `json:"workspace"`         // on the host
	At        string `json:"at"`                // where the container has it
	Project   string `json:"project,omitempty"` // for the record, and for the person who is asked
	Branch    string `json:"branch,omitempty"`
	CreatedAt int64  `json:"createdAtUnixMs"`
	Digest    string `json:"digest"` // SHA-256 of the secret
}

// Tokens are those of a state directory.
type Tokens struct {
	path string

	mu    sync.Mutex
	seen  os.FileInfo
	known []Token
}

const (
	tokensName   = "tokens.json"
	tokenVersion = 1
	maxTokens    = 1000
	maxFile      = 1 << 20
	maxText      = 256 // bytes of a project, a branch
	secretBytes  = 32
)

type tokensFile struct {
	Version int     `json:"version"`
	Tokens  []Token `json:"tokens"`
}

// In returns the tokens of a state directory.
func In(state string) *Tokens { return &Tokens{path: filepath.Join(state, tokensName)} }

// Create makes a token, and returns the secret that proves it: this once.
func (s *Tokens) Create(t Token) (Token, string, error) {
	if err := check(t); err != nil {
		return Token{}, "", err
	}
	secret := make([]byte, secretBytes)
	_, _ = rand.Read(secret) // it never fails
	told := hex.EncodeToString(secret)
	id := make([]byte, 4)
	_, _ = rand.Read(id)
	t.ID, t.CreatedAt, t.Digest = "t"+hex.EncodeToString(id), time.Now().UnixMilli(), digest(told)
	err := s.change(func(list []Token) ([]Token, error) {
		if len(list) >= maxTokens {
			return nil, fmt.Errorf("there are %d tokens already; clai-sandbox token revoke ID takes one away", len(list))
		}
		return append(list, t), nil
	})
	return t, told, err
}

func check(t Token) error {
	if err := profile.CheckAgent(t.Agent); err != nil {
		return err
	}
	for _, path := range []string{t.Workspace, t.At} {
		if !filepath.IsAbs(path) || filepath.Clean(path) != path || strings.ContainsRune(path, 0) {
			return fmt.Errorf("%s: it must be an absolute path", profile.Printable(path))
		}
	}
	if len(t.Project) > maxText || len(t.Branch) > maxText {
		return fmt.Errorf("a project or a branch has at most %d bytes", maxText)
	}
	return nil
}

func digest(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// Revoke takes a token away: what it asked for and waits is withdrawn, what runs is ended.
func (s *Tokens) Revoke(id string) error {
	return s.change(func(list []Token) ([]Token, error) {
		left := slices.DeleteFunc(slices.Clone(list), func(t Token) bool { return t.ID == id })
		if len(left) == len(list) {
			return nil, fmt.Errorf("there is no token %s; clai-sandbox token list shows those that there are", profile.Printable(id))
		}
		return left, nil
	})
}

// List is all tokens, the oldest first.
func (s *Tokens) List() ([]Token, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.read()
}

// Of finds the token that a secret proves. It takes as long for any secret.
func (s *Tokens) Of(secret string) (found Token, ok bool, err error) {
	list, err := s.List()
	if err != nil {
		return Token{}, false, err
	}
	is := []byte(digest(secret))
	for _, t := range list {
		if subtle.ConstantTimeCompare(is, []byte(t.Digest)) == 1 {
			found, ok = t, true
		}
	}
	return found, ok, nil
}

// Holds reports whether a token is there still.
func (s *Tokens) Holds(id string) bool {
	list, err := s.List()
	return err == nil && slices.ContainsFunc(list, func(t Token) bool { return t.ID == id })
}

// read reads the file, if it is not the one that was read.
func (s *Tokens) read() ([]Token, error) {
	file, err := os.OpenFile(s.path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		s.known, s.seen = nil, nil
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if s.seen != nil && os.SameFile(s.seen, info) && s.seen.ModTime().Equal(info.ModTime()) && s.seen.Size() == info.Size() {
		return s.known, nil
	}
	if !info.Mode().IsRegular() || info.Size() > maxFile || info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s is no file of tokens that only you read; move it away, and make the tokens anew", s.path)
	}
	text, err := io.ReadAll(io.LimitReader(file, maxFile))
	if err != nil {
		return nil, err
	}
	var f tokensFile
	if err := json.Unmarshal(text, &f); err != nil || f.Version != tokenVersion || len(f.Tokens) > maxTokens {
		return nil, fmt.Errorf("%s is no file of tokens; move it away, and make the tokens anew", s.path)
	}
	s.known, s.seen = f.Tokens, info
	return s.known, nil
}

// change puts another list in the file's place, one process at a time.
func (s *Tokens) change(to func([]Token) ([]Token, error)) error {
	if err := os.MkdirAll(filepath.Dir(s.path), 0o700); err != nil {
		return err
	}
	lock, err := os.OpenFile(s.path+".lock", os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return err
	}
	list, err := s.List()
	if err != nil {
		return err
	}
	if list, err = to(list); err != nil {
		return err
	}
	text, err := json.MarshalIndent(tokensFile{tokenVersion, list}, "", "  ")
	if err != nil {
		return err
	}
	return whole.Write(s.path, tokensName+".", append(text, '\n'))
}
