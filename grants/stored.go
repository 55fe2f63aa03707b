package grants

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/clairun/clai-sandbox/profile"
)

// Current returns the grants of an agent that hold now: those whose time is not over and whose path
// still leads to the object that was granted. Notices tell of the others. It does not wait for the
// broker, and leaves word for it of what was used. Nothing stored can keep a run from starting.
func Current(dir, agent string, now time.Time) ([]Grant, []Notice) {
	list, err := ReadSnapshot(dir, agent)
	if err != nil {
		text := err.Error()
		if e, ok := err.(*SnapshotError); ok {
			text += "; " + e.Hint()
		}
		return nil, []Notice{{Kind: NoticeStore, Text: text}}
	}
	var notices []Notice
	var word journal
	list = slices.DeleteFunc(list, func(g Grant) bool {
		if g.Expired(now) {
			return true
		}
		if g.Stale != "" {
			notices = append(notices, leftOut(g, NoticePathDenied, g.Stale+"; "+confirmHint(g)))
			return true
		}
		place, condition, why := g.Check()
		switch condition {
		case Intact:
			word.used(g, place, now)
			return false
		case Missing:
			notices = append(notices, leftOut(g, NoticePathLeftOut, why))
		default:
			word.stale(g, now)
			notices = append(notices, leftOut(g, NoticePathDenied, why+"; "+confirmHint(g)))
		}
		return true
	})
	word.append(dir)
	return list, notices
}

func confirmHint(g Grant) string {
	return "if that is meant, type: clai-sandbox grants confirm " + g.ID
}

// Profiles are grants as a sandbox takes them. It leaves out what another grant shows already with
// as much access: approving less later takes nothing away. A name that leads there through a link
// is kept, for the name's sake, with the access that the place has.
func Profiles(list []Grant) []profile.Grant {
	most := make(map[string]profile.Access, len(list))
	for _, g := range list {
		most[g.Resolved] = max(most[g.Resolved], g.Access)
	}
	seen := make(map[string]bool, len(list))
	shown := make([]profile.Grant, 0, len(list))
	for _, g := range list {
		above := profile.NoAccess
		for path := g.Resolved; path != "/"; {
			path = parent(path)
			above = max(above, most[path])
		}
		throughLink := g.Path != g.Resolved
		if seen[g.Path] || !throughLink && (above >= g.Access || most[g.Resolved] > g.Access) {
			continue
		}
		seen[g.Path] = true
		g.Access = max(above, most[g.Resolved])
		shown = append(shown, g.Profile())
	}
	return shown
}

// UsesName is the file in the state directory into which runs write what they used, a line a grant:
//
//	used ID UNIX-MS DEVICE INODE[:BORN:HANDLE]
//	stale ID UNIX-MS
//
// The store reads it when it comes to it. A line that is lost is a use that was not counted.
const UsesName = "grants.uses"

// maxUses bounds the file where no broker ever reads it.
const maxUses = 4 << 20

type journal struct{ text []byte }

func (j *journal) used(g Grant, p Place, now time.Time) {
	j.text = fmt.Appendf(j.text, "used %s %d %d %s\n", g.ID, now.UnixMilli(), p.Object.Device, inodeText(p.Object))
}

func (j *journal) stale(g Grant, now time.Time) {
	j.text = fmt.Appendf(j.text, "stale %s %d\n", g.ID, now.UnixMilli())
}

// append writes all in one go, so that lines of runs at the same time do not mix.
func (j *journal) append(dir string) {
	if len(j.text) == 0 {
		return
	}
	path := filepath.Join(dir, UsesName)
	fd, err := syscall.Open(path, syscall.O_WRONLY|syscall.O_APPEND|syscall.O_CREAT|syscall.O_CLOEXEC|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return
	}
	defer syscall.Close(fd)
	var stat syscall.Stat_t
	if syscall.Fstat(fd, &stat) == nil && stat.Mode&syscall.S_IFMT == syscall.S_IFREG && stat.Size < maxUses {
		syscall.Write(fd, j.text)
	}
}

// A Use is one line of the file UsesName.
type Use struct {
	Grant    string
	AtUnixMs int64
	Object   Object
	Stale    bool
}

// ParseUses reads the lines of the file UsesName, and skips those that it cannot read.
func ParseUses(text string) []Use {
	var list []Use
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 3 {
			continue
		}
		at, err := strconv.ParseInt(fields[2], 10, 64)
		u := Use{Grant: fields[1], AtUnixMs: at, Stale: fields[0] == "stale"}
		if fields[0] == "used" && len(fields) == 5 {
			u.Object.Device, _ = strconv.ParseUint(fields[3], 10, 64)
			_ = parseInode(fields[4], &u.Object)
		} else if !u.Stale {
			continue
		}
		if err == nil && strings.HasSuffix(line, "\n") {
			list = append(list, u)
		}
	}
	return list
}
