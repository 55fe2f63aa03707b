package files

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Place is where a sandbox has the program.
const Place = "/run/clai-sandbox/files"

const (
	// MaxRequest bounds a request, in bytes of JSON.
	MaxRequest = 32 << 20
	// MaxResponse bounds a response, in bytes of JSON.
	MaxResponse = 8 << 20
	// MaxFile is the largest file that write, edit and apply_patch make or change, in bytes.
	MaxFile = 16 << 20
	// maxPath is the kernel's limit (PATH_MAX), in bytes.
	maxPath = 4096
)

// A Request is one call of one tool: exactly one field is set.
type Request struct {
	Read       *Read       `json:"read,omitempty"`
	Write      *Write      `json:"write,omitempty"`
	Edit       *Edit       `json:"edit,omitempty"`
	ApplyPatch *ApplyPatch `json:"applyPatch,omitempty"`
	Glob       *Glob       `json:"glob,omitempty"`
	Grep       *Grep       `json:"grep,omitempty"`
}

// InHome has the paths of a request that begin with ~ lead to the home, as they do in a shell. In a
// patch a path is as it stands.
func (r Request) InHome(home string) {
	var paths []*string
	switch {
	case r.Read != nil:
		paths = append(paths, &r.Read.Path)
	case r.Write != nil:
		paths = append(paths, &r.Write.Path)
	case r.Edit != nil:
		paths = append(paths, &r.Edit.Path)
	case r.Glob != nil:
		paths = append(paths, &r.Glob.Path)
	case r.Grep != nil:
		paths = append(paths, &r.Grep.Path)
	}
	for _, path := range paths {
		if *path == "~" || strings.HasPrefix(*path, "~/") {
			*path = home + (*path)[1:]
		}
	}
}

// A Response is what came of a Request: Error, or the result of the tool that was called.
type Response struct {
	Error      *Error            `json:"error,omitempty"`
	Read       *ReadResult       `json:"read,omitempty"`
	Write      *WriteResult      `json:"write,omitempty"`
	Edit       *EditResult       `json:"edit,omitempty"`
	ApplyPatch *ApplyPatchResult `json:"applyPatch,omitempty"`
	Glob       *GlobResult       `json:"glob,omitempty"`
	Grep       *GrepResult       `json:"grep,omitempty"`
}

// Reads reports whether a request changes nothing.
func (r Request) Reads() bool { return r.Read != nil || r.Glob != nil || r.Grep != nil }

// Encode writes a request for the program's standard input. A request that the program would not
// take is an *Error.
func Encode(r Request) ([]byte, error) {
	text, err := encode(r)
	if err == nil && len(text) > MaxRequest {
		err = &Error{Code: TooLarge, Message: fmt.Sprintf("the request is larger than %d MiB", MaxRequest>>20)}
	}
	return text, err
}

// Decode reads what the program wrote for a request.
func Decode(r Request, from io.Reader) (Response, error) {
	var response Response
	text, err := io.ReadAll(io.LimitReader(from, MaxResponse+1))
	if err != nil {
		return response, fmt.Errorf("read the answer of the file tools: %w", err)
	}
	if len(text) > MaxResponse {
		return response, errors.New("the answer of the file tools is too large")
	}
	if err := decodeStrictly(text, &response); err != nil {
		return Response{}, fmt.Errorf("the answer of the file tools: %w", err)
	}
	if response.Error == nil && !response.answers(r) {
		return Response{}, errors.New("the answer of the file tools is to another question")
	}
	return response, nil
}

// answers reports whether the response has the result of the request's tool, and no other.
func (s *Response) answers(r Request) bool {
	return (s.Read != nil) == (r.Read != nil) && (s.Write != nil) == (r.Write != nil) && (s.Edit != nil) == (r.Edit != nil) &&
		(s.ApplyPatch != nil) == (r.ApplyPatch != nil) && (s.Glob != nil) == (r.Glob != nil) && (s.Grep != nil) == (r.Grep != nil)
}

// parse reads a request.
func parse(text []byte) (Request, error) {
	var r Request
	if len(text) > MaxRequest {
		return r, &Error{Code: TooLarge, Message: fmt.Sprintf("the request is larger than %d MiB", MaxRequest>>20)}
	}
	if !utf8.Valid(text) { // encoding/json would replace it, and write what nobody asked for
		return r, invalid("", "the request is not UTF-8")
	}
	if err := decodeStrictly(text, &r); err != nil {
		return Request{}, invalid("", "the request: "+err.Error())
	}
	tools := 0
	for _, set := range []bool{r.Read != nil, r.Write != nil, r.Edit != nil, r.ApplyPatch != nil, r.Glob != nil, r.Grep != nil} {
		if set {
			tools++
		}
	}
	if tools != 1 {
		return Request{}, invalid("", fmt.Sprintf("the request calls %d tools, and must call one", tools))
	}
	return r, nil
}

// decodeStrictly reads one JSON value that has no other fields, and nothing behind it.
func decodeStrictly(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return errors.New("it ends too early")
		}
		return err
	}
	if _, err := decoder.Token(); err != io.EOF {
		return errors.New("something follows its end")
	}
	return nil
}
