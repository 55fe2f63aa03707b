package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// maxPatchedBytes bounds all files that one patch is about, before and after.
const maxPatchedBytes = 128 << 20

// ApplyPatch asks for a patch to be applied to files, to all of them or to none.
type ApplyPatch struct {
	Patch string `json:"patch" jsonschema:"the patch: from *** Begin Patch to *** End Patch with *** Add File: PATH, *** Update File: PATH, *** Delete File: PATH and *** Move to: PATH; or a unified diff. Paths are absolute or in the working directory"`
}

// An ApplyPatchResult says what the patch changed.
type ApplyPatchResult struct {
	Files []Patched `json:"files" jsonschema:"what was changed, in the order of the patch"`
}

// Patched is one file that a patch changed.
type Patched struct {
	Path    string `json:"path" jsonschema:"the file, absolute"`
	Change  string `json:"change" jsonschema:"added, updated, deleted or moved"`
	MovedTo string `json:"movedTo,omitempty" jsonschema:"where it is now, absolute"`
	Added   int    `json:"added" jsonschema:"how many lines came in"`
	Removed int    `json:"removed" jsonschema:"how many lines went out"`
	Loose   bool   `json:"loose,omitempty" jsonschema:"whether lines of the patch fit only without the white space at their ends"`
	Moved   bool   `json:"elsewhere,omitempty" jsonschema:"whether a hunk fit at other lines than the diff says"`
}

// A file is one that a patch is about: what it was, and what it is to be.
type file struct {
	path string
	was  *state
	is   *state
}

// A state is a file's content, or a symbolic link's text.
type state struct {
	text   []byte
	mode   fs.FileMode
	masked bool // the umask has its say in the mode: the file is new
	link   string
}

// A patching is a patch on its way into the files: first all in memory, then all on disk.
type patching struct {
	tools
	files []*file
	bytes int
	made  []string // directories
	done  []*file
}

func (t tools) applyPatch(a ApplyPatch) (*ApplyPatchResult, error) {
	changes, err := parsePatch(a.Patch)
	if err != nil {
		return nil, err
	}
	p := patching{tools: t}
	result := &ApplyPatchResult{}
	for i := range changes {
		note, err := p.plan(&changes[i])
		if err != nil {
			return nil, nothingChanged(err)
		}
		result.Files = append(result.Files, note)
	}
	if err := p.commit(); err != nil {
		return nil, nothingChanged(err)
	}
	return result, nil
}

func nothingChanged(err error) error {
	failed := failure("", err)
	if failed.Code != Partial {
		failed.Message += "; nothing was changed"
	}
	return failed
}

// file is the one at a path, as the changes so far leave it.
func (p *patching) file(path string) (*file, error) {
	for _, f := range p.files {
		if f.path == path {
			return f, nil
		}
	}
	f := &file{path: path}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, syscall.ENOENT):
	case err != nil:
		return nil, failure(path, err)
	case info.Mode()&fs.ModeSymlink != 0:
		to, err := os.Readlink(path)
		if err != nil {
			return nil, failure(path, err)
		}
		f.was = &state{link: to}
	default:
		text, err := load(path)
		if err != nil {
			return nil, err
		}
		f.was = &state{text: text, mode: info.Mode().Perm()}
	}
	if f.is = f.was; f.was != nil {
		if err := p.take(path, len(f.was.text)); err != nil {
			return nil, err
		}
	}
	p.files = append(p.files, f)
	return f, nil
}

func (p *patching) take(path string, bytes int) error {
	if p.bytes += bytes; p.bytes > maxPatchedBytes || bytes > MaxFile {
		return &Error{Code: TooLarge, Path: path, Message: fmt.Sprintf("a file is larger than %d MiB, or all of them than %d MiB", MaxFile>>20, maxPatchedBytes>>20)}
	}
	return nil
}

// plan carries out one change in memory.
func (p *patching) plan(c *change) (Patched, error) {
	var note Patched
	path, err := absolute(p.cwd, c.path)
	if err != nil {
		return note, err
	}
	note.Path = path
	for i := range c.hunks {
		for _, line := range c.hunks[i].lines {
			switch line.sign {
			case '+':
				note.Added++
			case '-':
				note.Removed++
			}
		}
	}
	switch c.kind {
	case addFile:
		note.Change = "added"
		err = p.add(path, c)
	case deleteFile:
		note.Change = "deleted"
		err = p.delete(path, c, &note)
	case updateFile:
		note.Change = "updated"
		err = p.update(path, c, &note)
	}
	return note, err
}

