package files

import (
	"bytes"
	"fmt"
	"sort"
	"strings"
)

// A document is a text file in lines.
type document struct {
	mark  string // the byte order mark, if there is one
	lines []string
	ends  []string // of each line: "\n", "\r\n", or nothing at the last
}

func newDocument(text []byte) *document {
	d := &document{}
	if rest, ok := bytes.CutPrefix(text, []byte("\uFEFF")); ok {
		d.mark, text = "\uFEFF", rest
	}
	for line := range bytes.Lines(text) {
		content, end := string(line), ""
		if strings.HasSuffix(content, "\n") {
			content, end = content[:len(content)-1], "\n"
			if strings.HasSuffix(content, "\r") {
				content, end = content[:len(content)-1], "\r\n"
			}
		}
		d.lines, d.ends = append(d.lines, content), append(d.ends, end)
	}
	return d
}

func (d *document) bytes() []byte {
	var b bytes.Buffer
	b.WriteString(d.mark)
	for i, line := range d.lines {
		b.WriteString(line)
		b.WriteString(d.ends[i])
	}
	return b.Bytes()
}

// end is the line end that most lines have.
func (d *document) end() string {
	returns := 0
	for _, end := range d.ends {
		if end == "\r\n" {
			returns++
		}
	}
	if 2*returns > len(d.ends) {
		return "\r\n"
	}
	return "\n"
}

// sameLine compares a line of a hunk with one of the file: exactly, but for the carriage return of
// a line end, which may stand in either; or loosely, without white space at the end.
func (d *document) sameLine(text string, at int, loose bool) bool {
	text, line := strings.TrimPrefix(text, "\uFEFF"), d.lines[at]
	if loose {
		return strings.TrimRight(text, " \t\r") == strings.TrimRight(line, " \t\r")
	}
	return text == line || strings.TrimSuffix(text, "\r") == line && (d.ends[at] == "\r\n" || d.ends[at] == "")
}

func (d *document) fits(old []string, at int, loose bool) bool {
	if at < 0 || at+len(old) > len(d.lines) {
		return false
	}
	for i, text := range old {
		if !d.sameLine(text, at+i, loose) {
			return false
		}
	}
	return true
}

// A place is where a hunk goes.
type place struct {
	at, length int
	hunk       *hunk
}

// patched puts the hunks into a document. All places are found in the file as it was, in the order
// of the hunks.
func (d *document) patched(path string, c *change, note *Patched) error {
	from, shift := 0, 0
	places := make([]place, 0, len(c.hunks))
	budget := 20_000_000 // comparisons of lines, for a patch that fits nearly everywhere
	for i := range c.hunks {
		h := &c.hunks[i]
		old := h.old()
		at, loose, failed := d.locate(h, old, from, shift, &budget)
		if failed != nil {
			failed.Path = path
			failed.Message = fmt.Sprintf("the hunk at line %d of the patch: %s", h.line, failed.Message)
			return failed
		}
		note.Loose = note.Loose || loose
		if h.at > 0 {
			shift = at - (h.at - 1)
			note.Moved = note.Moved || shift != 0
		}
		places = append(places, place{at, len(old), h})
		from = at + len(old)
	}
	d.replace(places)
	return nil
}

// locate finds where a hunk goes, at or behind the line from. A unified one goes to the line that
// it names, as far as the file has not moved; else to the only place that fits. Where several fit,
// none is taken.
func (d *document) locate(h *hunk, old []string, from, shift int, budget *int) (at int, loose bool, failed *Error) {
	for _, anchor := range h.anchors {
		next := d.anchor(anchor, from)
		if next < 0 {
			return 0, false, &Error{Code: NoMatch, Message: fmt.Sprintf("no line %q behind line %d", cut(anchor), from)}
		}
		from = next + 1
	}
	if len(old) == 0 {
		at, failed := d.insertion(h, from, shift)
		return at, false, failed
	}
	for _, loose := range []bool{false, true} {
		if named := h.at - 1 + shift; h.at > 0 && named >= from && d.fits(old, named, loose) {
			if !h.oldNoEnd || named+len(old) == len(d.lines) {
				return named, loose, nil
			}
		}
		var found []int
		for at := from; at+len(old) <= len(d.lines) && len(found) < maxMatches; at++ {
			if h.atEnd && at+len(old) != len(d.lines) {
				continue
			}
			n := 0
			for n < len(old) && d.sameLine(old[n], at+n, loose) {
				n++
			}
			if *budget -= n + 1; *budget < 0 {
				return 0, false, &Error{Code: TooLarge, Message: "it takes too long to find its place; name more of what is around it"}
			}
			if n == len(old) {
				found = append(found, at)
			}
		}
		switch {
		case len(found) == 1, len(found) > 1 && len(h.anchors) > 0:
			return found[0], loose, nil
		case len(found) > 1:
			return 0, false, &Error{Code: Ambiguous, Matches: len(found),
				Message: fmt.Sprintf("its lines are there %d times, at lines %s; put more lines around it, or a @@ line before it that names where", len(found), lineList(found))}
		}
	}
	return 0, false, d.misfit(old, from)
}

