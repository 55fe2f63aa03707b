package grants

import "github.com/clairun/clai-sandbox/profile"

// A NoticeKind tells programs what a notice is about. The names are the same in every interface of
// the project.
type NoticeKind string

const (
	NoticePathGranted        NoticeKind = "path_granted"
	NoticeDomainGranted      NoticeKind = "domain_granted"
	NoticePathGrantDenied    NoticeKind = "path_grant_denied"
	NoticeSandboxUnavailable NoticeKind = "sandbox_unavailable"
	NoticeCommandDenied      NoticeKind = "command_denied"
	NoticePathDenied         NoticeKind = "path_denied"   // a grant that leads where none may, or to something else than was granted
	NoticePathLeftOut        NoticeKind = "path_left_out" // a grant that leads nowhere now
	NoticeStore              NoticeKind = "grant_store"   // what is stored could not be read, or not all of it
)

// A Notice is one thing that a person should know.
type Notice struct {
	Kind NoticeKind `json:"kind" jsonschema:"what it is about"`
	Path string     `json:"path,omitempty" jsonschema:"the path that it is about"`
	Text string     `json:"text" jsonschema:"for a person, in one line"`
}

// leftOut is the notice about a stored grant that a run does not show.
func leftOut(g Grant, kind NoticeKind, why string) Notice {
	return Notice{Kind: kind, Path: g.Path, Text: "left out: " + profile.Printable(g.Path) + " (grant " + g.ID + "): " + why}
}
