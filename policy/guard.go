package policy

// An Invocation is a command on its way through the gateway to a node.
type Invocation struct {
	CommandRequest
	Raw      string
	Cwd      string
	Agent    string
	Session  string
	Env      map[string]string
	RunID    string
	Approved bool // sent by the caller: it counts for nothing by itself
	Answer   Answer
	Plan     *Plan
}

// A Caller is the connection that sent it.
type Caller struct{ Connection, Device string }

// An ApprovalRecord is a prompt and what became of it.
type ApprovalRecord struct {
	ID        string
	Node      string
	Binding   *Binding
	Plan      *Plan
	ExpiresAt int64 // milliseconds
	By        Caller
	Resolved  bool
	Consumed  bool // an allow-once that was used
	Answer    Answer
}

// A GuardError says why an approval does not let a command through.
type GuardError struct {
	Code  string
	RunID string
	text  string
}

func (e *GuardError) Error() string { return e.text }

func guardError(code, runID, text string) error { return &GuardError{code, runID, text} }

// Guard is what the gateway forwards. Whatever a caller says of approvals is stripped; it is set
// again only for a live record of the same node, the same device (or connection), and the very
// command. The stored plan takes the place of the caller's words. Where consume is true, the caller
// marks the record before it forwards anything.
func Guard(in Invocation, node string, caller Caller, record *ApprovalRecord, now int64) (out Invocation, consume bool, _ error) {
	claimed := in.Approved || in.Answer != AnswerDeny
	out = in
	out.Approved, out.Answer, out.Plan = false, AnswerDeny, nil
	if _, err := newCommandRequest(in.Argv, in.Raw, true); err != nil {
		return Invocation{}, false, err
	}
	if !claimed {
		return out, false, nil
	}
	if err := record.live(in.RunID, node, caller, now); err != nil {
		return Invocation{}, false, err
	}
	if record.Plan != nil {
		plan := record.Plan.Trimmed()
		out.Argv, out.Raw, out.Cwd, out.Agent, out.Session, out.Plan = plan.Argv, plan.CommandText, plan.Cwd, plan.Agent, plan.Session, &plan
	}
	if record.Binding == nil {
		return Invocation{}, false, &BindingError{Code: codeRequestMismatch}
	}
	if err := record.Binding.Check(newBinding(out.Argv, out.Cwd, out.Agent, out.Session, in.Env)); err != nil {
		return Invocation{}, false, err
	}
	switch {
	case !record.Resolved || record.Consumed:
		return Invocation{}, false, guardError("APPROVAL_REQUIRED", in.RunID, "approval required")
	case record.Answer == AnswerAllowOnce:
		consume = true
	case record.Answer == AnswerAllowAlways:
	default:
		return Invocation{}, false, guardError("APPROVAL_REQUIRED", in.RunID, "approval required")
	}
	out.Approved, out.Answer = true, record.Answer
	return out, consume, nil
}

// live says whether a record may be used by this caller for this node, now.
func (r *ApprovalRecord) live(runID, node string, caller Caller, now int64) error {
	switch {
	case runID == "":
		return guardError("MISSING_RUN_ID", runID, "approval override requires params.runId")
	case r == nil || r.ID != runID:
		return guardError("UNKNOWN_APPROVAL_ID", runID, "unknown or expired approval id")
	case now >= r.ExpiresAt:
		return guardError("APPROVAL_EXPIRED", runID, "approval expired")
	case r.Node == "":
		return guardError("APPROVAL_NODE_BINDING_MISSING", runID, "approval id missing node binding")
	case r.Node != node:
		return guardError("APPROVAL_NODE_MISMATCH", runID, "approval id not valid for this node")
	case r.By.Device != "":
		if r.By.Device != caller.Device {
			return guardError("APPROVAL_DEVICE_MISMATCH", runID, "approval id not valid for this device")
		}
	case r.By.Connection == "" || r.By.Connection != caller.Connection:
		return guardError("APPROVAL_CLIENT_MISMATCH", runID, "approval id not valid for this client")
	}
	return nil
}
