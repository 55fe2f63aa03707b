package grants

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/clairun/clai-sandbox/profile/text"
)

// Limits of a question to a person and of its answer, in bytes, and of its choices.
const (
	MaxQuestion = 2000
	MaxChoice   = 200
	MaxChoices  = 8
)

// A PersonQuestion is what an agent asks a person in words. The answer permits nothing.
type PersonQuestion struct {
	Text    string   `json:"text" jsonschema:"the question, in the agent's words"`
	Choices []string `json:"choices,omitempty" jsonschema:"what can be answered; without them, any text"`
}

// Check says what is wrong with a question.
func (q PersonQuestion) Check() error {
	if err := checkWords("question", q.Text, MaxQuestion); err != nil {
		return err
	}
	if len(q.Choices) > MaxChoices {
		return &InvalidError{"choices", fmt.Sprintf("must be at most %d", MaxChoices)}
	}
	for i, choice := range q.Choices {
		if err := checkWords("choices", choice, MaxChoice); err != nil {
			return err
		}
		if slices.Contains(q.Choices[:i], choice) {
			return &InvalidError{"choices", "are the same twice"}
		}
	}
	return nil
}

func checkWords(name, words string, most int) error {
	if strings.TrimSpace(words) == "" || len(words) > most || !utf8.ValidString(words) {
		return &InvalidError{name, fmt.Sprintf("must be UTF-8 of at most %d bytes, and not empty", most)}
	}
	return nil
}

// Facts are what is shown of a question: all of it, fit for a terminal.
func (q PersonQuestion) Facts() (facts []Fact) {
	for _, line := range strings.Split(q.Text, "\n") {
		facts = append(facts, Fact{"", text.Line(line)})
	}
	for i, choice := range q.Choices {
		facts = append(facts, Fact{fmt.Sprint(i + 1), text.Line(choice)})
	}
	return facts
}

// A PersonAnswer is what came of a question to a person.
type PersonAnswer struct {
	RequestID string  `json:"requestId"`
	Outcome   Outcome `json:"outcome" jsonschema:"answered, denied or timeout"`
	Answer    string  `json:"answer,omitempty"`
	Reason    string  `json:"reason,omitempty" jsonschema:"why there is no answer"`
}

// A Questioner is a broker that passes questions on to a person, too.
type Questioner interface {
	// AskPerson asks within a session, and waits. The question is withdrawn when the context ends.
	AskPerson(ctx context.Context, session string, q PersonQuestion) (PersonAnswer, error)
}

// PersonBody asks a question in words, on the person's socket.
type PersonBody struct {
	Session string `json:"sessionId" jsonschema:"the session that was opened"`
	PersonQuestion
}

// ForQuestion holds a decision against a question to a person. The error is a *DecisionError or an
// *InvalidError.
func (d Decision) ForQuestion(q PersonQuestion) error {
	if err := checkText("reason", d.Reason); err != nil {
		return err
	}
	if err := checkVia(d.Via); err != nil {
		return err
	}
	refuse := func(why string) error { return &DecisionError{Why: why} }
	switch {
	case d.Kind == Deny && d.Answer == "":
		return nil
	case d.Kind != GiveAnswer:
		return refuse("it is a question: kind must be answer, or deny without one")
	case d.Path != "" || d.Access != 0 || d.ExpiresIn != 0 || d.Scope != "" || d.Shown != "" || d.Domain != "" || d.Reason != "":
		return refuse("it is a question: nothing but answer is said of it")
	case len(q.Choices) > 0 && !slices.Contains(q.Choices, d.Answer):
		return refuse("answer must be one of the choices")
	}
	return checkWords("answer", d.Answer, MaxQuestion)
}
