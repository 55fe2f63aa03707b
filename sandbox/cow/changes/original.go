package changes

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/sandbox/cow"
)

// An overlay keeps no originals. So those of changed text files are kept when a command has ended,
// in the layer's directory, at their paths below it: as long as the host's has not changed since
// the layer began, it is what commands found. When it changes later, the changes of both sides can
// be told apart. What a person changes while the very first command that touched a file still runs
// is not covered: then there is no original, and no merging.

const (
	// maxOriginals bounds how many there are in a layer, maxOriginalBytes how much they take,
	// maxKeepLook how many entries of a layer one call looks at.
	maxOriginals     = 2000
	maxOriginalBytes = 64 << 20
	maxKeepLook      = 5000
)

// An original is what a file was when commands first saw it. Its first line is this, the rest the
// content. It is written without waiting for the disk: the sum tells whether it is whole.
type original struct {
	Since   int64  `json:"since"` // when the layer began
	Inode   uint64 `json:"inode"`
	Changed int64  `json:"ctime"`
	Mode    uint32 `json:"mode"`
	Sum     string `json:"sha256"`

	content []byte
}

// Keep keeps the originals of a layer that its holder has locked. That one cannot be kept is no
// error: nothing is merged then.
func Keep(dir string) {
	if empty, err := cow.IsEmpty(dir); err == nil && empty {
		os.RemoveAll(filepath.Join(dir, cow.Originals))
		return
	}
	l := Layer{Dir: dir}
	var err error
	if l.About, err = cow.Read(dir); err != nil || l.Cache {
		return
	}
	if l.Since, err = cow.Since(dir); err != nil {
		return
	}
	if o, err := l.open(); err == nil {
		o.keep()
		o.close()
	}
}

// keep looks through the directories that both the layer and the host have. Git's own files belong
// together: none of those is merged.
func (o *opened) keep() {
	veiled, err := o.look()
	if err != nil {
		return
	}
	w := walker{lower: o.lower, since: o.Since, applied: o.applied}
	if w.isGit() {
		return
	}
	budget := &budget{dir: filepath.Join(o.Dir, cow.Originals)}
	left := maxKeepLook
	for queue := []string{"."}; len(queue) > 0 && left > 0; queue = queue[1:] {
		dir := queue[0]
		up, err := openDirectory(o.upper, dir)
		if err != nil {
			continue
		}
		low, err := openDirectory(o.lower, dir)
		if err != nil {
			unix.Close(up)
			continue
		}
		entries, _ := names(up, left)
		left -= len(entries)
		for _, name := range entries {
			at := join(dir, name)
			was, err := lookAt(low, name)
			if err != nil || isVeiled(veiled, at) || len(at) > maxPath || strings.EqualFold(name, ".git") {
				continue
			}
			now, err := lookAt(up, name)
			switch {
			case err != nil:
			case was.directory() && now.directory():
				queue = append(queue, at)
			case was.regular() && now.regular() && was.Size <= maxDiff && now.Size <= maxDiff && w.later(at, was) == "":
				o.keepOne(at, low, name, was, budget)
			}
		}
		unix.Close(up)
		unix.Close(low)
	}
}

// keepOne keeps the original of a file, which is open to nobody's eyes but the person's own.
func (o *opened) keepOne(at string, dir int, name string, was object, b *budget) {
	if kept := o.original(at); kept != nil && kept.Inode == was.Inode && kept.Changed == was.Changed {
		return
	}
	content, err := text(dir, name)
	if err != nil || content == nil || !b.has(len(content)) {
		return
	}
	if now, err := lookAt(dir, name); err != nil || !was.untouched(now) {
		return
	}
	sum := sha256.Sum256(content)
	head, err := json.Marshal(original{Since: o.Since, Inode: was.Inode, Changed: was.Changed, Mode: was.permission(), Sum: hex.EncodeToString(sum[:])})
	if err != nil {
		return
	}
	file := filepath.Join(o.Dir, cow.Originals, at)
	if os.MkdirAll(filepath.Dir(file), 0o700) == nil {
		_ = os.WriteFile(file, append(append(head, '\n'), content...), 0o600)
	}
}

// A budget is how much may still be kept.
type budget struct {
	dir   string
	known bool
	files int
	bytes int64
}

// has takes something out of it, if there is enough.
func (b *budget) has(size int) bool {
	if !b.known {
		b.known = true
		_ = filepath.WalkDir(b.dir, func(_ string, entry fs.DirEntry, err error) error {
			if err == nil && entry.Type().IsRegular() {
				b.files++
				if info, err := entry.Info(); err == nil {
					b.bytes += info.Size()
				}
			}
			return nil
		})
	}
	b.files++
	b.bytes += int64(size)
	return b.files <= maxOriginals && b.bytes <= maxOriginalBytes
}

// original is the one of a path, or nil if none was kept, or if it is not that of what the layer
// has now.
func (o *opened) original(at string) *original {
	file, err := os.OpenFile(filepath.Join(o.Dir, cow.Originals, at), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer file.Close()
	all, err := io.ReadAll(io.LimitReader(file, maxDiff+1024))
	if err != nil {
		return nil
	}
	head, content, _ := bytes.Cut(all, []byte("\n"))
	kept := &original{content: content}
	if json.Unmarshal(head, kept) != nil || kept.Since != o.Since {
		return nil
	}
	if sum := sha256.Sum256(content); kept.Sum != hex.EncodeToString(sum[:]) {
		return nil
	}
	if done, ok := o.applied[at]; ok && done.Changed > kept.Changed {
		return nil // a part of the change was applied since
	}
	return kept
}

// forget removes the originals of what is about to be taken out of the layer, or was: what commands
// make of the path next begins with what the host has then.
func (o *opened) forget(name string) {
	if name = path.Clean(name); filepath.IsLocal(name) {
		_ = os.RemoveAll(filepath.Join(o.Dir, cow.Originals, name))
	}
}
