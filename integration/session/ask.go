package session

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/clairun/clai-sandbox/grants"
)

// Ask asks in the session's name, for a harness that asks outside the sandbox.
func (s *Session) Ask(ctx context.Context, a grants.Asking) (grants.Answer, error) {
	if s.options.Broker == nil {
		return grants.Answer{}, &grants.UnavailableError{Why: "this session was started without a broker", Hint: "start it with --broker"}
	}
	if err := s.join(s.options.Broker); err != nil { // where the last one has ended, one is started
		return grants.Answer{}, err
	}
	return s.options.Broker.Ask(ctx, s.ID(), a)
}

// RunOutside has a command run outside of any sandbox, in the session's name. Where a broker ends
// meanwhile, the next one is asked under the same name: that one knows what became of it.
func (s *Session) RunOutside(ctx context.Context, c grants.Command) (grants.CommandAnswer, error) {
	runner, ok := s.options.Broker.(grants.Runner)
	if !ok {
		return grants.CommandAnswer{}, &grants.UnavailableError{Why: "this session was started without a broker", Hint: "start it with --broker"}
	}
	ctx = grants.WithRequestID(ctx, rand.Text())
	for attempt := 0; ; attempt++ {
		if err := s.join(s.options.Broker); err != nil { // where the last one has ended, one is started
			return grants.CommandAnswer{}, err
		}
		answer, err := runner.RunOutside(ctx, s.ID(), false, c)
		var unknown *grants.UnknownError
		if attempt == 2 || !errors.As(err, &unknown) {
			return answer, err
		}
		select { // it takes a moment to hear that the session's broker is another
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return answer, ctx.Err()
		}
	}
}

// AskPerson asks a person in words, in the session's name.
func (s *Session) AskPerson(ctx context.Context, q grants.PersonQuestion) (grants.PersonAnswer, error) {
	questioner, ok := s.options.Broker.(grants.Questioner)
	if !ok {
		return grants.PersonAnswer{}, &grants.UnavailableError{Why: "this session was started without a broker", Hint: "start it with --broker"}
	}
	if err := s.join(s.options.Broker); err != nil { // where the last one has ended, one is started
		return grants.PersonAnswer{}, err
	}
	return questioner.AskPerson(ctx, s.ID(), q)
}

// WaitOutside waits for the end of a command that was accepted.
func (s *Session) WaitOutside(ctx context.Context, id string) (grants.CommandAnswer, error) {
	runner, ok := s.options.Broker.(grants.Runner)
	if !ok {
		return grants.CommandAnswer{}, &grants.UnknownError{What: "command", ID: id}
	}
	return runner.WaitOutside(ctx, id)
}
