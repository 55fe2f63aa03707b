package mcp

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/profile"
)

// AskPerson are the arguments of ask_person.
type AskPerson struct {
	Question string   `json:"question" jsonschema:"what the person is asked"`
	Choices  []string `json:"choices,omitempty" jsonschema:"what can be answered, at most 8; without them, any text"`
}

// PersonResult is the answer, as far as there is one.
type PersonResult struct {
	Answered bool   `json:"answered"`
	Pending  bool   `json:"pending" jsonschema:"the person has been asked and has not answered yet: call again with the same arguments to go on waiting"`
	Answer   string `json:"answer,omitempty"`
	Outcome  string `json:"outcome,omitempty" jsonschema:"answered, denied or timeout"`
	Reason   string `json:"reason,omitempty"`
	Message  string `json:"message"`
}

// A words is a question in words that waits, across calls.
type words struct {
	done   chan struct{}
	answer grants.PersonAnswer
	err    error
}

func (s *clientSession) addPerson(server *sdk.Server) {
	const name = "ask_person"
	if s.options.Allowed != nil && s.options.Allowed(name) != nil {
		return
	}
	no := false
	s.fields[name] = reflect.TypeFor[PersonResult]()
	sdk.AddTool(server, &sdk.Tool{Name: name, Title: "Ask the person",
		Description: "Asks the person a question in words, with choices or without, and waits for the answer for a while. For what only they can know or decide; the answer permits nothing in the sandbox.",
		Annotations: &sdk.ToolAnnotations{Title: "Ask the person", DestructiveHint: &no, OpenWorldHint: &no}},
		func(ctx context.Context, request *sdk.CallToolRequest, in AskPerson) (*sdk.CallToolResult, any, error) {
			if err := s.begun(); err != nil {
				return nil, nil, err
			}
			stop := progress(ctx, request, "the person has been asked, and has not answered")
			defer stop()
			r, err := s.askPerson(ctx, grants.PersonQuestion{Text: in.Question, Choices: in.Choices})
			if err != nil {
				return nil, nil, err
			}
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: r.Message}}}, r, nil
		})
}

func (s *clientSession) askPerson(ctx context.Context, q grants.PersonQuestion) (PersonResult, error) {
	if err := q.Check(); err != nil {
		return PersonResult{}, err
	}
	key := strings.Join(append([]string{q.Text}, q.Choices...), "\x00")
	w, err := s.wordsOf(key, q)
	if err != nil {
		return PersonResult{}, err
	}
	wait := time.NewTimer(s.askWait())
	defer wait.Stop()
	select {
	case <-w.done:
	case <-wait.C:
		return PersonResult{Pending: true, Message: "The person has been asked and has not answered yet. Go on with something else, or call again to wait."}, nil
	case <-ctx.Done():
		return PersonResult{Pending: true, Message: "The person has been asked and has not answered yet."}, nil
	}
	s.mu.Lock()
	delete(s.questions, key)
	s.mu.Unlock()
	if w.err != nil {
		return PersonResult{}, w.err
	}
	r := PersonResult{Answered: w.answer.Outcome == grants.OutcomeAnswered, Answer: w.answer.Answer, Outcome: string(w.answer.Outcome), Reason: w.answer.Reason}
	r.Message = "The person answers: " + r.Answer
	if !r.Answered {
		r.Message = fmt.Sprintf("No answer (%s): %s", r.Outcome, profile.Printable(r.Reason))
	}
	return r, nil
}

// wordsOf asks, or joins the same question that waits already. It outlives the call.
func (s *clientSession) wordsOf(key string, q grants.PersonQuestion) (*words, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.questions[key]; w != nil {
		return w, nil
	}
	if s.closed || len(s.questions) >= maxAsks {
		return nil, errors.New("too many questions wait for an answer")
	}
	w := &words{done: make(chan struct{})}
	s.questions[key] = w
	s.running.Add(1)
	go func() {
		defer s.running.Done()
		w.answer, w.err = s.session.AskPerson(s.ctx, q)
		close(w.done)
		time.AfterFunc(answered, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.questions[key] == w {
				delete(s.questions, key)
			}
		})
	}()
	return w, nil
}
