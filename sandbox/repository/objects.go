package repository

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// git finds an object by its name, and believes that what it finds has that name: it takes the
// digest when an object is made or fetched, and never when it is read. With another content in
// .git/objects/ab/cdef…, or a pack whose index says that, a commit that a person knows brings files
// that they do not. So what a command could have written there is read here, and must be what its
// name says.

// ErrLate means that there was no time to read all of an object or a pack.
var ErrLate = errors.New("there was no time to look through all of it")

var errObject = errors.New("it is not what its name says")

// Objects looks through objects, until some time.
type Objects struct {
	until   time.Time
	source  *bufio.Reader
	inflate io.ReadCloser
}

// NewObjects begins to.
func NewObjects(until time.Time) *Objects {
	return &Objects{until: until, source: bufio.NewReader(nil)}
}

// Check says what is wrong with a file in a directory of objects that is called in: with a loose
// object ("ab"), one of git-lfs's ("lfs"), or with an index of a pack ("pack") and that pack. Each
// file is taken from the first of some open directories that has one. Other files are right.
func (o *Objects) Check(dirs []int, in, name string) error {
	in = strings.ToLower(in)
	switch stem, isIndex := strings.CutSuffix(name, ".idx"); {
	case in == "pack" && isIndex:
		return checkPack(dirs, stem, o.until, maxInflated)
	case in == "lfs":
		return o.large(dirs, name)
	case len(in) == 2:
		return o.loose(dirs, in, name)
	}
	return nil
}

// large looks at a file that git-lfs keeps: its name is the digest of what is in it, which git-lfs
// does not take, either, when it reads one.
func (o *Objects) large(dirs []int, name string) error {
	want, err := hex.DecodeString(name)
	if err != nil || len(want) != sha256.Size {
		return nil
	}
	file, err := openFirst(dirs, name, math.MaxInt64)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	until, err := longer(o.until, file)
	if err != nil {
		return err
	}
	digest := sha256.New()
	if _, err = io.Copy(digest, timed{file, until}); err == nil && !bytes.Equal(digest.Sum(nil), want) {
		err = errObject
	}
	return err
}

// openFirst opens a regular file in the first directory that has it.
func openFirst(dirs []int, name string, limit int64) (*os.File, error) {
	for i, dir := range dirs {
		file, _, err := openRegular(dir, name, limit)
		if i == len(dirs)-1 || !errors.Is(err, unix.ENOENT) {
			return file, err
		}
	}
	return nil, unix.ENOENT
}

func (o *Objects) loose(dirs []int, in, name string) error {
	want, err := hex.DecodeString(in + name)
	digest := digestOf(len(want))
	if err != nil || digest == nil {
		return nil // git looks for no such name
	}
	file, err := openFirst(dirs, name, math.MaxInt64)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	o.source.Reset(file)
	if o.inflate, err = inflating(o.inflate, o.source); err == nil {
		_, err = io.Copy(digest, timed{o.inflate, o.until})
	}
	if err == nil && !bytes.Equal(digest.Sum(nil), want) {
		err = errObject
	}
	return err
}

// inflating has what inflates begin with something else: to make it takes longer than most objects
// do.
func inflating(old io.ReadCloser, source *bufio.Reader) (io.ReadCloser, error) {
	if old == nil {
		return zlib.NewReader(source)
	}
	return old, old.(zlib.Resetter).Reset(source, nil)
}

// digestOf is the digest that names of objects with so many bytes are.
func digestOf(length int) hash.Hash {
	switch length {
	case sha1.Size:
		return sha1.New()
	case sha256.Size:
		return sha256.New()
	}
	return nil
}

// timed reads until some time.
type timed struct {
	io.Reader
	until time.Time
}

func (t timed) Read(p []byte) (int, error) {
	if time.Now().After(t.until) {
		return 0, ErrLate
	}
	return t.Reader.Read(p)
}

// errPack is about a pack that git would not have made, or whose index says of one of its objects
// what is not so.
func errPack(format string, arguments ...any) error {
	return fmt.Errorf("the pack and its index: %w: "+format, append([]any{errObject}, arguments...)...)
}
