package audit

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// origin is the first line of each checkpoint, and the name of the key that signs it.
const origin = "clai-sandbox-audit"

const (
	keyName  = "audit.key"  // what signs, and under it what checks a signature
	headName = "audit.head" // the last checkpoint
	maxNote  = 4 << 10      // bytes of a checkpoint
)

// A Checkpoint is the size of the log and the root of the tree over its lines.
type Checkpoint struct {
	Size int64
	Root tlog.Hash
}

func (c Checkpoint) text() string { return fmt.Sprintf("%s\n%d\n%s\n", origin, c.Size, c.Root) }

func parseCheckpoint(text string) (c Checkpoint, err error) {
	lines := strings.Split(text, "\n")
	if len(lines) < 4 || lines[0] != origin {
		return c, errors.New("no checkpoint of an audit log")
	}
	if c.Size, err = strconv.ParseInt(lines[1], 10, 64); err == nil && c.Size >= 0 {
		c.Root, err = tlog.ParseHash(lines[2])
	}
	if err != nil || c.text() != text {
		return Checkpoint{}, errors.New("no checkpoint of an audit log")
	}
	return c, nil
}

// OpenCheckpoint reads a signed checkpoint, if the key signed it.
func OpenCheckpoint(signed, key string) (Checkpoint, error) {
	if len(signed) > maxNote {
		return Checkpoint{}, errors.New("no checkpoint of an audit log")
	}
	verifier, err := note.NewVerifier(key)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("key: %w", err)
	}
	opened, err := note.Open([]byte(signed), note.VerifierList(verifier))
	if err != nil {
		var unknown *note.UnverifiedNoteError
		if errors.As(err, &unknown) {
			return Checkpoint{}, errors.New("the checkpoint is signed by another key")
		}
		return Checkpoint{}, fmt.Errorf("checkpoint: %w", err)
	}
	return parseCheckpoint(opened.Text)
}

// errNoKey is what stands in the key's place and is none, as after a power failure.
var errNoKey = errors.New("no key")

// keys reads what signs and what checks; both are made where they are missing. The error is
// errNoKey where something else stands there.
func keys(dir string) (signer note.Signer, verifier string, err error) {
	path := filepath.Join(dir, keyName)
	text, err := readSmall(path)
	if errors.Is(err, fs.ErrNotExist) {
		var secret, public string
		if secret, public, err = note.GenerateKey(rand.Reader, origin); err != nil {
			return nil, "", err
		}
		text = secret + "\n" + public + "\n"
		err = writeWhole(path, text, true)
	}
	if err != nil {
		return nil, "", err
	}
	secret, rest, _ := strings.Cut(text, "\n")
	verifier = strings.TrimSuffix(rest, "\n")
	signer, err = note.NewSigner(secret)
	if _, wrong := note.NewVerifier(verifier); err != nil || wrong != nil {
		return nil, "", fmt.Errorf("%s: %w", path, errNoKey)
	}
	return signer, verifier, nil
}

// Key is what checks the signatures of the log in a state directory.
func Key(dir string) (string, error) {
	text, err := readSmall(filepath.Join(dir, keyName))
	if err != nil {
		return "", err
	}
	_, rest, _ := strings.Cut(text, "\n")
	return strings.TrimSuffix(rest, "\n"), nil
}

// Head is the last checkpoint of the log in a state directory, with its signature.
func Head(dir string) (string, error) {
	path := filepath.Join(dir, headName)
	text, err := readSmall(path)
	for range headReads { // it is written in place
		before := text
		if err != nil {
			break
		}
		if text, err = readSmall(path); text == before {
			break
		}
	}
	return text, err
}

// headReads is how often the head is read until it is the same twice. It is written in
// microseconds, once for each time the disk was waited for.
const headReads = 100

// writeHead puts the last checkpoint in its place. Once there, it is written over: to put another
// file in its place took longer than waiting for the disk did before it. It is part of one sector,
// so that a power failure leaves this one or the one before.
func writeHead(path, text string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return writeWhole(path, text, false)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 || info.Size() > int64(len(text)) || len(text) > sector {
		return writeWhole(path, text, false)
	}
	_, err = file.WriteAt([]byte(text), 0)
	return err
}

// sector is what a disk writes as a whole, in bytes.
const sector = 512

func readSmall(path string) (string, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || info.Size() > maxNote {
		return "", fmt.Errorf("%s is no file of the audit log's: %w", path, errNoKey)
	}
	text, err := os.ReadFile(path)
	return string(text), err
}

// writeWhole puts a file in place as a whole. With sync it is on the disk by then.
func writeWhole(path, text string, sync bool) error {
	fresh := path + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := os.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	if err == nil && sync {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	return os.Rename(fresh, path)
}
