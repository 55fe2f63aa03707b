package grants

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/profile/aside"
)

// The names of the database and of its snapshot in the state directory.
//
// One process holds the database open and keeps everyone else out of it; a run must not wait for
// that. So the store writes what runs need into a file beside it, after each change, and a run
// reads that. The file is text:
//
//	clai-sandbox-grants 1 TRANSACTION INDEX-BYTES CHECKSUM
//	AGENT OFFSET BYTES CHECKSUM                                                          (the index, sorted by agent)
//	ID ACCESS DEVICE INODE[:BORN:HANDLE] EXPIRES STALE "PATH" "RESOLVED" {the whole grant as JSON}   (tabs between; agent by agent)
//
// Offsets count from the end of the index. The checksums (CRC-32C) find what a crash or a bad disk
// left, not what somebody forged: whoever can write here can grant anything. The first covers the
// first line up to it, and the index.
const (
	DatabaseName = "grants.db"
	SnapshotName = "grants.snapshot"

	snapshotMagic = "clai-sandbox-grants 1 "
)

// castagnoli is made when it is first needed: package hash/crc32 keeps it.
func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// A Snapshot is what the store keeps of the file between two changes.
type Snapshot struct {
	sections map[string][]byte // by agent
}

// Set replaces the grants of one agent.
func (s *Snapshot) Set(agent string, list []Grant) error {
	if s.sections == nil {
		s.sections = map[string][]byte{}
	}
	if len(list) == 0 {
		delete(s.sections, agent)
		return nil
	}
	var section []byte
	for _, g := range list {
		whole, err := json.Marshal(g)
		if err != nil {
			return fmt.Errorf("grant %s: %w", g.ID, err)
		}
		stale := 0
		if g.Stale != "" {
			stale = 1
		}
		section = fmt.Appendf(section, "%s\t%s\t%d\t%s\t%d\t%d\t%q\t%q\t%s\n", g.ID, g.Access, g.Object.Device, inodeText(g.Object),
			g.ExpiresAtUnixMs, stale, g.Path, g.Resolved, whole)
	}
	s.sections[agent] = section
	return nil
}

