package mcp

import (
	"fmt"
	"strings"

	"github.com/clairun/clai-sandbox/integration/mcp/files"
	"github.com/clairun/clai-sandbox/profile"
)

// What a model reads of a result: what a terminal would show, and one line in brackets where there
// is something to say.

// bracketed is the line, or nothing.
func bracketed(said []string) string {
	if len(said) == 0 {
		return ""
	}
	return "[" + strings.Join(said, "; ") + "]\n"
}

// text is a result in words.
func (r Result) text() string {
	var said []string
	switch {
	case r.TimedOut:
		said = append(said, fmt.Sprintf("timed out after %d ms", r.DurationMs))
	case r.Signal != "":
		said = append(said, "ended by "+r.Signal)
	case r.Outcome == "exited" && r.ExitCode != 0:
		said = append(said, fmt.Sprintf("exit status %d", r.ExitCode))
	case r.Outcome != "exited":
		said = append(said, r.Outcome)
	}
	if r.OutputFile != "" {
		said = append(said, fmt.Sprintf("%d bytes in all; read pages through them: path %s", r.OutputBytes, r.OutputFile))
	}
	for _, m := range r.Missing {
		said = append(said, m.Hint)
	}
	for _, n := range r.Notices {
		if n.Kind == r.Outcome { // said already
			said = append(said, n.Text)
			continue
		}
		said = append(said, n.Kind+": "+n.Text)
	}
	output := r.Output
	if output != "" && !strings.HasSuffix(output, "\n") && len(said) > 0 {
		output += "\n"
	}
	return output + bracketed(said)
}

// maxText bounds how much a list of a file tool takes of a text.
const maxText = 100_000

// textOf is the result of a file tool in words.
func textOf(result any) string {
	var b strings.Builder
	var said []string
	switch r := result.(type) {
	case *files.ReadResult:
		b.WriteString(r.Text)
		if r.Truncated {
			next := r.FirstLine + r.Lines
			if r.CutLine {
				next--
			}
			of := ""
			if r.TotalLines > 0 {
				of = fmt.Sprintf(" of %d", r.TotalLines)
			}
			said = append(said, fmt.Sprintf("lines %d to %d%s; read goes on with offset %d", r.FirstLine, r.FirstLine+r.Lines-1, of, max(next, r.FirstLine+1)))
		}
		if r.Replaced {
			said = append(said, "what is not UTF-8 is shown as \uFFFD")
		}
	case *files.WriteResult:
		what := "replaced "
		if r.Created {
			what = "made "
		}
		fmt.Fprintf(&b, "%s%s, %d bytes\n", what, profile.Printable(r.Path), r.Bytes)
	case *files.EditResult:
		fmt.Fprintf(&b, "%s: %d replaced, the first at line %d\n", profile.Printable(r.Path), r.Replacements, r.FirstLine)
	case *files.ApplyPatchResult:
		for _, f := range r.Files {
			moved := ""
			if f.MovedTo != "" {
				moved = " to " + profile.Printable(f.MovedTo)
			}
			fmt.Fprintf(&b, "%s %s%s, +%d -%d\n", f.Change, profile.Printable(f.Path), moved, f.Added, f.Removed)
		}
	case *files.GlobResult:
		for _, f := range r.Files {
			b.WriteString(profile.Printable(f.Path))
			if f.Kind == "directory" {
				b.WriteByte('/')
			}
			b.WriteByte('\n')
		}
		switch {
		case len(r.Files) == 0:
			said = append(said, "nothing fits")
		case r.Truncated:
			said = append(said, fmt.Sprintf("%d of at least %d; a narrower pattern shows the rest", len(r.Files), r.Total))
		}
	case *files.GrepResult:
		for _, m := range r.Matches {
			path := profile.Printable(m.Path)
			for i, line := range m.Before {
				fmt.Fprintf(&b, "%s-%d-%s\n", path, m.Line-len(m.Before)+i, line)
			}
			fmt.Fprintf(&b, "%s:%d:%s\n", path, m.Line, m.Text)
			for i, line := range m.After {
				fmt.Fprintf(&b, "%s-%d-%s\n", path, m.Line+1+i, line)
			}
		}
		switch {
		case len(r.Matches) == 0:
			said = append(said, fmt.Sprintf("nothing fits in %d files", r.FilesSearched))
		case r.Truncated:
			said = append(said, "there may be more; a narrower search shows it")
		}
	}
	text := b.String()
	if _, isFile := result.(*files.ReadResult); len(text) > maxText && !isFile {
		text = strings.ToValidUTF8(text[:maxText], "") + "\n"
		said = append(said, "cut; ask for less of it")
	}
	if text != "" && !strings.HasSuffix(text, "\n") && len(said) > 0 {
		text += "\n"
	}
	return text + bracketed(said)
}
