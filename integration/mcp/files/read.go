package files

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// defaultLines is how many lines read returns where nobody says.
	defaultLines = 2000
	// maxRead bounds the text that read returns, in bytes.
	maxRead = 256 << 10
	// maxCounted is how far read counts lines.
	maxCounted = 256 << 20
	// sniffed is how much of a file tells whether it is text.
	sniffed = 8 << 10
)

// Read asks for a part of a text file.
type Read struct {
	Path        string `json:"path" jsonschema:"the file, absolute, below ~ or in the working directory"`
	Offset      int    `json:"offset,omitempty" jsonschema:"the first line, from 1"`
	Limit       int    `json:"limit,omitempty" jsonschema:"how many lines at most; 2000 if absent"`
	LineNumbers bool   `json:"lineNumbers,omitempty" jsonschema:"put each line's number and a tab before it"`
}

// A ReadResult is a part of a text file.
type ReadResult struct {
	Path       string `json:"path" jsonschema:"the file, absolute"`
	Text       string `json:"text" jsonschema:"the lines with their ends"`
	FirstLine  int    `json:"firstLine" jsonschema:"the number of the first line that is returned, from 1"`
	Lines      int    `json:"lines" jsonschema:"how many lines are returned"`
	TotalLines int    `json:"totalLines,omitempty" jsonschema:"how many lines the file has; absent if it is too large to count them"`
	Size       int64  `json:"size" jsonschema:"the file's size in bytes"`
	Truncated  bool   `json:"truncated" jsonschema:"whether the file goes on behind what is returned"`
	CutLine    bool   `json:"cutLine,omitempty" jsonschema:"whether the last line that is returned is not whole"`
	Replaced   bool   `json:"replaced,omitempty" jsonschema:"whether bytes that are not UTF-8 were replaced by U+FFFD"`
}

// open opens a regular file. It never waits for the other end of a pipe, and does not open a device
// at all: on some, that alone does something.
func open(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err == nil {
		err = regular(path, info.Mode())
	}
	if err != nil {
		return nil, failure(path, err)
	}
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, failure(path, err)
	}
	info, err = file.Stat() // what was opened may be something else by now
	if err == nil {
		err = regular(path, info.Mode())
	}
	if err != nil {
		file.Close()
		return nil, failure(path, err)
	}
	return file, nil
}

// load reads a whole file that is to be changed.
func load(path string) ([]byte, error) {
	file, err := open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, MaxFile+1))
	switch {
	case err != nil:
		return nil, failure(path, err)
	case len(text) > MaxFile:
		return nil, &Error{Code: TooLarge, Path: path, Message: fmt.Sprintf("is larger than %d MiB", MaxFile>>20)}
	case bytes.IndexByte(text, 0) >= 0:
		return nil, binary(path)
	}
	return text, nil
}

func binary(path string) *Error {
	return &Error{Code: Binary, Path: path, Message: "is not text: it has NUL bytes in it"}
}

func (t tools) read(r Read) (*ReadResult, error) {
	path, err := absolute(t.cwd, r.Path)
	if err != nil {
		return nil, err
	}
	if r.Offset < 0 || r.Limit < 0 {
		return nil, invalid(path, "offset and limit are not negative")
	}
	file, err := open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, failure(path, err)
	}
	result := &ReadResult{Path: path, FirstLine: max(r.Offset, 1), Size: info.Size()}
	if r.Limit == 0 {
		r.Limit = defaultLines
	}
	text, err := t.lines(file, path, r, result)
	if err != nil {
		return nil, err
	}
	valid := bytes.ToValidUTF8(text, []byte("\uFFFD"))
	result.Replaced = !bytes.Equal(valid, text)
	result.Text = string(valid)
	if r.LineNumbers {
		result.Text = numbered(result.Text, result.FirstLine)
	}
	return result, nil
}

// lines reads the lines that are asked for, and goes on to count the rest. Memory is bounded by
// what is returned, whatever the file is.
func (t tools) lines(file io.Reader, path string, r Read, result *ReadResult) ([]byte, error) {
	var text []byte
	buffer := make([]byte, 64<<10)
	line, counted, partial := 1, 0, false
	for {
		n, err := file.Read(buffer)
		chunk := buffer[:n]
		if counted < sniffed && bytes.IndexByte(chunk[:min(n, sniffed-counted)], 0) >= 0 {
			return nil, binary(path)
		}
		counted += n
		for len(chunk) > 0 {
			piece, whole := chunk, false
			if i := bytes.IndexByte(chunk, '\n'); i >= 0 {
				piece, whole = chunk[:i+1], true
			}
			chunk = chunk[len(piece):]
			wanted := line >= result.FirstLine && line-result.FirstLine < r.Limit
			switch {
			case wanted && !result.Truncated && len(text)+len(piece) <= maxRead:
				text = append(text, piece...)
			case wanted && !result.Truncated:
				text = append(text, piece[:maxRead-len(text)]...)
				result.Truncated, result.CutLine = true, len(text) > 0 && text[len(text)-1] != '\n'
			case line >= result.FirstLine+r.Limit:
				result.Truncated = true
			}
			if partial = !whole; whole {
				line++
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, failure(path, err)
		}
		if counted >= maxCounted || t.late() {
			result.Truncated = true
			result.Lines = countLines(text)
			return text, nil
		}
	}
	result.TotalLines = line - 1
	if partial {
		result.TotalLines++
	}
	result.Lines = countLines(text)
	if result.FirstLine > max(result.TotalLines, 1) {
		return nil, invalid(path, fmt.Sprintf("offset is %d, and the file has %d lines", result.FirstLine, result.TotalLines))
	}
	return text, nil
}

// countLines counts a last line without an end, too.
func countLines(text []byte) int {
	n := bytes.Count(text, []byte{'\n'})
	if len(text) > 0 && text[len(text)-1] != '\n' {
		n++
	}
	return n
}

func numbered(text string, first int) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		fmt.Fprintf(&b, "%6d\t%s", first, line)
		first++
	}
	return b.String()
}
