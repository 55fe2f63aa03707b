package sandbox

import (
	"slices"

	"github.com/clairun/clai-sandbox/profile"
)

const (
	// askSocket is where the inside finds the socket that it can ask for grants on.
	askSocket = "/run/clai-sandbox/ask.sock"
	// askDirectory stands last in PATH: nothing of the host's is covered by it.
	askDirectory = "/run/clai-sandbox/bin"
)

// CommandSocket is the socket inside on which an agent has its commands run in another sandbox,
// where there is one (agent --commands-apart).
const CommandSocket = "/run/clai-sandbox/commands.sock"

// askPrograms are this program under its other names: for a path, for a command outside, and for
// words to a person.
var askPrograms = []string{"fs_request_grant", "hostexec", "ask_person"}

// ask shows the socket on which the inside may ask, and the programs that do.
func (b *builder) ask() {
	if b.profile.CommandSocket != "" {
		b.layers.put(Step{Kind: Socket, Path: CommandSocket, Source: b.profile.CommandSocket, Access: profile.ReadOnly, Origin: baseline})
	}
	if b.profile.AskSocket == "" {
		return
	}
	b.layers.put(Step{Kind: Socket, Path: askSocket, Source: b.profile.AskSocket, Access: profile.ReadOnly, Origin: baseline})
	for _, name := range askPrograms {
		b.layers.put(Step{Kind: Bind, Path: askDirectory + "/" + name, Source: ownProgram, Access: profile.ReadOnly, Origin: baseline, file: true})
	}
}

// asking is the command's environment with those programs in its PATH.
func asking(p *profile.Profile, list []profile.Variable) []profile.Variable {
	if p.AskSocket == "" {
		return list
	}
	list = slices.Clone(list)
	for i := range list {
		if list[i].Name == "PATH" {
			list[i].Value += ":" + askDirectory
			return list
		}
	}
	return append(list, profile.Variable{Name: "PATH", Value: "/usr/local/bin:/usr/bin:/bin:" + askDirectory, Origin: baseline})
}
