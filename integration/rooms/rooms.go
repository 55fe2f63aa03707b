// Package rooms lets a person reach the sandboxes that stay: list them, see what runs there, end
// one, and have a command of their own in it.
//
// Whoever has such a sandbox listens at a socket in a directory that no sandbox is shown, one for
// each, and takes calls of the same user alone, and none from another mount or user namespace, as
// those of a sandbox's commands would be. A call is one message of JSON, with the streams of the
// command beside it; so are the answers. Bytes of a command never pass through them.
//
// A Door is such a socket for one sandbox instead, in which an agent is: it can have its commands
// run in another, and no more than that.
package rooms

import (
	"crypto/rand"
	"encoding/hex"
	"os"
	"time"
)

// Directory is the name of the directory of the sockets, beside the broker's.
const Directory = "rooms"

// About says whose a sandbox is.
type About struct {
	Agent     string `json:"agent"`
	Workspace string `json:"workspace"`
	Command   string `json:"command" jsonschema:"what has it"`
	Shell     string `json:"shell" jsonschema:"what a person gets who attaches"`
}

// A Room is a sandbox that stays.
type Room struct {
	ID string `json:"id"`
	About
	PID       int       `json:"pid" jsonschema:"of the program that has it"`
	Began     time.Time `json:"began"`
	Processes []Process `json:"processes" jsonschema:"what runs in it, at most 100"`
}

// A Process is one that runs in a sandbox.
type Process struct {
	PID     int    `json:"pid" jsonschema:"as the sandbox sees it"`
	Command string `json:"command" jsonschema:"its words, as it says itself; at most 200 bytes"`
}

// What can be asked for.
const (
	doShow    = "show"
	doStop    = "stop"
	doStart   = "start"
	doPublish = "publish"
)

// A Command is what is started in a sandbox.
type Command struct {
	Argv     []string    // none: a shell, as About names it; an empty first word is that shell, too
	Dir      string      // where it starts, absolute; empty: the sandbox's own
	Terminal bool        // the streams are one terminal, of which nobody has control
	Streams  [3]*os.File // pipes, or that terminal
	Extra    *os.File    // a pipe that becomes its descriptor ExtraFD; nil: none
}

// ExtraFD is the descriptor of a command's further pipe: one that every shell can name.
const ExtraFD = 9

// A call is what a person asks for.
type call struct {
	Do       string   `json:"do"`
	Argv     []string `json:"argv,omitempty"`     // of start; none: the shell
	Dir      string   `json:"dir,omitempty"`      // of start
	Terminal bool     `json:"terminal,omitempty"` // of start: the streams are one terminal, of which nobody else has control
	Term     string   `json:"term,omitempty"`     // what kind of terminal it is
	Port     string   `json:"port,omitempty"`     // of publish: as profile.ParsePublished has it
}

// An answer is what became of a call. A start is answered twice: when the command was started, and
// when it has ended.
type answer struct {
	Room     *Room `json:"room,omitempty"`
	ExitCode int   `json:"exitCode,omitempty"`
	// Notices are what a person would be told now that the command has ended, at most maxNotices.
	Notices []string `json:"notices,omitempty"`
	Error   string   `json:"error,omitempty"`
	Ended   bool     `json:"ended,omitempty"`  // the sandbox has ended, or is about to; nothing was run
	Status  int      `json:"status,omitempty"` // an exit status of this program's own, with Error: as run has them
}

const (
	// maxMessage bounds a message, in bytes.
	maxMessage = 160 << 10
	// maxCalls bounds those that are served at once in one sandbox.
	maxCalls = 16
	// timeout bounds the wait for what the other end says at once.
	timeout = 5 * time.Second
	// maxRooms bounds how many are listed.
	maxRooms = 1000
	// maxNotices bounds what is told with one command's end, and maxNotice how long each is, in
	// bytes.
	maxNotices, maxNotice = 20, 1000
)

func newID() string { return newName('b') }

// newName is one that nothing else in the directory has: a letter for what it is, and a number.
func newName(what byte) string {
	var random [4]byte
	rand.Read(random[:])
	return string(what) + hex.EncodeToString(random[:])
}

// isID reports whether something can be the name of one.
func isID(id string) bool { return isName(id, 'b') }

func isName(id string, what byte) bool {
	if len(id) != 9 || id[0] != what {
		return false
	}
	_, err := hex.DecodeString(id[1:])
	return err == nil
}
