package changes

import (
	"errors"
	"slices"
	"strings"
)

// An edit replaces lines of an original, counted from 0, with others, each with its end of line.
type edit struct {
	from, old int
	lines     []string
}

func (e edit) end() int { return e.from + e.old }

// A Clash is a place where both sides changed the original, each in its own way. The lines have no
// ends.
type Clash struct {
	Line                  int // of the original, counted from 1
	Original, Host, Layer []string
}

var (
	errNoOriginal = errors.New("what it was before is not kept")
	errClash      = errors.New("both sides changed the same lines")
	errModes      = errors.New("both sides changed the permissions")
)

// merge brings together what two sides made of an original, where their changes neither overlap nor
// touch.
func merge(original, host, layer []byte) ([]byte, []Clash, error) {
	lines := strings.SplitAfter(string(original), "\n")
	ours, err := edits(original, host)
	theirs, err2 := edits(original, layer)
	if err := errors.Join(err, err2); err != nil {
		return nil, nil, err
	}
	var out strings.Builder
	var clashes []Clash
	at := 0
	for len(ours) > 0 || len(theirs) > 0 {
		from := min(first(ours), first(theirs))
		end := from
		var a, b []edit
		for { // all that touches what is there already
			moreA, moreB := touching(ours, end), touching(theirs, end)
			if moreA+moreB == 0 {
				break
			}
			for _, e := range slices.Concat(ours[:moreA], theirs[:moreB]) {
				end = max(end, e.end())
			}
			a, ours = append(a, ours[:moreA]...), ours[moreA:]
			b, theirs = append(b, theirs[:moreB]...), theirs[moreB:]
		}
		out.WriteString(strings.Join(lines[at:from], ""))
		at = end
		mine, its := replaced(lines, from, end, a), replaced(lines, from, end, b)
		switch {
		case len(b) == 0 || slices.Equal(mine, its):
			out.WriteString(strings.Join(mine, ""))
		case len(a) == 0:
			out.WriteString(strings.Join(its, ""))
		default:
			clashes = append(clashes, Clash{from + 1, shown(lines[from:end]), shown(mine), shown(its)})
		}
	}
	out.WriteString(strings.Join(lines[at:], ""))
	if len(clashes) > 0 {
		return nil, clashes, errClash
	}
	return []byte(out.String()), nil, nil
}

func first(list []edit) int {
	if len(list) == 0 {
		return int(^uint(0) >> 1)
	}
	return list[0].from
}

// touching is how many of the first edits begin before a line, or at it.
func touching(list []edit, end int) (n int) {
	for n < len(list) && list[n].from <= end {
		end = max(end, list[n].end())
		n++
	}
	return n
}

// replaced are the lines of a part of the original after some edits.
func replaced(lines []string, from, end int, list []edit) (now []string) {
	for _, e := range list {
		now = append(append(now, lines[from:e.from]...), e.lines...)
		from = e.end()
	}
	return append(now, lines[from:end]...)
}

// shown are lines without their ends.
func shown(lines []string) []string {
	out := make([]string, 0, len(lines))
	for _, line := range lines {
		if line != "" {
			out = append(out, strings.TrimSuffix(line, "\n"))
		}
	}
	return out
}

// edits is what was done to a text. That they lead from the one to the other is checked, as all
// that is merged goes by them.
func edits(old, now []byte) (list []edit, err error) {
	lines := strings.SplitAfter(string(old), "\n")
	for _, h := range hunks(old, now) {
		at, added, same := h.from, h.replaced, true
		for _, line := range h.Lines {
			switch sign := line[0]; {
			case sign == ' ':
				at, added, same = at+1, added[1:], true
				continue
			case sign != '-' && sign != '+': // that there is no end of line
				continue
			case same:
				list, same = append(list, edit{from: at}), false
			}
			if e := &list[len(list)-1]; line[0] == '-' {
				at++
				e.old++
			} else {
				e.lines, added = append(e.lines, added[0]), added[1:]
			}
		}
	}
	if strings.Join(replaced(lines, 0, len(lines), list), "") != string(now) {
		return nil, errors.New("its lines cannot be compared")
	}
	return list, nil
}

// merged is what becomes of a file that both sides changed: its content and permissions. Where they
// clash, it says where.
func (o *opened) merged(c *Change) (content []byte, mode uint32, clashes []Clash, err error) {
	was := o.original(c.Path)
	if was == nil {
		return nil, 0, nil, errNoOriginal
	}
	host, err := text(o.lower, c.Path)
	layer, err2 := text(o.upper, c.Path)
	if err := errors.Join(err, err2); err != nil {
		return nil, 0, nil, err
	}
	if content, clashes, err = merge(was.content, host, layer); err != nil {
		return nil, 0, clashes, err
	}
	switch mode = c.lower.permission(); {
	case c.Mode&0o777 == was.Mode&0o777 || c.Mode&0o777 == mode&0o777:
	case mode == was.Mode:
		mode = c.Mode & 0o777
	default:
		return nil, 0, nil, errModes
	}
	return content, mode, nil, nil
}