func (p *patching) add(path string, c *change) error {
	f, err := p.file(path)
	if err != nil {
		return err
	}
	if f.is != nil {
		return &Error{Code: Exists, Path: path, Message: "is there already; update it, or delete it first"}
	}
	var b strings.Builder
	for _, line := range c.hunks[0].lines {
		b.WriteString(line.text)
		b.WriteByte('\n')
	}
	text := b.String()
	if c.noEnd {
		text = strings.TrimSuffix(text, "\n")
	}
	f.is = &state{text: []byte(text), mode: 0o666, masked: true}
	if c.mode == 0o755 {
		f.is.mode = 0o777
	}
	if f.was != nil && f.was.link == "" { // it was deleted by the same patch
		f.is.mode, f.is.masked = f.was.mode, false
	}
	return p.take(path, len(text))
}

// delete removes a file, or a symbolic link and not what it leads to. A unified diff says what was
// in it.
func (p *patching) delete(path string, c *change, note *Patched) error {
	f, err := p.file(path)
	if err != nil {
		return err
	}
	if f.is == nil {
		return failure(path, syscall.ENOENT)
	}
	if c.plain && f.is.link == "" {
		d := newDocument(f.is.text)
		if err := d.patched(path, c, note); err != nil {
			return err
		}
		if len(d.lines) > 0 {
			return &Error{Code: NoMatch, Path: path, Message: "has more in it than the diff deletes"}
		}
	}
	f.is = nil
	return nil
}

func (p *patching) update(path string, c *change, note *Patched) error {
	at := path
	if c.moveTo == "" { // through a link, to the file that it leads to
		if to, _, err := destination(path); err == nil {
			at = to
		}
	}
	f, err := p.file(at)
	if err != nil {
		return err
	}
	switch {
	case f.is == nil:
		return failure(path, syscall.ENOENT)
	case f.is.link != "" && len(c.hunks) > 0:
		return invalid(path, "is a symbolic link; patch the file that it leads to")
	}
	fresh := *f.is
	if len(c.hunks) > 0 {
		d := newDocument(f.is.text)
		if err := d.patched(path, c, note); err != nil {
			return err
		}
		fresh.text = d.bytes()
	}
	switch c.mode {
	case 0o755:
		fresh.mode |= fresh.mode & 0o444 >> 2
	case 0o644:
		fresh.mode &^= 0o111
	}
	if err := p.take(path, len(fresh.text)); err != nil {
		return err
	}
	if c.moveTo == "" {
		f.is = &fresh
		return nil
	}
	to, err := absolute(p.cwd, c.moveTo)
	if err != nil {
		return err
	}
	if to == path {
		f.is = &fresh
		return nil
	}
	target, err := p.file(to)
	if err != nil {
		return err
	}
	if target.is != nil {
		return &Error{Code: Exists, Path: to, Message: "is there already, so nothing can be moved to it"}
	}
	note.Change, note.MovedTo = "moved", to
	f.is, target.is = nil, &fresh
	return nil
}

// commit writes what was planned; what is made before what is removed. If one fails, all that was
// done is undone.
func (p *patching) commit() error {
	for _, removing := range []bool{false, true} {
		for _, f := range p.files {
			if f.is == f.was || (f.is == nil) != removing {
				continue
			}
			err := p.carryOut(f)
			if err == nil {
				p.done = append(p.done, f)
				continue
			}
			failed := failure(f.path, err)
			if left := p.undo(); len(left) > 0 {
				return &Error{Code: Partial, Path: f.path, Message: fmt.Sprintf("%s; and what was done before could not be undone: %s", failed.Message, strings.Join(left, ", "))}
			}
			return failed
		}
	}
	return nil
}

func (p *patching) carryOut(f *file) error {
	if f.is == nil {
		return os.Remove(f.path)
	}
	if f.was == nil {
		made, err := makeParents(f.path)
		p.made = append(p.made, made...)
		if err != nil {
			return err
		}
	}
	return f.is.put(f.path, f.was)
}

// put makes path what the state says. before is what stands there, or nil.
func (s *state) put(path string, before *state) error {
	if before != nil && (before.link != "" || s.link != "") { // a link is not to be written through
		if err := os.Remove(path); err != nil {
			return err
		}
		before = nil
	}
	if s.link != "" {
		return os.Symlink(s.link, path)
	}
	if _, _, err := replace(path, s.text, s.mode); err != nil {
		return err
	}
	if !s.masked && (before == nil || before.mode != s.mode) {
		return os.Chmod(path, s.mode)
	}
	return nil
}

// undo takes back what was done, the last first, and returns the paths of what it could not.
func (p *patching) undo() (left []string) {
	for i := len(p.done) - 1; i >= 0; i-- {
		f := p.done[i]
		var err error
		if f.was == nil {
			err = os.Remove(f.path)
		} else {
			err = f.was.put(f.path, f.is)
		}
		if err != nil {
			left = append(left, f.path)
		}
	}
	removeAll(p.made)
	return left
}
