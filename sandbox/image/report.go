package image

import "github.com/clairun/clai-sandbox/profile/text"

// A Report says what an image has, and what was not taken as it stood in the archive.
type Report struct {
	Entries int   `json:"entries"`
	Bytes   int64 `json:"bytes"` // of files; what several names share counts once
	// Privileged are files that gave rights to who executes them: a setuid or setgid bit, or
	// capabilities. They do so no more.
	Privileged Some `json:"privileged,omitzero"`
	// LeftOut are devices, FIFOs and sockets where the sandbox has its own.
	LeftOut Some `json:"leftOut,omitzero"`
}

// Some is how many there are, and the first few.
type Some struct {
	Count int      `json:"count"`
	First []string `json:"first,omitempty"` // as people are shown them
}

const maxFirst = 10

// Add counts one more.
func (l *Some) Add(name string) {
	if l.Count++; len(l.First) < maxFirst {
		l.First = append(l.First, text.Value(name))
	}
}
