package grants

// A Record is what is kept of a request that has ended.
type Record struct {
	Request
	Outcome       Outcome   `json:"outcome"`
	Decision      *Decision `json:"decision,omitempty" jsonschema:"what the person said; absent if nobody did"`
	DecidedBy     string    `json:"decidedBy,omitempty"`
	GrantID       string    `json:"grantId,omitempty"`
	EndedAtUnixMs int64     `json:"endedAtUnixMs"`
}
