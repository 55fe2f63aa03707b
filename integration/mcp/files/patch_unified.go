package files

import (
	"strconv"
	"strings"
)

// unified reads what diff -u and git diff write. Whatever stands before a file's header is passed
// over, as patch(1) does: a mail, "Index:" lines.
func (p *patchText) unified() ([]change, error) {
	var changes []change
	for p.more() {
		line := p.peek()
		switch {
		case strings.HasPrefix(line, "diff --git "):
			c, err := p.gitFile()
			if err != nil {
				return nil, err
			}
			changes = append(changes, c)
		case strings.HasPrefix(line, "--- ") && p.next+1 < len(p.lines) && strings.HasPrefix(p.lines[p.next+1], "+++ "):
			c := change{line: p.next + 1}
			if err := p.header(&c); err != nil {
				return nil, err
			}
			changes = append(changes, c)
		case strings.HasPrefix(line, "@@ -"):
			return nil, p.wrong("a hunk without a file: --- and +++ are wanted before it")
		default:
			p.next++
		}
	}
	return changes, nil
}

// gitFile reads git's own header lines, and what follows.
func (p *patchText) gitFile() (change, error) {
	c := change{kind: updateFile, line: p.next + 1, plain: true}
	first := p.peek()
	from := ""
	for p.next++; p.more(); p.next++ {
		line := strings.TrimSuffix(p.peek(), "\r")
		switch {
		case strings.HasPrefix(line, "new file mode "):
			c.kind, c.mode = addFile, gitMode(line)
		case strings.HasPrefix(line, "deleted file mode "):
			c.kind = deleteFile
		case strings.HasPrefix(line, "new mode "):
			c.mode = gitMode(line)
		case strings.HasPrefix(line, "rename from "):
			from = unquoted(strings.TrimPrefix(line, "rename from "))
		case strings.HasPrefix(line, "rename to "):
			c.moveTo = unquoted(strings.TrimPrefix(line, "rename to "))
		case strings.HasPrefix(line, "copy from "):
			return c, p.wrong("a copy, which no file tool makes: add the file with its content")
		case strings.HasPrefix(line, "GIT binary patch") || strings.HasPrefix(line, "Binary files "):
			return c, p.wrong("a binary file cannot be patched")
		case strings.HasPrefix(line, "old mode ") || strings.HasPrefix(line, "index ") || strings.HasPrefix(line, "similarity index ") ||
			strings.HasPrefix(line, "dissimilarity index "):
		case strings.HasPrefix(line, "--- "):
			return c, p.header(&c)
		default:
			goto headless
		}
	}
headless: // only its name or mode changes, or it is empty
	if c.path = from; c.path == "" {
		c.path = samePath(strings.TrimSuffix(strings.TrimPrefix(first, "diff --git "), "\r"))
	}
	if c.path == "" || c.kind == updateFile && c.moveTo == "" && c.mode == 0 {
		p.next = c.line - 1
		return c, p.wrong("it changes nothing, or not clearly which file")
	}
	if c.kind == addFile {
		c.hunks = []hunk{{}}
	}
	return c, nil
}

func gitMode(line string) int {
	if strings.HasSuffix(line, "100755") {
		return 0o755
	}
	return 0o644
}

// samePath takes "a/x b/x" apart.
func samePath(both string) string {
	if strings.HasPrefix(both, `"`) {
		if end := strings.Index(both, `" "`); end > 0 {
			return strings.TrimPrefix(unquoted(both[:end+1]), "a/")
		}
		return ""
	}
	half := len(both) / 2
	if len(both)%2 == 0 || half < 3 || both[half] != ' ' || !strings.HasPrefix(both, "a/") || !strings.HasPrefix(both[half+1:], "b/") || both[2:half] != both[half+3:] {
		return ""
	}
	return both[2:half]
}

// header reads --- and +++ and the hunks.
func (p *patchText) header(c *change) error {
	if !p.more() || p.next+1 >= len(p.lines) || !strings.HasPrefix(p.lines[p.next+1], "+++ ") {
		return p.wrong("+++ is wanted behind ---")
	}
	before, after := headerPath(p.peek()), headerPath(p.lines[p.next+1])
	p.next += 2
	c.plain = true
	if strings.HasPrefix(before, "a/") && (strings.HasPrefix(after, "b/") || after == "/dev/null") ||
		strings.HasPrefix(after, "b/") && before == "/dev/null" {
		before, after = strings.TrimPrefix(before, "a/"), strings.TrimPrefix(after, "b/")
	}
	switch {
	case before == "" || after == "" || before == "/dev/null" && after == "/dev/null":
		p.next -= 2
		return p.wrong("--- and +++ name the file")
	case before == "/dev/null":
		c.kind, c.path = addFile, after
	case after == "/dev/null":
		c.kind, c.path = deleteFile, before
	default:
		c.kind, c.path = updateFile, before
		if c.moveTo == "" && before != after {
			// diff -u a.orig a, and the like: the file is the one that is named after it, and
			// nothing is moved.
			c.path = after
		}
	}
	for p.more() && strings.HasPrefix(p.peek(), "@@ ") {
		h, err := p.hunk()
		if err != nil {
			return err
		}
		c.hunks = append(c.hunks, h)
	}
	if len(c.hunks) == 0 {
		return p.wrong("@@ -LINE,COUNT +LINE,COUNT @@ is wanted here")
	}
	if c.kind == addFile {
		c.noEnd = c.hunks[len(c.hunks)-1].newNoEnd
		for _, line := range c.hunks[0].lines {
			if line.sign != '+' {
				return p.wrong("a file that is added has only lines with +")
			}
		}
		if len(c.hunks) > 1 {
			return p.wrong("a file that is added has one hunk")
		}
	}
	return nil
}

