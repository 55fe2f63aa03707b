package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/profile/text"
)

// AskPersonName is the name under which a sandbox has the program that asks the person in words.
const AskPersonName = "ask_person"

const askPersonUsage = `usage: ask_person QUESTION [--choice TEXT]... [--json]

Asks the person outside a question in words, and prints the answer: any text, or one of the choices, at most 8. The answer permits
nothing in this sandbox. Exit status: 0 answered, 1 not answered, 2 not understood, 3 nobody could be asked.
`

// askPersonProgram is the program with which the inside of a sandbox asks the person in words. It
// returns the exit status.
func askPersonProgram(ctx context.Context, args []string, out, complaints io.Writer) int {
	q, asJSON, err := parseAskPerson(args)
	if errors.Is(err, errHelp) {
		fmt.Fprint(out, askPersonUsage)
		return AskGranted
	}
	if err != nil {
		fmt.Fprintf(complaints, "%s: %s\n%s", AskPersonName, text.Line(err.Error()), askPersonUsage)
		return AskMisused
	}
	answer, err := told(AskPersonName, complaints, func(c *Client) (grants.PersonAnswer, error) { return c.AskPerson(ctx, "", q) })
	if err != nil {
		return complain(complaints, AskPersonName, err)
	}
	answered := answer.Outcome == grants.OutcomeAnswered
	switch {
	case asJSON:
		line, err := json.Marshal(answer)
		if err != nil {
			return complain(complaints, AskPersonName, err)
		}
		fmt.Fprintf(out, "%s\n", text.PlainJSON(line))
	case answered:
		fmt.Fprintln(out, answer.Answer)
	default:
		fmt.Fprintf(complaints, "%s: %s\n", AskPersonName, Sentence(grants.Asking{}, grants.Answer{Outcome: answer.Outcome, Reason: answer.Reason}))
	}
	if !answered {
		return AskDenied
	}
	return AskGranted
}

// parseAskPerson reads the command line.
func parseAskPerson(args []string) (q grants.PersonQuestion, asJSON bool, err error) {
	asked := false
	for i := 0; i < len(args); i++ {
		value, isChoice := strings.CutPrefix(args[i], "--choice=")
		switch {
		case isChoice:
			q.Choices = append(q.Choices, value)
		case args[i] == "--choice":
			if i++; i == len(args) {
				return q, false, errors.New("--choice wants a value")
			}
			q.Choices = append(q.Choices, args[i])
		case args[i] == "--help" || args[i] == "-h":
			return q, false, errHelp
		case args[i] == "--json":
			asJSON = true
		case strings.HasPrefix(args[i], "-"):
			return q, false, fmt.Errorf("there is no option %q", args[i])
		case asked:
			return q, false, fmt.Errorf("one question at a time, in quotes, and not %q as well", args[i])
		default:
			q.Text, asked = args[i], true
		}
	}
	if !asked {
		return q, false, errors.New("which question?")
	}
	return q, asJSON, q.Check()
}
