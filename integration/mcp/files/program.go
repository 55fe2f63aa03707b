package files

import (
	"bufio"
	"bytes"
	encoding "encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"syscall"
	"time"
)

// maxTime bounds the tools that look through many files.
const maxTime = 20 * time.Second

// tools are the tools in one working directory.
type tools struct {
	cwd   string
	until time.Time
}

// Program is the program: one request in, one response out. It returns its exit status, which is 0
// whenever there is a response.
func Program(in io.Reader, out io.Writer) int {
	text, err := io.ReadAll(io.LimitReader(in, MaxRequest+1))
	if err != nil {
		return 1
	}
	encoded, err := encodedAnswer(text)
	if err != nil {
		return 1
	}
	if _, err := out.Write(encoded); err != nil {
		return 1
	}
	return 0
}

// encodedAnswer is the response to a request's text, as text.
func encodedAnswer(text []byte) ([]byte, error) {
	encoded, err := encode(answer(text))
	if err == nil && len(encoded) > MaxResponse { // JSON's escapes take up to six times their bytes
		encoded, err = encode(Response{Error: &Error{Code: TooLarge, Message: "the result is too large; ask for less of it"}})
	}
	return encoded, err
}

// Stays is the argument with which the program carries out one request after the other: each of
// them, and each response, behind its length in four bytes, the lowest first.
const Stays = "stay"

// Stay is that program. It ends with its input.
func Stay(in io.Reader, out io.Writer) int {
	// Nobody but its starter gets at what it is asked and what it answers.
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_DUMPABLE, 0, 0); errno != 0 {
		return 1
	}
	requests := bufio.NewReader(in)
	for {
		var size [4]byte
		if _, err := io.ReadFull(requests, size[:]); err != nil {
			return 0
		}
		n := encoding.LittleEndian.Uint32(size[:])
		if n > MaxRequest {
			return 1
		}
		text := make([]byte, n)
		if _, err := io.ReadFull(requests, text); err != nil {
			return 1
		}
		encoded, err := encodedAnswer(text)
		if err != nil {
			return 1
		}
		if _, err := out.Write(append(encoding.LittleEndian.AppendUint32(nil, uint32(len(encoded))), encoded...)); err != nil {
			return 1
		}
		if n > keepsMemory || len(encoded) > keepsMemory {
			debug.FreeOSMemory()
		}
	}
}

// keepsMemory is up to which size a request or response leaves its memory to the next one.
const keepsMemory = 1 << 20

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
