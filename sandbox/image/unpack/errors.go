package unpack

import "github.com/clairun/clai-sandbox/profile/text"

// An EntryError is an entry that cannot be taken.
type EntryError struct {
	Name string // as it stands in the archive
	Why  string
	Err  error // the kernel's reason, if there is one
}

// maxShown is how much of a name people are shown.
const maxShown = 200

func (e *EntryError) Error() string {
	name := e.Name
	if len(name) > maxShown {
		name = name[:maxShown] + "…"
	}
	why := e.Why
	if e.Err != nil {
		why += ": " + e.Err.Error()
	}
	return "entry " + text.Quote(name) + ": " + why
}

func (e *EntryError) Unwrap() error { return e.Err }
