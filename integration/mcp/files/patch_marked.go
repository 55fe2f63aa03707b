package files

import "strings"

// The marked form, as agents are taught it:
//
//	*** Begin Patch
//	*** Update File: a.go
//	*** Move to: b.go
//	@@ func main() {
//	 	one := 1
//	-	two := 2
//	+	two := 3
//	*** Add File: c.txt
//	+a line
//	*** Delete File: d.txt
//	*** End Patch

// marked reads it.
func (p *patchText) marked() ([]change, error) {
	if p.allReturns() {
		for i := range p.lines {
			p.lines[i] = strings.TrimSuffix(p.lines[i], "\r")
		}
	}
	for p.more() && strings.TrimSpace(p.peek()) == "" {
		p.next++
	}
	p.next++ // *** Begin Patch
	var changes []change
	for {
		if !p.more() {
			return nil, p.wrong("*** End Patch is missing")
		}
		line := strings.TrimRight(p.peek(), " \t\r")
		word, path, _ := strings.Cut(line, ": ")
		if path = strings.TrimSpace(path); path == "" && strings.HasSuffix(word, " File:") {
			return nil, p.wrong("which file?")
		}
		c := change{path: path, line: p.next + 1}
		var err error
		switch {
		case line == "*** End Patch":
			p.next++
			for ; p.more(); p.next++ {
				if strings.TrimSpace(p.peek()) != "" {
					return nil, p.wrong("something follows *** End Patch")
				}
			}
			return changes, nil
		case word == "*** Add File":
			c.kind = addFile
			p.next++
			err = p.added(&c)
		case word == "*** Delete File":
			c.kind = deleteFile
			p.next++
		case word == "*** Update File":
			c.kind = updateFile
			p.next++
			err = p.updated(&c)
		case line == "":
			p.next++
			continue
		default:
			return nil, p.wrong("*** Add File: PATH, *** Delete File: PATH, *** Update File: PATH or *** End Patch is wanted here")
		}
		if err != nil {
			return nil, err
		}
		changes = append(changes, c)
	}
}

// allReturns reports whether each line ends in a carriage return, so that the patch and not the
// file has them.
func (p *patchText) allReturns() bool {
	for i, line := range p.lines {
		if !strings.HasSuffix(line, "\r") && !(i == len(p.lines)-1) {
			return false
		}
	}
	return len(p.lines) > 1
}

func (p *patchText) added(c *change) error {
	var h hunk
	for ; p.more() && !strings.HasPrefix(p.peek(), "*** "); p.next++ {
		line := p.peek()
		if line == "" && (p.next+1 == len(p.lines) || strings.HasPrefix(p.lines[p.next+1], "*** ")) {
			continue // between two files
		}
		if !strings.HasPrefix(line, "+") {
			return p.wrong("each line of an added file begins with +")
		}
		h.lines = append(h.lines, hunkLine{'+', line[1:]})
	}
	c.hunks = []hunk{h}
	return nil
}

// updated reads the hunks of a file.
func (p *patchText) updated(c *change) error {
	if p.more() && strings.HasPrefix(p.peek(), "*** Move to:") {
		c.moveTo = strings.TrimSpace(strings.TrimPrefix(p.peek(), "*** Move to:"))
		if c.moveTo == "" {
			return p.wrong("move it where?")
		}
		p.next++
	}
	h := hunk{line: p.next + 1}
	end := func() error {
		if len(h.lines) > 0 {
			c.hunks = append(c.hunks, h)
		} else if len(h.anchors) > 0 {
			return p.wrong("a @@ has no lines behind it")
		}
		return nil
	}
	for ; p.more(); p.next++ {
		line := p.peek()
		switch {
		case strings.TrimRight(line, " \t\r") == "*** End of File":
			if len(h.lines) == 0 {
				return p.wrong("*** End of File without lines before it")
			}
			h.atEnd = true
			c.hunks = append(c.hunks, h)
			h = hunk{line: p.next + 2}
		case strings.HasPrefix(line, "*** "):
			if err := end(); err != nil {
				return err
			}
			return p.needed(c)
		case strings.HasPrefix(line, "@@"):
			if len(h.lines) > 0 {
				c.hunks = append(c.hunks, h)
				h = hunk{line: p.next + 1}
			}
			if anchor := strings.TrimSpace(line[2:]); anchor != "" {
				h.anchors = append(h.anchors, anchor)
			}
		case line == "" && p.blankBeforeMark():
		case line == "": // a blank line that stays, whose space was lost on the way
			h.lines = append(h.lines, hunkLine{' ', ""})
		case line[0] == ' ' || line[0] == '+' || line[0] == '-':
			h.lines = append(h.lines, hunkLine{line[0], line[1:]})
		default:
			return p.wrong("a line of a hunk begins with a space, + or -")
		}
	}
	if err := end(); err != nil {
		return err
	}
	return p.needed(c)
}

// blankBeforeMark reports whether a blank line only stands between two files.
func (p *patchText) blankBeforeMark() bool {
	return p.next+1 == len(p.lines) || strings.HasPrefix(p.lines[p.next+1], "*** ") &&
		strings.TrimRight(p.lines[p.next+1], " \t\r") != "*** End of File"
}

// needed refuses an update that does nothing.
func (p *patchText) needed(c *change) error {
	for _, h := range c.hunks {
		for _, line := range h.lines {
			if line.sign != ' ' {
				return nil
			}
		}
	}
	if c.moveTo == "" {
		p.next = c.line - 1
		return p.wrong("nothing of the file is changed")
	}
	return nil
}
