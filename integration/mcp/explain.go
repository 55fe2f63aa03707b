package mcp

import (
	"context"
	"errors"
	"path/filepath"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox"
)

// Explain are the arguments of sandbox_explain.
type Explain struct {
	Path string `json:"path,omitempty" jsonschema:"a path to explain; absent: the sandbox as a whole"`
}

// Explanation answers them.
type Explanation struct {
	Text    string `json:"text"`
	Path    string `json:"path,omitempty"`
	Visible bool   `json:"visible" jsonschema:"of a path: whether the sandbox shows it"`
	Access  string `json:"access,omitempty" jsonschema:"of a path: none, read_only, copy_on_write or read_write"`
}

func (s *clientSession) addExplain(server *sdk.Server) {
	add(s, server, "sandbox_explain", "Explain the sandbox", "Says what the sandbox shows and allows, or why one path is visible, writable or not.", reads,
		func(_ context.Context, _ *sdk.CallToolRequest, in Explain) (Explanation, string, bool, error) {
			if in.Path == "" {
				text := s.about()
				return Explanation{Text: text}, text, false, nil
			}
			e, err := s.explain(in.Path)
			return e, e.Text, false, err
		})
}

func (s *clientSession) explain(path string) (Explanation, error) {
	prepared, err := s.session.Prepare(nil)
	if err != nil {
		return Explanation{}, errors.New(explained(err))
	}
	path, err = s.absolute(path, prepared.Profile)
	if err != nil {
		return Explanation{}, err
	}
	sight := prepared.Plan.Look(sandbox.Host{}, path)
	e := Explanation{Path: path, Visible: sight.Visible, Access: sight.Access.String()}
	why := sight.Why
	if !sight.Visible && sight.Rule == nil {
		// Whether the host has it is not told: that is what a grant would tell.
		why = "nothing grants it; if the host has it, fs_request_grant can ask for it"
	}
	e.Text = profile.Printable(path) + ": " + e.Access + "; " + why
	return e, nil
}

// absolute is a path as an agent means it.
func (s *clientSession) absolute(path string, p profile.Profile) (string, error) {
	if path == "" || len(path) > 4096 || strings.ContainsRune(path, 0) {
		return "", errors.New("path is empty, longer than 4096 bytes, or holds a NUL byte")
	}
	if path[0] != '/' && path[0] != '~' {
		path = filepath.Join(p.Base(), path)
	}
	return profile.ExpandPath(path, p.Home)
}
