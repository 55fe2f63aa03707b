package broker

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/clairun/clai-sandbox/grants"
)

// An Audit is the file that says what was asked and decided, one JSON object a line, only ever appended to. Text in it
// that came from an agent is escaped beyond what JSON wants: nothing that a terminal obeys is in the file.
type Audit struct {
	mu   sync.Mutex
	file *os.File
	size int64
}

// AuditName is the name of the file in the state directory.
const AuditName = "audit.log"

// OpenAudit opens the file. known is how far it had come when that was last stored; a notice says if some of it is gone.
func OpenAudit(path string, known int64) (*Audit, []grants.Notice, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, nil, err
	}
	info, err := file.Stat()
	if err == nil && (!info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 || int(info.Sys().(*syscall.Stat_t).Uid) != os.Getuid()) {
		err = &fs.PathError{Op: "audit", Path: path, Err: errors.New("is not a file that only its owner can read and write: chmod 600")}
	}
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	a := &Audit{file: file, size: info.Size()}
	var notices []grants.Notice
	if a.size < known {
		notices = append(notices, grants.Notice{Kind: grants.NoticeStore, Path: path,
			Text: fmt.Sprintf("the audit file is shorter than it was: %d bytes, and had %d", a.size, known)})
	}
	if err := a.endLine(); err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return a, notices, nil
}

// endLine ends a line that a crash cut off, so that the next one is whole.
func (a *Audit) endLine() error {
	if a.size == 0 {
		return nil
	}
	last := make([]byte, 1)
	if _, err := a.file.ReadAt(last, a.size-1); err != nil {
		return err
	}
	if last[0] == '\n' {
		return nil
	}
	return a.write([]byte("\n"))
}

// Close closes the file.
func (a *Audit) Close() error { return a.file.Close() }

// event is one line.
type event struct {
	Time     string           `json:"time"`
	Event    string           `json:"event"`
	User     string           `json:"user,omitempty"`
	Request  *grants.Request  `json:"request,omitempty"`
	Asking   *grants.Asking   `json:"asking,omitempty"`
	Agent    string           `json:"agentId,omitempty"`
	Session  string           `json:"sessionId,omitempty"`
	Decision *grants.Decision `json:"decision,omitempty"`
	Outcome  grants.Outcome   `json:"outcome,omitempty"`
	Scope    grants.Scope     `json:"scope,omitempty"`
	Grant    *grants.Grant    `json:"grant,omitempty"`
	Reason   string           `json:"reason,omitempty"`
}

func (b *Broker) audit(e event) error {
	_, err := b.options.Audit.append(e, b.options.User, false)
	return err
}

// auditSynced returns when the line is on the disk.
func (b *Broker) auditSynced(e event) (position int64, err error) {
	return b.options.Audit.append(e, b.options.User, true)
}

func (a *Audit) append(e event, user string, sync bool) (position int64, err error) {
	e.Time, e.User = time.Now().UTC().Format(time.RFC3339Nano), user
	text, err := json.Marshal(e)
	if err != nil {
		return 0, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.write(append(grants.PlainJSON(text), '\n')); err != nil {
		return 0, fmt.Errorf("audit file: %w", err)
	}
	if sync {
		if err := a.file.Sync(); err != nil {
			return 0, fmt.Errorf("audit file: %w", err)
		}
	}
	return a.size, nil
}

// write appends a line as a whole or not at all.
func (a *Audit) write(line []byte) error {
	n, err := a.file.Write(line)
	if err != nil {
		if n > 0 {
			err = errors.Join(err, a.file.Truncate(a.size))
		}
		return err
	}
	a.size += int64(n)
	return nil
}
