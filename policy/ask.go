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

// Answers are those that a prompt offers. Where a person wants to be asked always, "always" is no
// answer.
func Answers(ask Ask) []Answer {
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

// RequiresAsk says when a person is asked. A durable answer never silences "always".
func RequiresAsk(security Security, ask Ask, f Facts) bool {
	switch ask {
	case AskOff:
		return false
	case AskOnMiss:
		return security == SecurityAllowlist && !f.Durable && (!f.Understood || !f.Satisfied)
	default:
		return true
	}
}

// A Judgement is whether a command runs once it is known what a person said, if anybody was asked.
type Judgement struct {
	Allowed bool
	Asks    bool   // an answer is needed, or was
	Reason  string // of a denial: the word that events carry
}

// Reasons of a denial, as events and errors carry them.
const (
	ReasonSecurityDeny     = "security=deny"
	ReasonApprovalRequired = "approval-required"
	ReasonAllowlistMiss    = "allowlist-miss"
	ReasonUserDenied       = "user-denied"
	ReasonTimeout          = "approval-timeout"
	ReasonDenyEntry        = "deny-entry"
	ReasonUnsafe           = "inline-code"
	ReasonPolicyUnreadable = "policy-unreadable"
	ReasonEnvironment      = "environment"
	ReasonNoFile           = "no-approvals-file"
)

// Judge answers whether a command may run, with what a person said. AnswerNone is: nobody was asked
// yet.
func Judge(security Security, ask Ask, f Facts, answer Answer) Judgement {
	if security != SecurityAllowlist && security != SecurityFull {
		return Judgement{Reason: ReasonSecurityDeny}
	}
	j := Judgement{Asks: RequiresAsk(security, ask, f)}
	approved := answer == AnswerAllowOnce || answer == AnswerAllowAlways
	switch {
	case answer == AnswerDeny:
		j.Reason = ReasonUserDenied
	case j.Asks && !approved:
		j.Reason = ReasonApprovalRequired
	case security == SecurityAllowlist && !(f.Understood && f.Satisfied) && !f.Durable && !approved:
		j.Reason = ReasonAllowlistMiss
	default:
		j.Allowed = true
	}
	return j
}

// Message is the reason in the words of the protocol.
func (j Judgement) Message() string {
	switch j.Reason {
	case "":
		return ""
	case ReasonSecurityDeny:
		return "SYSTEM_RUN_DISABLED: security=deny"
	case ReasonApprovalRequired:
		return "SYSTEM_RUN_DENIED: approval required"
	case ReasonAllowlistMiss:
		return "SYSTEM_RUN_DENIED: allowlist miss"
	default:
		return "SYSTEM_RUN_DENIED: " + j.Reason
	}
}

// Unanswered decides where an answer was needed and none came. What is unsafe never runs without an
// answer: code in the arguments, and what was not taken apart, in which there may be code.
func Unanswered(fallback Security, f Facts, unsafe bool) (run bool, reason string) {
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
		return false, ReasonAllowlistMiss
	default:
		return false, ReasonTimeout
	}
}