// headerPath is the path behind --- or +++, without a time behind it.
func headerPath(line string) string {
	path := strings.TrimSuffix(line[4:], "\r")
	if strings.HasPrefix(path, `"`) {
		if end := strings.LastIndexByte(path, '"'); end > 0 {
			return unquoted(path[:end+1])
		}
	}
	path, _, _ = strings.Cut(path, "\t")
	return strings.TrimRight(path, " ")
}

// unquoted reads a path as git writes it.
func unquoted(path string) string {
	if !strings.HasPrefix(path, `"`) {
		return path
	}
	if plain, err := strconv.Unquote(path); err == nil {
		return plain
	}
	return ""
}

// hunk reads one, whose header says how many lines it has.
func (p *patchText) hunk() (hunk, error) {
	h := hunk{line: p.next + 1}
	start, before, after, ok := hunkCounts(p.peek())
	if !ok {
		return h, p.wrong("not the beginning of a hunk, which is @@ -LINE,COUNT +LINE,COUNT @@")
	}
	if h.at = start; before == 0 {
		h.at++ // it comes behind that line
	}
	wantedBefore, wantedAfter := before, after
	for p.next++; before > 0 || after > 0; p.next++ {
		if !p.more() || strings.HasPrefix(p.peek(), "@@ ") || strings.HasPrefix(p.peek(), "diff --git ") {
			return h, p.wrong("the hunk of line %d ends too early: its header says %d lines before and %d after; -%d and +%d are missing",
				h.line, wantedBefore, wantedAfter, before, after)
		}
		line := p.peek()
		if line == "" {
			line = " "
		}
		switch line[0] {
		case ' ':
			before, after = before-1, after-1
		case '-':
			before--
		case '+':
			after--
		case '\\':
			p.noEnd(&h)
			continue
		default:
			return h, p.wrong("a line of a hunk begins with a space, + or -")
		}
		if before < 0 || after < 0 {
			return h, p.wrong("the hunk of line %d has more lines than its header says: %d before and %d after", h.line, wantedBefore, wantedAfter)
		}
		h.lines = append(h.lines, hunkLine{line[0], line[1:]})
	}
	if p.more() && strings.HasPrefix(p.peek(), `\`) {
		p.noEnd(&h)
		p.next++
	}
	if p.more() && p.peek() != "" && strings.ContainsRune(" +-", rune(p.peek()[0])) && !strings.HasPrefix(p.peek(), "--- ") && p.peek() != "-- " {
		return h, p.wrong("the hunk of line %d has more lines than its header says: %d before and %d after", h.line, wantedBefore, wantedAfter)
	}
	return h, nil
}

// noEnd takes note of "\ No newline at end of file", which is about the line before it.
func (p *patchText) noEnd(h *hunk) {
	if len(h.lines) == 0 {
		return
	}
	sign := h.lines[len(h.lines)-1].sign
	h.oldNoEnd = h.oldNoEnd || sign != '+'
	h.newNoEnd = h.newNoEnd || sign != '-'
}

// hunkCounts reads @@ -1,2 +3,4 @@: where it begins before, and how many lines it has before and
// after.
func hunkCounts(line string) (start, before, after int, ok bool) {
	rest, ok := strings.CutPrefix(line, "@@ -")
	if !ok {
		return 0, 0, 0, false
	}
	old, rest, ok1 := strings.Cut(rest, " +")
	fresh, _, ok2 := strings.Cut(rest, " @@")
	if !ok1 || !ok2 {
		return 0, 0, 0, false
	}
	start, before, ok1 = lineRange(old)
	_, after, ok2 = lineRange(fresh)
	return start, before, after, ok1 && ok2
}

func lineRange(text string) (start, count int, ok bool) {
	first, second, two := strings.Cut(text, ",")
	start, err := strconv.Atoi(first)
	if count = 1; err == nil && two {
		count, err = strconv.Atoi(second)
	}
	return start, count, err == nil && start >= 0 && count >= 0 && start < 1<<30 && count < 1<<30
}
