package profile

import (
	"fmt"
	"slices"
)

// outsideConfig is what the configuration says about commands that leave the sandbox. Package
// policy decides; the approvals file of the host that runs them can only be stricter.
type outsideConfig struct {
	Host             *outsideHost              `json:"host,omitempty" jsonschema:"where commands run: sandbox, gateway (this machine, outside of any sandbox), node (another machine), or auto (where a request says); if nobody says, sandbox"`
	Security         *outsideSecurity          `json:"security,omitempty" jsonschema:"what runs outside a sandbox: nothing (deny), what the approvals file of that host lists (allowlist), everything (full); if nobody says, deny"`
	Ask              *outsideAsk               `json:"ask,omitempty" jsonschema:"when a person is asked: never (off), where the list does not answer (on-miss), always; if nobody says, on-miss"`
	Node             *string                   `json:"node,omitempty" jsonschema:"which node, where host is node"`
	StrictInlineEval *bool                     `json:"strictInlineEval,omitempty" jsonschema:"whether a person is asked about code in a command's arguments (python3 -c), whatever the list says; if nobody says, true"`
	SafeBins         *[]safeBin                `json:"safeBins,omitempty" jsonschema:"programs that need no entry where they only read their standard input; if nobody says, cut uniq head tail tr wc"`
	Unattended       *outsideUnattended        `json:"unattended,omitempty" jsonschema:"what becomes of a session's command that needs an answer while nobody looks at the requests and no desktop shows them: it waits (queue), or what askFallback says happens at once (fallback); if nobody says, queue"`
	Approvers        *[]approver               `json:"approvers,omitempty" jsonschema:"who may say /exec, /elevated and /approve in a chat, by the names that the agent's backend knows them by; if nobody says, only whoever uses clai-sandbox themselves"`
	SafeBinProfiles  map[string]SafeBinProfile `json:"safeBinProfiles,omitempty" jsonschema:"by the program's name, which arguments it may have as a safe program; takes the place of the built-in profile"`
}

// A SafeBinProfile says which arguments a program may have that is run for its standard input
// alone.
type SafeBinProfile struct {
	MinPositional     int      `json:"minPositional,omitempty" jsonschema:"the least number of arguments that are no flags"`
	MaxPositional     int      `json:"maxPositional,omitempty" jsonschema:"the greatest; if not said, 0"`
	AllowedValueFlags []string `json:"allowedValueFlags,omitempty" jsonschema:"flags whose value must be there"`
	BooleanFlags      []string `json:"booleanFlags,omitempty" jsonschema:"flags without a value; -5 stands for every number"`
	DeniedFlags       []string `json:"deniedFlags,omitempty" jsonschema:"flags that an abbreviation must not mean"`
}

type (
	outsideHost       string
	outsideSecurity   string
	outsideAsk        string
	outsideUnattended string
	safeBin           string
	approver          string
)

var (
	outsideHosts       = []string{"sandbox", "gateway", "node", "auto"}
	outsideSecurities  = []string{"deny", "allowlist", "full"}
	outsideAsks        = []string{"off", "on-miss", "always"}
	outsideUnattendeds = []string{"queue", "fallback"}
)

func (h *outsideHost) UnmarshalText(text []byte) error {
	*h = outsideHost(text)
	return oneOf(outsideHosts, text)
}

func (s *outsideSecurity) UnmarshalText(text []byte) error {
	*s = outsideSecurity(text)
	return oneOf(outsideSecurities, text)
}

func (a *outsideAsk) UnmarshalText(text []byte) error {
	*a = outsideAsk(text)
	return oneOf(outsideAsks, text)
}

func (u *outsideUnattended) UnmarshalText(text []byte) error {
	*u = outsideUnattended(text)
	return oneOf(outsideUnattendeds, text)
}

func oneOf(words []string, text []byte) error {
	_, err := valueOf(words, text)
	return err
}

func (b *safeBin) UnmarshalText(text []byte) error {
	*b = safeBin(text)
	return checkProgramName(string(text))
}

// maxApprover bounds a name, in bytes.
const maxApprover = 128

func (a *approver) UnmarshalText(text []byte) error {
	*a = approver(text)
	if len(text) == 0 || len(text) > maxApprover || Printable(string(text)) != string(text) || string(text) == "*" {
		return fmt.Errorf("%s is nobody's name: it must be one of 1 to %d bytes that can be shown, and * is not everybody", shorten(string(text)), maxApprover)
	}
	return nil
}

func (*SafeBinProfile) checkKey(name string) error { return checkProgramName(name) }

// checkProgramName refuses what is no bare name: a path would be trusted by its last part.
func checkProgramName(name string) error {
	ok := name != "" && len(name) <= 64
	for _, c := range []byte(name) {
		ok = ok && (isWordByte(c) || c == '.' || c == '+')
	}
	if !ok {
		return fmt.Errorf("%s is not the bare name of a program", shorten(name))
	}
	return nil
}

func (o *outsideConfig) overlay(over outsideConfig) {
	overlay(&o.Host, over.Host)
	overlay(&o.Security, over.Security)
	overlay(&o.Ask, over.Ask)
	overlay(&o.Node, over.Node)
	overlay(&o.StrictInlineEval, over.StrictInlineEval)
	overlay(&o.SafeBins, over.SafeBins)
	overlay(&o.Unattended, over.Unattended)
	overlay(&o.Approvers, over.Approvers)
	for name, p := range over.SafeBinProfiles {
		if o.SafeBinProfiles == nil {
			o.SafeBinProfiles = map[string]SafeBinProfile{}
		}
		o.SafeBinProfiles[name] = p
	}
}

// Outside is what the configuration says about an agent's commands outside the sandbox. Empty
// words: nothing is said.
type Outside struct {
	Host, Security, Ask, Node string
	InlineCode                bool     // do not ask about code in the arguments
	SafeBins                  []string // nil: nothing is said
	Approvers                 []string
	Unattended                string
	SafeBinProfiles           map[string]SafeBinProfile
}

// Outside joins the layers for one agent.
func (c *Config) Outside(agent string) (Outside, error) {
	if agent == "" {
		agent = DefaultAgent
	}
	if err := CheckAgent(agent); err != nil {
		return Outside{}, err
	}
	return c.settings(agent).Outside.said(), nil
}

// OutsideLayers returns what is said for all agents, and what for one alone.
func (c *Config) OutsideLayers(agent string) (global, own Outside) {
	all, one := c.layered(agent)
	return all.Outside.said(), one.Outside.said()
}

func (s outsideConfig) said() Outside {
	o := Outside{Host: said(s.Host), Security: said(s.Security), Ask: said(s.Ask), Node: said(s.Node), Unattended: said(s.Unattended), SafeBinProfiles: s.SafeBinProfiles}
	o.InlineCode = s.StrictInlineEval != nil && !*s.StrictInlineEval
	if s.SafeBins != nil {
		o.SafeBins = []string{}
		for _, name := range *s.SafeBins {
			o.SafeBins = append(o.SafeBins, string(name))
		}
		slices.Sort(o.SafeBins)
	}
	if s.Approvers != nil {
		for _, name := range *s.Approvers {
			o.Approvers = append(o.Approvers, string(name))
		}
	}
	return o
}

func said[T ~string](word *T) string {
	if word == nil {
		return ""
	}
	return string(*word)
}
