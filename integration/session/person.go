package session

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/profile/text"
	"github.com/clairun/clai-sandbox/sandbox"
	"github.com/clairun/clai-sandbox/sandbox/sshagent"
)

// What a person is asked in the sandbox's name: the launcher asks, and not the agent, which could
// put a question in the same words, but nothing would come of the answer.

// What a person answers.
const (
	answerNo     = "no"
	answerYes    = "yes, for this session"
	answerAlways = "always"
)

// askSSH asks whether a key may sign in at a host that nobody has named for it. What is allowed
// always goes into the person's configuration.
func (s *Session) askSSH(ctx context.Context, keys []profile.SSHKey, q sshagent.Question) sshagent.Answer {
	host, err := profile.ParseSSHHost(q.User + "@" + q.Host)
	choices := []string{answerNo, answerYes, answerAlways}
	if err != nil { // under a name that no configuration takes
		choices = choices[:2]
	}
	what := fmt.Sprintf("%s at %s", text.Value(q.Key), text.Value(q.User+"@"+q.Host))
	answer, err := s.AskPerson(ctx, grants.PersonQuestion{Choices: choices, Text: fmt.Sprintf(
		"clai-sandbox asks: a command in the sandbox wants to sign in by ssh with your key %s. The host's key is %s, as in your known_hosts. May it?", what, text.Value(q.HostKey))})
	switch {
	case err != nil:
		return sshagent.Answer{Why: "nobody could be asked: " + err.Error(), Undecided: true}
	case answer.Outcome == grants.OutcomeAnswered && answer.Answer == answerYes:
		return sshagent.Answer{Allowed: true}
	case answer.Outcome == grants.OutcomeAnswered && answer.Answer == answerAlways && len(choices) == 3:
		kept := "kept in " + profile.Printable(s.keepSSHHost(keys, q.Key, host))
		s.notice(sandbox.Notice{Kind: sandbox.NoticeSSHAgent, Text: what + ": allowed always, " + kept})
		return sshagent.Answer{Allowed: true}
	case answer.Outcome == grants.OutcomeAnswered, answer.Outcome == grants.OutcomeDenied:
		return sshagent.Answer{Why: strings.TrimSuffix("a person said no: "+answer.Reason, ": ")}
	}
	return sshagent.Answer{Why: strings.TrimSuffix("nobody answered: "+answer.Reason, ": "), Undecided: true}
}

// keepSSHHost says where it is kept, or why it is not.
func (s *Session) keepSSHHost(keys []profile.SSHKey, key string, host profile.SSHHost) string {
	if i := slices.IndexFunc(keys, func(k profile.SSHKey) bool { return k.Name == key }); i >= 0 && keys[i].File != "" && strings.Contains(key, "/") {
		key = keys[i].File // a path from the working directory means nothing later
	}
	path, err := profile.KeepSSHHost(s.options.Caller.Directories(), agentOf(s.options.Request), key, host)
	if err != nil {
		return "no file (" + err.Error() + "), so for this session alone"
	}
	return path + ", sshKeys"
}

// askPublish asks whether a port at which the command listens is published.
func (s *Session) askPublish(ctx context.Context, port uint16) bool {
	answer, err := s.AskPerson(ctx, grants.PersonQuestion{Choices: []string{answerNo, answerYes}, Text: fmt.Sprintf(
		"clai-sandbox asks: something in the sandbox listens at port %d. May this machine's programs and your browser reach it at 127.0.0.1:%[1]d?", port)})
	return err == nil && answer.Outcome == grants.OutcomeAnswered && answer.Answer == answerYes
}
