package files

import (
	"fmt"
	"strings"
)

const (
	maxPatch      = 8 << 20 // bytes
	maxPatchFiles = 1000
)

// A change is what a patch does to one file.
type change struct {
	kind   changeKind
	path   string
	moveTo string // of an update: where the file is then; empty: where it was
	hunks  []hunk
	mode   int // of git's: 0o755 or 0o644, if it says so
	line   int // of the patch
	// noEnd says of a file that is added that its last line has no end.
	noEnd bool
	plain bool // unified: the hunks say their lines
}

type changeKind uint8

const (
	addFile changeKind = iota + 1
	deleteFile
	updateFile
)

// A hunk is lines that stand together, some of which are replaced.
type hunk struct {
	line    int      // of the patch
	anchors []string // lines that come before it, one after the other
	at      int      // of a unified diff: the line of the file where it begins, from 1; 0: wherever it fits
	lines   []hunkLine
	atEnd   bool // the file ends with it
	// oldNoEnd and newNoEnd: the last line before, or after, has no end.
	oldNoEnd, newNoEnd bool
}

// A hunkLine is a line of a hunk: ' ' for one that stays, '-' for one that goes, '+' for one that
// comes.
type hunkLine struct {
	sign byte
	text string
}

// old are the lines of the file that a hunk is about.
func (h *hunk) old() (lines []string) {
	for _, line := range h.lines {
		if line.sign != '+' {
			lines = append(lines, line.text)
		}
	}
	return lines
}

// A patchText is a patch as its lines.
type patchText struct {
	lines []string
	next  int
}

func (p *patchText) more() bool   { return p.next < len(p.lines) }
func (p *patchText) peek() string { return p.lines[p.next] }

func (p *patchText) wrong(format string, args ...any) *Error {
	return &Error{Code: Invalid, Line: p.next + 1, Message: fmt.Sprintf("line %d of the patch: ", p.next+1) + fmt.Sprintf(format, args...)}
}

// parsePatch reads a patch of either kind.
func parsePatch(text string) ([]change, error) {
	if len(text) > maxPatch {
		return nil, &Error{Code: TooLarge, Message: fmt.Sprintf("the patch is larger than %d MiB", maxPatch>>20)}
	}
	p := &patchText{lines: strings.Split(strings.TrimSuffix(text, "\n"), "\n")}
	marked := false
	for _, line := range p.lines {
		if line = strings.TrimSpace(line); line != "" {
			marked = line == "*** Begin Patch"
			break
		}
	}
	var (
		changes []change
		err     error
	)
	if marked {
		changes, err = p.marked()
	} else {
		changes, err = p.unified()
	}
	switch {
	case err != nil:
		return nil, err
	case len(changes) == 0:
		return nil, invalid("", "the patch changes nothing: it is neither \"*** Begin Patch\" with files in it, nor a unified diff")
	case len(changes) > maxPatchFiles:
		return nil, invalid("", fmt.Sprintf("the patch is about more than %d files", maxPatchFiles))
	}
	return changes, nil
}
