package policy

// An Answer is what a person said to a prompt. The zero value is deny.
type Answer uint8

const (
	AnswerDeny Answer = iota
	AnswerAllowOnce
	AnswerAllowAlways
	AnswerNone // nobody could be reached, or nobody answered in time
)

var answerNames = [...]string{"deny", "allow-once", "allow-always", "none"}

func (a Answer) String() string               { return nameOf(answerNames[:], uint8(a)) }
func (a Answer) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// ParseAnswer reads the word of an answer. Without ok it is deny.
func ParseAnswer(text string) (Answer, bool) {
	i, ok := indexFold(answerNames[:AnswerNone], text)
	return Answer(i), ok
}

// answers are those that a prompt offers. With AskAlways, allow-always is not among them.
func answers(ask Ask) []Answer {
	switch ask {
	case AskOnMiss, AskOff:
		return []Answer{AnswerAllowOnce, AnswerAllowAlways, AnswerDeny}
	default:
		return []Answer{AnswerAllowOnce, AnswerDeny}
	}
}

// Facts are what a command's evaluation came to, for the question whether a person is asked.
type Facts struct {
	Understood bool // the line was analysed in full
	Satisfied  bool // every command is allowed
	Durable    bool // by an answer that was given for good
}

// requiresAsk says when a person is asked. A durable answer never silences "always".
func requiresAsk(security Security, ask Ask, f Facts) bool {
	switch ask {
	case AskOff:
		return false
	case AskOnMiss:
		return security == SecurityAllowlist && !f.Durable && (!f.Understood || !f.Satisfied)
	default:
		return true
	}
}

// A judgement is whether a command runs once it is known what a person said, if anybody was asked.
type judgement struct {
	Allowed bool
	Asks    bool   // an answer is needed, or was
	Reason  string // of a denial: the word that events carry
}

// Reasons of a denial, as events and errors carry them.
const (
	ReasonSecurityDeny     = "security=deny"
	ReasonApprovalRequired = "approval-required"
	reasonAllowlistMiss    = "allowlist-miss"
	ReasonUserDenied       = "user-denied"
	ReasonTimeout          = "approval-timeout"
	ReasonDenyEntry        = "deny-entry"
	reasonUnsafe           = "inline-code"
	ReasonPolicyUnreadable = "policy-unreadable"
	ReasonEnvironment      = "environment"
	reasonNoFile           = "no-approvals-file"
)

// judgeAnswer answers whether a command may run, with what a person said. AnswerNone means that
// nobody was asked yet.
func judgeAnswer(security Security, ask Ask, f Facts, answer Answer) judgement {
	if security != SecurityAllowlist && security != SecurityFull {
		return judgement{Reason: ReasonSecurityDeny}
	}
	j := judgement{Asks: requiresAsk(security, ask, f)}
	approved := answer == AnswerAllowOnce || answer == AnswerAllowAlways
	switch {
	case answer == AnswerDeny:
		j.Reason = ReasonUserDenied
	case j.Asks && !approved:
		j.Reason = ReasonApprovalRequired
	case security == SecurityAllowlist && !(f.Understood && f.Satisfied) && !f.Durable && !approved:
		j.Reason = reasonAllowlistMiss
	default:
		j.Allowed = true
	}
	return j
}

// Message is the reason in the words of the protocol.
func (j judgement) Message() string {
	switch j.Reason {
	case "":
		return ""
	case ReasonSecurityDeny:
		return "SYSTEM_RUN_DISABLED: security=deny"
	case ReasonApprovalRequired:
		return "SYSTEM_RUN_DENIED: approval required"
	case reasonAllowlistMiss:
		return "SYSTEM_RUN_DENIED: allowlist miss"
	default:
		return "SYSTEM_RUN_DENIED: " + j.Reason
	}
}

// unanswered decides where an answer was needed and none came. What is unsafe never runs without an
// answer: code in the arguments, and what was not taken apart, in which there may be code.
func unanswered(fallback Security, f Facts, unsafe bool) (run bool, reason string) {
	switch fallback {
	case SecurityFull:
		if unsafe {
			return false, ReasonTimeout
		}
		return true, ""
	case SecurityAllowlist:
		if f.Understood && f.Satisfied && !unsafe {
			return true, ""
		}
		return false, reasonAllowlistMiss
	default:
		return false, ReasonTimeout
	}
}
