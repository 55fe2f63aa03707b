package files

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"
)

// maxTime bounds the tools that look through many files.
const maxTime = 20 * time.Second

// tools are the tools in one working directory.
type tools struct {
	cwd   string
	until time.Time
}

// Program is the program: one request in, one response out. It returns its exit status, which is 0 whenever there is a
// response.
func Program(in io.Reader, out io.Writer) int {
	text, err := io.ReadAll(io.LimitReader(in, MaxRequest+1))
	if err != nil {
		return 1
	}
	response := answer(text)
	encoded, err := encode(response)
	if err == nil && len(encoded) > MaxResponse { // JSON's escapes take up to six times their bytes
		encoded, err = encode(Response{Error: &Error{Code: TooLarge, Message: "the result is too large; ask for less of it"}})
	}
	if err != nil {
		return 1
	}
	if _, err := out.Write(encoded); err != nil {
		return 1
	}
	return 0
}

// encode writes JSON without the escapes for HTML.
func encode(value any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return b.Bytes(), err
}

// answer is the response to a request's text.
func answer(text []byte) Response {
	request, err := parse(text)
	if err != nil {
		return Response{Error: failure("", err)}
	}
	cwd, err := os.Getwd()
	if err != nil {
		return Response{Error: failure("", fmt.Errorf("the working directory: %w", err))}
	}
	return tools{cwd: cwd, until: time.Now().Add(maxTime)}.do(request)
}

// do calls the request's tool.
func (t tools) do(r Request) (s Response) {
	var err error
	switch {
	case r.Read != nil:
		s.Read, err = t.read(*r.Read)
	case r.Write != nil:
		s.Write, err = t.write(*r.Write)
	case r.Edit != nil:
		s.Edit, err = t.edit(*r.Edit)
	case r.ApplyPatch != nil:
		s.ApplyPatch, err = t.applyPatch(*r.ApplyPatch)
	case r.Glob != nil:
		s.Glob, err = t.glob(*r.Glob)
	case r.Grep != nil:
		s.Grep, err = t.grep(*r.Grep)
	}
	if err != nil {
		return Response{Error: failure("", err)}
	}
	return s
}

func (t tools) late() bool { return time.Now().After(t.until) }