// insertion is where a hunk goes that is about no line of the file.
func (d *document) insertion(h *hunk, from, shift int) (int, *Error) {
	switch {
	case h.at > 0:
		at := h.at - 1 + shift
		if at < from || at > len(d.lines) {
			return 0, &Error{Code: NoMatch, Message: fmt.Sprintf("it inserts at line %d, and the file has %d lines", h.at, len(d.lines))}
		}
		return at, nil
	case len(h.anchors) > 0 && !h.atEnd:
		return from, nil
	}
	return len(d.lines), nil
}

// anchor finds the line that a @@ names, at or behind from: the whole line, but for white space
// around it.
func (d *document) anchor(text string, from int) int {
	for i := from; i < len(d.lines); i++ {
		if strings.TrimSpace(d.lines[i]) == text {
			return i
		}
	}
	return -1
}

// misfit tells how far the best place fits.
func (d *document) misfit(old []string, from int) *Error {
	failed := &Error{Code: NoMatch, Message: "its lines are not in the file"}
	if from > 0 {
		failed.Message += fmt.Sprintf(" behind line %d", from)
	}
	best, line := 0, 0
	for at := from; at < min(len(d.lines), from+100_000); at++ {
		n := 0
		for n < len(old) && at+n < len(d.lines) && d.sameLine(old[n], at+n, true) {
			n++
		}
		if n > best {
			best, line = n, at+n+1
		}
	}
	if best == len(old) {
		failed.Message = fmt.Sprintf("its lines are in the file before line %d, but not at its end", line)
		return failed
	}
	if best > 0 && line <= len(d.lines) {
		failed.Line = line
		failed.Message += fmt.Sprintf("; %d of them fit before line %d, which is %q where the patch has %q", best, line, cut(d.lines[line-1]), cut(old[best]))
		return failed
	}
	wanted := ""
	for _, text := range old {
		if wanted = strings.TrimSpace(text); wanted != "" {
			break
		}
	}
	if near, _ := nearest(d.bytes(), wanted); near > 0 {
		failed.Line = near
		failed.Message += fmt.Sprintf("; line %d is the nearest to its first", near)
	}
	return failed
}

func cut(text string) string { return squeeze(text, 80) }

func lineList(places []int) string {
	var b strings.Builder
	for i, at := range places[:min(len(places), 10)] {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprint(&b, at+1)
	}
	if len(places) > 10 {
		b.WriteString(", …")
	}
	return b.String()
}

// replace makes the changes. Lines that stay keep their bytes.
func (d *document) replace(places []place) {
	sort.SliceStable(places, func(i, j int) bool { return places[i].at < places[j].at })
	common, known := d.end(), knowsEnds(places)
	endless := len(d.ends) > 0 && d.ends[len(d.ends)-1] == ""
	fresh := &document{mark: d.mark}
	next := 0
	for _, p := range places {
		fresh.take(d, next, p.at)
		adapt := !known && p.adapts(d)
		at := p.at
		for _, line := range p.hunk.lines {
			switch line.sign {
			case ' ':
				fresh.take(d, at, at+1)
				at++
			case '-':
				at++
			case '+':
				text, end := line.text, "\n"
				if fresh.mark == "" && len(fresh.lines) == 0 && strings.HasPrefix(text, "\uFEFF") {
					fresh.mark = "\uFEFF"
				}
				text = strings.TrimPrefix(text, "\uFEFF")
				if strings.HasSuffix(text, "\r") {
					text, end = strings.TrimSuffix(text, "\r"), "\r\n"
				} else if adapt {
					end = common
				}
				fresh.lines, fresh.ends = append(fresh.lines, text), append(fresh.ends, end)
			}
		}
		next = p.at + p.length
		if next == len(d.lines) {
			switch {
			case p.hunk.newNoEnd:
				endless = true
			case p.hunk.oldNoEnd:
				endless = false
			}
		}
	}
	fresh.take(d, next, len(d.lines))
	for i, end := range fresh.ends { // a last line without an end may have become another
		if end == "" {
			fresh.ends[i] = common
		}
	}
	if n := len(fresh.ends); n > 0 && endless {
		fresh.ends[n-1] = ""
	}
	*d = *fresh
}

func (d *document) take(from *document, first, end int) {
	d.lines, d.ends = append(d.lines, from.lines[first:end]...), append(d.ends, from.ends[first:end]...)
}

// knowsEnds reports whether a hunk has a carriage return in it: then its patch was made of files
// that have them, and says where they are.
func knowsEnds(places []place) bool {
	for _, p := range places {
		for _, line := range p.hunk.lines {
			if strings.HasSuffix(line.text, "\r") {
				return true
			}
		}
	}
	return false
}

// adapts reports whether what comes in gets the file's line ends: where the hunk shows that it does
// not know them, because a line of it has no carriage return where the file has one, or because it
// shows no line at all.
func (p place) adapts(d *document) bool {
	at, known := p.at, false
	for _, line := range p.hunk.lines {
		if line.sign == '+' {
			continue
		}
		if strings.HasSuffix(line.text, "\r") == (d.ends[at] == "\r\n") {
			known = true
		} else if d.ends[at] == "\r\n" {
			return true
		}
		at++
	}
	return !known
}