// Write replaces the file in the state directory by what is true after a transaction of the
// database. Readers see the old file or the new one. It is not forced to the disk: after a power
// cut its checksum fails, and the next start of the broker writes it anew.
func (s *Snapshot) Write(dir string, transaction uint64) error {
	agents := slices.Sorted(maps.Keys(s.sections))
	var index []byte
	offset := 0
	for _, agent := range agents {
		section := s.sections[agent]
		index = fmt.Appendf(index, "%s %d %d %08x\n", agent, offset, len(section), crc32.Checksum(section, castagnoli()))
		offset += len(section)
	}
	head := fmt.Appendf(nil, "%s%d %d ", snapshotMagic, transaction, len(index))
	head = fmt.Appendf(head, "%08x\n", headSum(head, index))

	path := filepath.Join(dir, SnapshotName)
	for _, name := range []string{path, path + ".new"} {
		if err := aside.UnlessFile(name); err != nil {
			return err
		}
	}
	file, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer os.Remove(path + ".new") // without effect once it is renamed
	whole := joined(head, index, agents, s.sections)
	_, err = file.Write(whole)
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func joined(head, index []byte, agents []string, sections map[string][]byte) []byte {
	size := len(head) + len(index)
	for _, section := range sections {
		size += len(section)
	}
	whole := append(append(make([]byte, 0, size), head...), index...)
	for _, agent := range agents {
		whole = append(whole, sections[agent]...)
	}
	return whole
}

func headSum(head, index []byte) uint32 {
	return crc32.Update(crc32.Checksum(head, castagnoli()), castagnoli(), index)
}

// SnapshotError means that what is stored could not be learned. Nothing of it may be used.
type SnapshotError struct{ Why string }

func (e *SnapshotError) Error() string {
	return "stored grants are not used: " + e.Why
}

// Hint says what mends it.
func (e *SnapshotError) Hint() string {
	return "clai-sandbox grants list starts the broker, which writes the snapshot anew"
}

// snapshotTimeout is how long a reader waits for the file to catch up with the database: the store
// has changed one and is about to change the other.
const snapshotTimeout = 20 * time.Millisecond

// ReadSnapshot returns what is stored for one agent, without asking the broker. Of each grant it
// has what a run needs; origin and uses are left out. The error is a *SnapshotError.
func ReadSnapshot(dir, agent string) ([]Grant, error) {
	deadline := time.Now().Add(snapshotTimeout)
	for {
		list, err := readSnapshot(dir, agent)
		var old *outdated
		if !errors.As(err, &old) || time.Now().After(deadline) {
			if err != nil {
				err = &SnapshotError{err.Error()}
			}
			return list, err
		}
		time.Sleep(200 * time.Microsecond)
	}
}

// outdated means that snapshot and database do not belong together, now.
type outdated struct{ snapshot, database uint64 }

func (e *outdated) Error() string {
	return fmt.Sprintf("the snapshot is of transaction %d, and the database has come to %d", e.snapshot, e.database)
}

func readSnapshot(dir, agent string) ([]Grant, error) {
	file, err := openOwn(filepath.Join(dir, SnapshotName))
	if errors.Is(err, fs.ErrNotExist) {
		database, err := ReadDatabaseState(filepath.Join(dir, DatabaseName))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil // nothing was ever stored
		}
		if err == nil {
			err = &outdated{0, database.Transaction}
		}
		return nil, err
	}
	if err != nil {
		return nil, err
	}
	defer unix.Close(file)
	head, err := readHead(file)
	if err != nil {
		return nil, err
	}
	database, err := ReadDatabaseState(filepath.Join(dir, DatabaseName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("there is a snapshot, and no database that it could be of")
	}
	if err != nil {
		return nil, err
	}
	if database.Transaction != head.transaction {
		return nil, &outdated{head.transaction, database.Transaction}
	}
	section, err := head.section(file, agent)
	if err != nil {
		return nil, err
	}
	return parseSection(agent, section)
}

// snapshotHead is the first line and the index.
type snapshotHead struct {
	transaction uint64
	index       []byte
	begin       int64 // where the sections begin
}

const maxIndex = 16 << 20

func readHead(file int) (snapshotHead, error) {
	var h snapshotHead
	buffer := make([]byte, 32<<10) // for most, all of the index
	n, err := pread(file, buffer, 0)
	if err != nil {
		return h, err
	}
	line, rest, found := bytes.Cut(buffer[:n], []byte("\n"))
	fields := bytes.Fields(bytes.TrimPrefix(line, []byte(snapshotMagic)))
	if !found || !bytes.HasPrefix(line, []byte(snapshotMagic)) || len(fields) != 3 {
		return h, errors.New("the snapshot does not begin as one does")
	}
	transaction, err1 := strconv.ParseUint(string(fields[0]), 10, 64)
	size, err2 := strconv.ParseUint(string(fields[1]), 10, 32)
	sum, err3 := strconv.ParseUint(string(fields[2]), 16, 32)
	if err := errors.Join(err1, err2, err3); err != nil || size > maxIndex {
		return h, errors.New("the first line of the snapshot makes no sense")
	}
	h.transaction, h.begin = transaction, int64(len(line))+1+int64(size)
	h.index = rest
	if uint64(len(rest)) > size {
		h.index = rest[:size]
	} else if uint64(len(rest)) < size {
		h.index = make([]byte, size)
		if n, err := pread(file, h.index, int64(len(line))+1); err != nil || n < int(size) {
			return h, errors.New("the snapshot ends in its index")
		}
	}
	if headSum(line[:len(line)-len(fields[2])], h.index) != uint32(sum) {
		return h, errors.New("the snapshot's index is damaged: its checksum is another")
	}
	return h, nil
}

// section reads the grants of one agent, or nothing if there are none.
func (h snapshotHead) section(file int, agent string) ([]byte, error) {
	at := 0
	if name := []byte(agent + " "); !bytes.HasPrefix(h.index, name) {
		if at = bytes.Index(h.index, append([]byte("\n"), name...)) + 1; at == 0 {
			return nil, nil
		}
	}
	line, _, _ := bytes.Cut(h.index[at:], []byte("\n"))
	return h.read(file, line)
}

func (h snapshotHead) read(file int, line []byte) ([]byte, error) {
	var name string
	var offset int64
	var size int
	var sum uint32
	fields := strings.Fields(string(line))
	if len(fields) == 4 {
		name = fields[0]
		o, err1 := strconv.ParseInt(fields[1], 10, 48)
		n, err2 := strconv.ParseUint(fields[2], 10, 30)
		s, err3 := strconv.ParseUint(fields[3], 16, 32)
		if errors.Join(err1, err2, err3) == nil && o >= 0 {
			offset, size, sum = o, int(n), uint32(s)
		}
	}
	if size == 0 {
		return nil, errors.New("a line of the snapshot's index makes no sense")
	}
	section := make([]byte, size)
	if n, err := pread(file, section, h.begin+offset); err != nil || n < size || crc32.Checksum(section, castagnoli()) != sum {
		return nil, fmt.Errorf("the snapshot's part about %s is damaged: its checksum is another", profile.Printable(name))
	}
	return section, nil
}

// parseSection reads what a run needs of each grant.
func parseSection(agent string, section []byte) ([]Grant, error) {
	if section == nil {
		return nil, nil
	}
	list := make([]Grant, 0, bytes.Count(section, []byte("\n")))
	for line := range bytes.Lines(section) {
		fields := strings.SplitN(string(line), "\t", 9)
		if len(fields) != 9 {
			return nil, errors.New("a line of the snapshot makes no sense")
		}
		g := Grant{ID: fields[0], Agent: agent, Scope: ScopeAlways}
		err := g.Access.UnmarshalText([]byte(fields[1]))
		var errs [5]error
		g.Object.Device, errs[0] = strconv.ParseUint(fields[2], 10, 64)
		errs[1] = parseInode(fields[3], &g.Object)
		g.ExpiresAtUnixMs, errs[2] = strconv.ParseInt(fields[4], 10, 64)
		g.Path, errs[3] = strconv.Unquote(fields[6])
		g.Resolved, errs[4] = strconv.Unquote(fields[7])
		if err := errors.Join(append(errs[:], err)...); err != nil {
			return nil, fmt.Errorf("a line of the snapshot: %w", err)
		}
		if fields[5] != "0" {
			g.Stale = "it changed since it was granted"
		}
		list = append(list, g)
	}
	return list, nil
}

// inodeText is what tells an object from the others of its device.
func inodeText(o Object) string {
	return fmt.Sprintf("%d:%s:%s", o.Inode, o.Born, o.Handle)
}

// parseInode reads that. Earlier versions wrote the number alone.
func parseInode(text string, o *Object) (err error) {
	number, more, _ := strings.Cut(text, ":")
	o.Born, o.Handle, _ = strings.Cut(more, ":")
	o.Inode, err = strconv.ParseUint(number, 10, 64)
	return err
}

// ReadWholeSnapshot returns all that was stored at the time of the snapshot, whatever the database
// has become. It is for the store, to begin with when the database is damaged.
func ReadWholeSnapshot(dir string) ([]Grant, error) {
	file, err := openOwn(filepath.Join(dir, SnapshotName))
	if err != nil {
		return nil, err
	}
	defer unix.Close(file)
	head, err := readHead(file)
	if err != nil {
		return nil, err
	}
	var list []Grant
	for line := range bytes.Lines(head.index) {
		section, err := head.read(file, bytes.TrimSuffix(line, []byte("\n")))
		if err != nil {
			return nil, err
		}
		for line := range bytes.Lines(section) {
			fields := bytes.SplitN(line, []byte("\t"), 9)
			var g Grant
			if len(fields) != 9 {
				return nil, errors.New("a line of the snapshot makes no sense")
			}
			if err := json.Unmarshal(fields[8], &g); err != nil {
				return nil, fmt.Errorf("a line of the snapshot: %w", err)
			}
			list = append(list, g)
		}
	}
	return list, nil
}

// openOwn opens a file of ours for reading. Who can put another one in its place can write to our
// state directory.
func openOwn(path string) (int, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return 0, &fs.PathError{Op: "open", Path: profile.Printable(path), Err: err}
	}
	var stat unix.Stat_t
	err = unix.Fstat(fd, &stat)
	if err == nil && (stat.Mode&unix.S_IFMT != unix.S_IFREG || int(stat.Uid) != os.Getuid() || stat.Mode&0o022 != 0) {
		err = errors.New("is not a file that only its owner can write: chmod 600")
	}
	if err != nil {
		unix.Close(fd)
		return 0, &fs.PathError{Op: "open", Path: profile.Printable(path), Err: err}
	}
	return fd, nil
}

// pread reads as much as there is.
func pread(file int, into []byte, offset int64) (int, error) {
	n := 0
	for n < len(into) {
		m, err := unix.Pread(file, into[n:], offset+int64(n))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return n, err
		}
		if m == 0 {
			break
		}
		n += m
	}
	return n, nil
}
