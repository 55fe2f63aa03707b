package changes

import (
	"bufio"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// A journal says what an apply is about to do, so that the next call can finish it or take it back.
// It is written before the first temporary file is made, again when it is known which inode each
// has, before anything is put in place, and a third time when what came out was found to be what
// was expected.
type journal struct {
	Temp  string `json:"temp"`  // what temporary names begin with
	Start int64  `json:"start"` // nanoseconds: what was changed later is not removed
	Ops   []*op  `json:"ops"`
}

// An op puts something in place, or takes something away.
type op struct {
	Path     []byte  `json:"path"` // names need not be UTF-8
	Put      bool    `json:"put"`
	Old      *object `json:"old,omitempty"` // what is expected there
	New      uint64  `json:"new,omitempty"` // the inode that is put there
	Verified bool    `json:"verified,omitempty"`
	From     *object `json:"from,omitempty"` // the layer's, if what is put there is merged from it and the host's

	change  *Change
	tree    map[string]object // what is in the old directory
	content []byte            // of the file that is put there, if it is not the layer's
	failed  string
}

const journalName, appliedName = "journal", "applied"

// newJournal is one for a number of ops.
func newJournal(ops []*op) (*journal, error) {
	var name [8]byte
	if _, err := rand.Read(name[:]); err != nil {
		return nil, err
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now); err != nil {
		return nil, err
	}
	return &journal{Temp: ".clai-sandbox-" + hex.EncodeToString(name[:]), Start: now.Nano(), Ops: ops}, nil
}

// name is the temporary name of an op, in the directory of its path.
func (j *journal) name(i int) string { return j.Temp + "-" + strconv.Itoa(i) }

func (j *journal) write(dir string) error {
	text, err := json.Marshal(j)
	if err != nil {
		return err
	}
	return writeWhole(dir, journalName, text)
}

// writeWhole puts a file in place that is on the disk.
func writeWhole(dir, name string, text []byte) error {
	path := filepath.Join(dir, name)
	file, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.Write(text); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	return syncDirectory(dir)
}

func syncDirectory(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// readJournal is the one that an interrupted apply left, or nil.
func readJournal(dir string) (*journal, error) {
	text, err := os.ReadFile(filepath.Join(dir, journalName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	j := &journal{}
	if err == nil {
		err = json.Unmarshal(text, j)
	}
	if err != nil {
		return nil, fmt.Errorf("the journal of an interrupted apply: %w", err)
	}
	return j, nil
}

// applied is an object that an apply put on the host: its time of change is later than the layer's,
// and yet no person changed it.
type applied struct {
	Path    []byte `json:"path"`
	Inode   uint64 `json:"inode"`
	Changed int64  `json:"ctime"`
}

func readApplied(dir string) (map[string]applied, error) {
	file, err := os.Open(filepath.Join(dir, appliedName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	all := map[string]applied{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var a applied
		if json.Unmarshal(lines.Bytes(), &a) == nil { // the last line may be cut off: then its file counts as changed by a person
			all[string(a.Path)] = a
		}
	}
	return all, lines.Err()
}

// addApplied appends to the list.
func addApplied(dir string, list []applied) error {
	if len(list) == 0 {
		return nil
	}
	file, err := os.OpenFile(filepath.Join(dir, appliedName), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	out := bufio.NewWriter(file)
	out.WriteByte('\n') // behind a line that was cut off
	for _, a := range list {
		text, err := json.Marshal(a)
		if err != nil {
			return err
		}
		out.Write(append(text, '\n'))
	}
	return out.Flush()
}
