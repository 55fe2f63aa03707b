package mcp

import (
	"bytes"
	"context"
	"errors"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/clairun/clai-sandbox/integration/mcp/files"
	"github.com/clairun/clai-sandbox/sandbox"
)

// fileTimeout bounds a file tool, which bounds itself to less.
const fileTimeout = 30 * time.Second

// FileError is why a file tool did nothing.
type FileError = files.Error

func (s *clientSession) addFiles(server *sdk.Server) {
	addFile(s, server, "read", "Read a file", "Reads a text file, as a whole or a range of its lines.", reads,
		func(in files.Read) files.Request { return files.Request{Read: &in} }, func(r files.Response) *files.ReadResult { return r.Read })
	addFile(s, server, "write", "Write a file", "Writes a file in one step, in place of what is there.", writes,
		func(in files.Write) files.Request { return files.Request{Write: &in} }, func(r files.Response) *files.WriteResult { return r.Write })
	addFile(s, server, "edit", "Edit a file", "Replaces text that occurs exactly once, or everywhere with replaceAll; several edits are done all or none.", writes,
		func(in files.Edit) files.Request { return files.Request{Edit: &in} }, func(r files.Response) *files.EditResult { return r.Edit })
	addFile(s, server, "apply_patch", "Apply a patch", "Applies a patch (*** Begin Patch, or a unified diff) to several files, all or none.", writes,
		func(in files.ApplyPatch) files.Request { return files.Request{ApplyPatch: &in} }, func(r files.Response) *files.ApplyPatchResult { return r.ApplyPatch })
	addFile(s, server, "glob", "Find files", "Finds files by a pattern; ** stands for any directories.", reads,
		func(in files.Glob) files.Request { return files.Request{Glob: &in} }, func(r files.Response) *files.GlobResult { return r.Glob })
	addFile(s, server, "grep", "Search in files", "Searches files for a regular expression (RE2).", reads,
		func(in files.Grep) files.Request { return files.Request{Grep: &in} }, func(r files.Response) *files.GrepResult { return r.Grep })
}

// FileResult is a file tool's answer: a result, or why there is none.
type FileResult[R any] struct {
	Result *R         `json:"result,omitempty"`
	Error  *FileError `json:"error,omitempty"`
}

// addFile offers a tool that a program inside the sandbox carries out: it sees what commands see,
// by the same plan.
func addFile[In, R any](s *clientSession, server *sdk.Server, name, title, description string, k kind, request func(In) files.Request, result func(files.Response) *R) {
	add(s, server, name, title, description, k, func(ctx context.Context, _ *sdk.CallToolRequest, in In) (FileResult[R], string, bool, error) {
		response, err := s.file(ctx, request(in))
		if err != nil {
			return FileResult[R]{}, "", false, err
		}
		out := FileResult[R]{Result: result(response), Error: response.Error}
		if out.Error != nil {
			return out, out.Error.Error(), true, nil
		}
		return out, textOf(out.Result), false, nil
	})
}

// file has a request carried out inside.
func (s *clientSession) file(ctx context.Context, r files.Request) (files.Response, error) {
	if err := s.cannot(); err != nil {
		return files.Response{}, errors.New(explained(err))
	}
	r.InHome(s.options.Session.Caller.Home)
	text, err := files.Encode(r)
	if err != nil {
		return files.Response{}, err
	}
	if !s.begin() {
		return files.Response{}, errors.New("the session has ended")
	}
	defer s.running.Done()
	ctx, stop := joined(ctx, s.ctx)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, fileTimeout)
	defer cancel()
	rm, _, err := s.theRoom()
	if err != nil {
		return files.Response{}, errors.New(explained(err))
	}
	if rm != nil && r.Reads() {
		return s.fileThere(ctx, rm, r, text)
	}
	prepared, err := s.session.PrepareRun(nil)
	if err != nil {
		return files.Response{}, errors.New(explained(err))
	}
	defer prepared.Close()
	for _, path := range files.Targets(r, prepared.Profile.WorkingDirectory) {
		if rule, is := prepared.Plan.SetsAside(sandbox.Host{}, path); is {
			return files.Response{Error: &files.Error{Code: files.Protected, Path: path,
				Message: "is protected, because something outside the sandbox would execute it or do as it says; nothing was changed; a person allows it with --unprotect " +
					sandbox.Quote(rule)}}, nil
		}
	}
	if rm != nil {
		return s.fileThere(ctx, rm, r, text)
	}
	prepared.ShowProgram("files")
	answer := &limited{most: files.MaxResponse}
	_, err = prepared.Run(ctx, sandbox.Launcher{Bwrap: s.bwrap, State: s.options.Session.Caller.Directories().State}, []string{files.Place},
		sandbox.Stdio{In: bytes.NewReader(text), Out: answer})
	if err != nil {
		return files.Response{}, errors.New(explained(err))
	}
	return files.Decode(r, &answer.Buffer)
}

// fileThere has a request carried out in the room.
func (s *clientSession) fileThere(ctx context.Context, rm *room, r files.Request, text []byte) (files.Response, error) {
	answer, err := rm.files.ask(ctx, rm, text, r.Reads())
	if !r.Reads() {
		rm.sandbox.Keep()
	}
	if err != nil {
		return files.Response{}, errors.New(explained(err))
	}
	return files.Decode(r, bytes.NewReader(answer))
}

// limited keeps the beginning of what is written to it.
type limited struct {
	bytes.Buffer
	most int
}

func (l *limited) Write(p []byte) (int, error) {
	if room := l.most + 1 - l.Len(); room > 0 {
		l.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}
