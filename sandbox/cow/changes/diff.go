package changes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
	"golang.org/x/sys/unix"
)

// A Difference is a changed text file, in parts.
type Difference struct {
	// Note stands in place of parts where there is nothing to show: the file is binary, or too
	// large.
	Note  string
	Hunks []Hunk
	// Clashes are where the host changed the same lines.
	Clashes []Clash
	// Content is a digest of what the file becomes, by the very bytes that the parts are of.
	Content string
}

// A Hunk is one part of a difference.
type Hunk struct {
	Header   string   // @@ -1,2 +1,3 @@
	Lines    []string // each with its sign, without the end of line
	from     int      // the first line of the original that it replaces, from 0
	old      int      // how many
	replaced []string // with these, each with its end of line
}

const maxDiff = 1 << 20 // bytes of a file whose lines are compared

var errNoText = errors.New("a binary file")

// text reads a file whose lines can be compared. One that is not there is empty.
func text(root int, name string) ([]byte, error) {
	file, err := openFile(root, name)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxDiff+1))
	switch {
	case err != nil:
		return nil, err
	case len(content) > maxDiff:
		return nil, fmt.Errorf("larger than %d KiB", maxDiff>>10)
	case bytes.IndexByte(content, 0) >= 0:
		return nil, errNoText
	}
	return content, nil
}

// Diffs calls show with the difference of each selected change, in the review's order, until it
// says false.
func (l Layer) Diffs(ctx context.Context, r *Review, selected []string, show func(Change, Difference) bool) error {
	o, err := l.open()
	if err != nil {
		return err
	}
	defer o.close()
	if _, err := o.look(); err != nil {
		return err
	}
	for _, c := range r.Changes {
		if !covers(selected, c.Path) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if !show(c, o.difference(c)) {
			return nil
		}
	}
	return nil
}

func (o *opened) difference(c Change) Difference {
	d := o.parts(c)
	if d.Content == "" && c.Type == "file" && c.Kind != Mode && c.Kind != Deleted {
		d.Content = "cannot be read"
		if file, err := openFile(o.upper, c.Path); err == nil {
			defer file.Close()
			if content, err := contentOf(file); err == nil {
				d.Content = content
			}
		}
	}
	return d
}

// parts is a difference as far as it has lines.
func (o *opened) parts(c Change) Difference {
	if c.Type != "file" || c.Kind == Mode || c.Kind == Replaced {
		return Difference{}
	}
	old, oldErr := []byte(nil), error(nil)
	if c.lower != nil {
		old, oldErr = text(o.lower, c.Path)
	}
	now, err := []byte(nil), error(nil)
	if c.Kind != Deleted {
		now, err = text(o.upper, c.Path)
	}
	if err = errors.Join(oldErr, err); err != nil {
		return Difference{Note: strings.SplitN(reason(err), "\n", 2)[0]}
	}
	var clashes []Clash
	if c.Merged || c.Conflict != "" && c.Kind == Changed {
		var both []byte
		both, _, clashes, err = o.merged(&c)
		switch {
		case c.Merged && err != nil: // somebody changed it since
			return Difference{Note: reason(err)}
		case c.Merged:
			now = both
		}
	}
	d := Difference{Hunks: hunks(old, now), Clashes: clashes}
	if c.Kind != Deleted {
		d.Content, _ = contentOf(bytes.NewReader(now))
	}
	return d
}

// hunks compares two texts.
func hunks(old, now []byte) []Hunk {
	var list []Hunk
	lines := strings.Split(strings.TrimSuffix(string(diff.Diff("a", old, "b", now)), "\n"), "\n")
	for i := 3; i < len(lines); i++ { // behind the names
		var from, count, to, added int
		h := Hunk{Header: lines[i]}
		if _, err := fmt.Sscanf(h.Header, "@@ -%d,%d +%d,%d @@", &from, &count, &to, &added); err != nil {
			return nil
		}
		h.old, h.from = count, from-1
		if count == 0 {
			h.from = from
		}
		for count > 0 || added > 0 {
			i++
			line := lines[i]
			if line == "" {
				return nil
			}
			h.Lines = append(h.Lines, line)
			if line[0] != '+' {
				count--
			}
			if line[0] != '-' {
				added--
				h.replaced = append(h.replaced, line[1:]+"\n")
			}
			for i+1 < len(lines) && strings.HasPrefix(lines[i+1], `\ No newline`) {
				i++
				h.Lines = append(h.Lines, lines[i])
				if line[0] != '-' {
					h.replaced[len(h.replaced)-1] = line[1:]
				}
			}
		}
		list = append(list, h)
	}
	return list
}

// with is the original with some of the parts, counted from 1.
func with(old []byte, all []Hunk, chosen []int) ([]byte, error) {
	lines := strings.SplitAfter(string(old), "\n")
	var out strings.Builder
	at := 0
	for i, h := range all {
		if !slices.Contains(chosen, i+1) {
			continue
		}
		out.WriteString(strings.Join(lines[at:h.from], ""))
		out.WriteString(strings.Join(h.replaced, ""))
		at = h.from + h.old
	}
	for _, n := range chosen {
		if n < 1 || n > len(all) {
			return nil, fmt.Errorf("there is no part %d: the file has %d", n, len(all))
		}
	}
	out.WriteString(strings.Join(lines[at:], ""))
	return []byte(out.String()), nil
}

// hunks applies parts of one changed file. The layer keeps its own: what is left of the difference
// is still a change.
func (a *applier) hunks(chosen []*Change, parts []int) error {
	if len(chosen) != 1 || chosen[0].Kind != Changed || chosen[0].Type != "file" {
		a.result.skip("parts", "they are of one file, which both the host and the layer have")
		return nil
	}
	c := chosen[0]
	if c.Merged {
		a.result.skip(c.Path, "the host changed it, too: both are merged as a whole")
		return nil
	}
	old, oldErr := text(a.lower, c.Path)
	now, err := text(a.upper, c.Path)
	if err := errors.Join(oldErr, err); err != nil {
		a.result.skip(c.Path, reason(err))
		return nil
	}
	if unlike, _ := a.seen.unlike(c.Path, bytes.NewReader(now)); unlike {
		a.result.skip(c.Path, errShown.Error())
		return nil
	}
	content, err := with(old, hunks(old, now), parts)
	if err != nil {
		a.result.skip(c.Path, err.Error())
		return nil
	}
	return a.batch([]*op{{Path: []byte(c.Path), Put: true, Old: c.lower, change: c, content: content}})
}
